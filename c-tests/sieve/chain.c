/* The sieve as one sampler of a llama.cpp chain: it chooses what the sieve chooses of the same logits, also after clone and reset, and behind built-ins. */
#include "../check.h"

#include "llama_sieve.h"

enum { N = 3000, STEPS = 50 };

static llama_token step(struct llama_sampler * chain, const llama_token_data * data, llama_token_data * scratch) {
    memcpy(scratch, data, N * sizeof(*scratch));
    llama_token_data_array array = { .data = scratch, .size = N, .selected = -1, .sorted = false };
    llama_sampler_apply(chain, &array);
    CHECK(array.selected >= 0 && (size_t) array.selected < array.size);
    const llama_token token = array.data[array.selected].id;
    llama_sampler_accept(chain, token);
    return token;
}

int main(void) {
    llama_token_data * data    = check_malloc(N * sizeof(*data));
    llama_token_data * scratch = check_malloc(N * sizeof(*scratch));
    float *            logits  = check_malloc(N * sizeof(*logits));
    numbers            from    = { 5 };

    llama_sieve_params params = llama_sieve_default_params();
    params.seed               = 7;
    llama_sieve *          sieve = llama_sieve_new(&params);
    struct llama_sampler * chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    struct llama_sampler * smpl  = llama_sieve_init_sampler(&params);
    CHECK(sieve != NULL && smpl != NULL && strcmp(llama_sampler_name(smpl), "sieve") == 0);
    llama_sampler_chain_add(chain, smpl);
    llama_token first = -1;
    for (int i = 0; i < STEPS; i++) {
        fill_candidates(data, N, &from);
        for (int j = 0; j < N; j++) {
            logits[j] = data[j].logit;
        }
        const llama_token token = llama_sieve_sample(sieve, logits, N);
        llama_sieve_accept(sieve, token);
        CHECK(step(chain, data, scratch) == token);
        if (i == STEPS / 2) {
            struct llama_sampler * clone = llama_sampler_clone(chain);
            llama_sampler_free(chain);
            chain = clone;
        }
    }
    llama_sampler_reset(chain);
    llama_sieve_reset(sieve);
    first = llama_sieve_sample(sieve, logits, N);
    CHECK(step(chain, data, scratch) == first);
    llama_sampler_free(chain);

    /* Behind a built-in that has cut and sorted. */
    chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    llama_sampler_chain_add(chain, llama_sampler_init_top_k(100));
    llama_sampler_chain_add(chain, llama_sieve_init_sampler(&params));
    llama_sieve_reset(sieve);
    for (int i = 0; i < STEPS; i++) {
        const llama_token token = llama_sieve_sample(sieve, logits, N);
        llama_sieve_accept(sieve, token);
        CHECK(step(chain, data, scratch) == token);
    }
    llama_sampler_free(chain);
    llama_sieve_free(sieve);
    free(data);
    free(scratch);
    free(logits);
    puts("the sieve in a chain");
    return 0;
}
