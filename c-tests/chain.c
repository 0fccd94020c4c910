/* Chains of ours, of built-ins and of both mixed choose the same tokens, also after clone, reset,
 * copy and a member's removal.
 *
 * Built in every way that a program can be linked with llama.cpp and with us. */
#include "check.h"

#include "llama_sieve.h"

enum { N_MEMBERS = 6, N_STEPS = 200, N_TOP_K = 1 };

/* Returns member i of the chain: ours, or the built-in. */
static struct llama_sampler * member(int i, bool ours, int32_t n_vocab, uint32_t seed) {
    switch (i) {
        case 0:
            return (ours ? llama_sieve_init_penalties
                         : llama_sampler_init_penalties)(n_vocab, 64, 1.1f, 0.1f, 0.2f);
        case N_TOP_K:
            return (ours ? llama_sieve_init_top_k : llama_sampler_init_top_k)(40);
        case 2:
            return (ours ? llama_sieve_init_top_p : llama_sampler_init_top_p)(0.95f, 1);
        case 3:
            return (ours ? llama_sieve_init_min_p : llama_sampler_init_min_p)(0.05f, 1);
        case 4:
            return (ours ? llama_sieve_init_temp : llama_sampler_init_temp)(0.8f);
        default:
            return (ours ? llama_sieve_init_dist : llama_sampler_init_dist)(seed);
    }
}

/* Makes llama.cpp's default chain; member i is ours if bit i of `ours` is set. */
static struct llama_sampler * make_chain(unsigned ours, int32_t n_vocab, uint32_t seed) {
    struct llama_sampler * chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    CHECK(chain != NULL);
    for (int i = 0; i < N_MEMBERS; i++) {
        struct llama_sampler * smpl = member(i, (ours >> i & 1) != 0, n_vocab, seed);
        CHECK(smpl != NULL);
        llama_sampler_chain_add(chain, smpl);
    }
    CHECK(llama_sampler_chain_n(chain) == N_MEMBERS);
    return chain;
}

/* Does the same as llama_sampler_sample, but with logits that need no model. */
static llama_token sample(struct llama_sampler * chain, const llama_token_data * candidates,
                          llama_token_data * scratch, size_t n) {
    memcpy(scratch, candidates, n * sizeof(*scratch));
    llama_token_data_array array = { .data = scratch, .size = n, .selected = -1, .sorted = false };
    llama_sampler_apply(chain, &array);
    CHECK(array.selected >= 0 && (size_t) array.selected < array.size);
    const llama_token token = array.data[array.selected].id;
    llama_sampler_accept(chain, token);
    return token;
}

static void check_names(struct llama_sampler * a, struct llama_sampler * b) {
    CHECK(llama_sampler_chain_n(a) == llama_sampler_chain_n(b));
    for (int32_t i = 0; i < llama_sampler_chain_n(a); i++) {
        const char * name = llama_sampler_name(llama_sampler_chain_get(a, i));
        CHECK(strcmp(name, llama_sampler_name(llama_sampler_chain_get(b, i))) == 0);
    }
}

static void replace_by_clone(struct llama_sampler ** chain) {
    struct llama_sampler * clone = llama_sampler_clone(*chain);
    CHECK(clone != NULL);
    llama_sampler_free(*chain);
    *chain = clone;
}

/* Copies the state of a twin that has accepted more tokens; llama_sampler_copy needs samplers of
 * the same kind. */
static void copy_from_older_twin(struct llama_sampler * chain) {
    struct llama_sampler * twin = llama_sampler_clone(chain);
    CHECK(twin != NULL);
    for (llama_token token = 0; token < 20; token++) {
        llama_sampler_accept(twin, token);
    }
    llama_sampler_copy(twin, chain);
    llama_sampler_free(twin);
}

static void remove_top_k(struct llama_sampler * chain) {
    struct llama_sampler * removed = llama_sampler_chain_remove(chain, N_TOP_K);
    CHECK(removed != NULL && strcmp(llama_sampler_name(removed), "top-k") == 0);
    llama_sampler_free(removed);
}

/* Makes the calls that a host may make between two tokens. */
static void between_steps(int step, struct llama_sampler ** chain) {
    if (step % 17 == 16) {
        replace_by_clone(chain);
    }
    if (step % 23 == 22) {
        copy_from_older_twin(*chain);
    }
    if (step % 61 == 60) {
        llama_sampler_reset(*chain);
    }
    if (step == 150) {
        remove_top_k(*chain);
    }
}

static void compare(unsigned ours, size_t n_vocab, uint32_t seed) {
    char subject[64];
    snprintf(subject, sizeof(subject), "members 0x%02x ours, %zu candidates", ours, n_vocab);
    check_subject = subject;

    struct llama_sampler * mixed    = make_chain(ours, (int32_t) n_vocab, seed);
    struct llama_sampler * built_in = make_chain(0, (int32_t) n_vocab, seed);
    llama_token_data * candidates = check_malloc(n_vocab * sizeof(*candidates));
    llama_token_data * scratch    = check_malloc(n_vocab * sizeof(*scratch));
    numbers from = { seed };
    for (int step = 0; step < N_STEPS; step++) {
        fill_candidates(candidates, n_vocab, &from);
        const llama_token expected = sample(built_in, candidates, scratch, n_vocab);
        const llama_token token    = sample(mixed, candidates, scratch, n_vocab);
        if (token != expected) {
            fprintf(stderr, "%s: step %d: token %d, the built-ins chose %d\n", subject, step, token,
                    expected);
            exit(1);
        }
        between_steps(step, &mixed);
        between_steps(step, &built_in);
        check_names(mixed, built_in);
    }
    free(scratch);
    free(candidates);
    llama_sampler_free(built_in);
    llama_sampler_free(mixed);
    check_subject = "";
}

int main(void) {
    const unsigned all = (1u << N_MEMBERS) - 1;
    compare(all, 32000, 42);
    for (unsigned ours = 1; ours <= all; ours++) {
        compare(ours, 1000, 1000 + ours);
    }
    CHECK(strcmp(llama_sieve_last_error(), "") == 0);
    puts("the same tokens");
    return 0;
}
