/* Tests the sieve as a sampler in a llama.cpp chain: it chooses the same tokens as the sieve alone,
 * also after clone and reset, and after built-ins. */
#include <math.h>

#include "../check.h"

#include "llama_sieve.h"

enum { N = 3000, STEPS = 50 };

static llama_token step(struct llama_sampler * chain, const llama_token_data * data,
                        llama_token_data * scratch) {
    memcpy(scratch, data, N * sizeof(*scratch));
    llama_token_data_array array = { .data = scratch, .size = N, .selected = -1, .sorted = false };
    llama_sampler_apply(chain, &array);
    CHECK(array.selected >= 0 && (size_t) array.selected < array.size);
    const llama_token token = array.data[array.selected].id;
    llama_sampler_accept(chain, token);
    return token;
}

static void count_messages(int level, const char * text, void * user) {
    (void) level;
    CHECK(strstr(text, "belongs to a sampler") != NULL);
    ++*(int *) user;
}

/* Uses a sampler's sieve through the functions for sieves. */
static void from_outside(const llama_token_data * data, llama_token_data * scratch) {
    llama_sieve_params params    = llama_sieve_default_params();
    params.seed                  = 7;
    struct llama_sampler * chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    llama_sampler_chain_add(chain, llama_sieve_init_sampler(&params));
    struct llama_sampler * smpl  = llama_sampler_chain_get(chain, 0);
    llama_sieve *          sieve = llama_sieve_of_sampler(smpl);
    CHECK(sieve != NULL && llama_sieve_of_sampler(smpl) == sieve);
    CHECK(strcmp(llama_sieve_last_error(), "") == 0);
    CHECK(llama_sieve_current_seed(sieve) == 7 && llama_sieve_n_accepted(sieve) == 0);

    /* Statistics and candidates of the chain's choice. */
    llama_sieve_stats stats = { .struct_size = sizeof(stats) };
    CHECK(llama_sieve_measure(sieve, true) == LLAMA_SIEVE_OK);
    const llama_token token = step(chain, data, scratch);
    CHECK(llama_sieve_n_accepted(sieve) == 1 && llama_sieve_history_contains(sieve, token));
    CHECK(llama_sieve_last_stats(sieve, &stats) == LLAMA_SIEVE_OK && stats.n_vocab == N);
    CHECK(stats.sampling_surprisal >= 0.0f && stats.model_entropy > 0.0f);
    llama_token_data out[64];
    const int        n     = llama_sieve_candidates(sieve, out, 64);
    bool             found = false;
    CHECK(n > 0 && n <= 40 && n == stats.after_top_n_sigma);
    for (int i = 0; i < n; i++) {
        found = found || out[i].id == token;
    }
    CHECK(found);

    /* New parameters take effect with the next token. */
    llama_sieve_params seen = { .struct_size = sizeof(seen) };
    CHECK(llama_sieve_get_params(sieve, &seen) == LLAMA_SIEVE_OK && seen.seed == 7 &&
          seen.top_k == 40);
    const llama_logit_bias ban = { .token = token, .bias = -INFINITY };
    seen.temperature    = 0.0f;
    seen.penalty_last_n = 0;
    seen.bias           = &ban;
    seen.n_bias         = 1;
    CHECK(llama_sieve_set_params(sieve, &seen) == LLAMA_SIEVE_OK);
    llama_token best = -1;
    for (int i = 0; i < N; i++) {
        if (data[i].id != token && (best < 0 || data[i].logit > data[best].logit)) {
            best = data[i].id;
        }
    }
    CHECK(step(chain, data, scratch) == best);

    /* A state saved in the chain continues in a sieve outside it. */
    CHECK(llama_sieve_set_params(sieve, &params) == LLAMA_SIEVE_OK);
    const size_t size  = llama_sieve_state_size(sieve);
    uint8_t *    bytes = check_malloc(size);
    CHECK(llama_sieve_state_save(sieve, bytes, size) == LLAMA_SIEVE_OK);
    llama_sieve_params other = llama_sieve_default_params();
    other.rng                = LLAMA_SIEVE_RNG_POSITION;
    llama_sieve * alone      = llama_sieve_new(&other);
    CHECK(llama_sieve_state_load_with(alone, bytes, size, LLAMA_SIEVE_STATE_PARAMS) ==
          LLAMA_SIEVE_OK);
    float logits[N];
    for (int i = 0; i < N; i++) {
        logits[i] = data[i].logit;
    }
    for (int i = 0; i < STEPS; i++) {
        const llama_token next = step(chain, data, scratch);
        CHECK(llama_sieve_sample(alone, logits, N) == next);
        llama_sieve_accept(alone, next);
    }
    /* Loaded into the chain again, the state gives the same token. */
    CHECK(llama_sieve_state_load(sieve, bytes, size) == LLAMA_SIEVE_OK);
    CHECK(llama_sieve_state_load(alone, bytes, size) == LLAMA_SIEVE_OK);
    CHECK(step(chain, data, scratch) == llama_sieve_sample(alone, logits, N));

    /* The sieve has the error of the chain's call. */
    CHECK(strcmp(llama_sieve_error(sieve), "") == 0);
    for (int i = 0; i < N; i++) {
        scratch[i] = (llama_token_data) { .id = i, .logit = -INFINITY, .p = 0.0f };
    }
    llama_token_data_array array = { .data = scratch, .size = N, .selected = -1, .sorted = false };
    llama_sampler_apply(chain, &array);
    CHECK(array.selected >= 0 && strstr(llama_sieve_error(sieve), "minus infinity") != NULL);

    /* A clone has a sieve of its own, into which copy_state copies the state. */
    struct llama_sampler * clone = llama_sampler_clone(smpl);
    llama_sieve *          twin  = llama_sieve_of_sampler(clone);
    CHECK(twin != NULL && twin != sieve &&
          llama_sieve_n_accepted(twin) == llama_sieve_n_accepted(sieve));
    llama_sieve_accept(twin, 9);
    CHECK(llama_sieve_n_accepted(twin) == llama_sieve_n_accepted(sieve) + 1);
    ((const struct llama_sampler *) smpl)->iface->copy_state(smpl, clone);
    CHECK(llama_sieve_of_sampler(clone) == twin &&
          llama_sieve_n_accepted(twin) == llama_sieve_n_accepted(sieve));
    llama_sampler_free(clone);

    /* The caller must not free the sieve of a sampler. */
    static int told;
    llama_sieve_log_set(count_messages, &told);
    llama_sieve_free(sieve);
    llama_sieve_log_set(NULL, NULL);
    CHECK(told == 1 && llama_sieve_n_accepted(sieve) > 0);
    /* The caller must free a clone of the sieve, however. */
    llama_sieve * copy = llama_sieve_clone(sieve);
    CHECK(copy != NULL && llama_sieve_n_accepted(copy) == llama_sieve_n_accepted(sieve));

    /* Other samplers have no sieve. */
    CHECK(llama_sieve_of_sampler(chain) == NULL &&
          strstr(llama_sieve_last_error(), "no sieve") != NULL);
    struct llama_sampler * greedy = llama_sieve_init_greedy();
    CHECK(llama_sieve_of_sampler(greedy) == NULL &&
          strstr(llama_sieve_last_error(), "no sieve") != NULL);
    llama_sampler_free(greedy);
    llama_sampler_free(chain);
    CHECK(llama_sieve_sample(copy, logits, N) >= 0);
    llama_sieve_free(copy);
    llama_sieve_free(alone);
    free(bytes);
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
    /* llama.cpp's default chain with that seed, without the samplers that are off by default. */
    struct llama_sampler * built_ins =
        llama_sampler_chain_init(llama_sampler_chain_default_params());
    llama_sampler_chain_add(built_ins, llama_sampler_init_top_k(40));
    llama_sampler_chain_add(built_ins, llama_sampler_init_top_p(0.95f, 0));
    llama_sampler_chain_add(built_ins, llama_sampler_init_min_p(0.05f, 0));
    llama_sampler_chain_add(built_ins, llama_sampler_init_temp_ext(0.8f, 0.0f, 1.0f));
    llama_sampler_chain_add(built_ins, llama_sampler_init_dist(7));
    llama_token first = -1;
    for (int i = 0; i < STEPS; i++) {
        fill_candidates(data, N, &from);
        for (int j = 0; j < N; j++) {
            logits[j] = data[j].logit;
        }
        const llama_token token = llama_sieve_sample(sieve, logits, N);
        llama_sieve_accept(sieve, token);
        CHECK(step(chain, data, scratch) == token);
        CHECK(step(built_ins, data, scratch) == token);
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
    llama_sampler_free(built_ins);

    /* After a built-in that cuts and sorts. */
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
    from_outside(data, scratch);
    free(data);
    free(scratch);
    free(logits);
    puts("the sieve in a chain");
    return 0;
}
