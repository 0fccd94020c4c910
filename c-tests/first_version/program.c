/* A program compiled against the header of the first version, with that version's results: structs
 * of the old size must be accepted, its saved state must load, and the tokens must be the same. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llama_sieve.h"

struct llama_token_data {
    int32_t id;
    float   logit;
    float   p;
};

#define CHECK(condition) check_that((condition), #condition, __LINE__)

static void check_that(int holds, const char * condition, int line) {
    if (!holds) {
        fprintf(stderr, "program.c:%d: failed: %s (last error: %s)\n", line, condition,
                llama_sieve_last_error());
        exit(1);
    }
}

enum { N = 8, STEPS = 20, GUARD = 0xA5 };

static const float LOGITS[N] = { 0.1f, 2.0f, 1.5f, 0.3f, 1.9f, 0.0f, 1.2f, 0.7f };

/* The saved state of a sieve with seed 11 and otherwise the defaults, after twenty tokens. */
static const char KEPT[] =
    "4c5353540100000000000000140000000b000000000000001400000000000000417f02763d74afd7"
    "ec6d226ce35dfca31400000000000000000000000100000002000000030000000400000005000000"
    "06000000070000000000000001000000020000000300000004000000050000000600000007000000"
    "000000000100000002000000030000001ac4c3a2a79342d2";
/* The tokens that the sieve chose next, each of which was accepted. */
static const int32_t NEXT[STEPS] = { 4, 2, 1, 2, 4, 7, 2, 2, 4, 7, 4, 6, 1, 4, 1, 2, 1, 1, 1, 4 };

/* A struct of that version, and memory after it that the library must not touch. */
static struct {
    llama_sieve_stats stats;
    unsigned char     behind[64];
} of_the_sieve;

static struct {
    llama_sieve_cache_stats stats;
    unsigned char           behind[64];
} of_the_cache;

static int is_guarded(const unsigned char * behind) {
    for (int i = 0; i < 64; i++) {
        if (behind[i] != GUARD) {
            return 0;
        }
    }
    return 1;
}

int main(void) {
    const llama_sieve_params defaults = llama_sieve_default_params();
    CHECK(defaults.struct_size == sizeof(llama_sieve_params));
    llama_sieve_params params = defaults;
    params.seed               = 11;
    /* The defaults of that version. */
    params.penalty_repeat     = 1.1f;
    params.mode               = LLAMA_SIEVE_MODE_FAST;
    params.rng                = LLAMA_SIEVE_RNG_XOROSHIRO128PLUS;
    llama_sieve * sieve       = llama_sieve_new(&params);
    CHECK(sieve != NULL);
    for (int i = 0; i < STEPS; i++) {
        CHECK(llama_sieve_sample(sieve, LOGITS, N) >= 0);
        llama_sieve_accept(sieve, i % N);
    }

    unsigned char state[sizeof(KEPT) / 2];
    for (size_t i = 0; i < sizeof(state); i++) {
        unsigned byte = 0;
        CHECK(sscanf(KEPT + 2 * i, "%2x", &byte) == 1);
        state[i] = (unsigned char) byte;
    }
    llama_sieve * kept = llama_sieve_new(&params);
    CHECK(llama_sieve_state_load(kept, state, sizeof(state)) == LLAMA_SIEVE_OK);
    for (int i = 0; i < STEPS; i++) {
        CHECK(llama_sieve_sample(kept, LOGITS, N) == NEXT[i] &&
              llama_sieve_sample(sieve, LOGITS, N) == NEXT[i]);
        llama_sieve_accept(kept, NEXT[i]);
        llama_sieve_accept(sieve, NEXT[i]);
    }

    memset(&of_the_sieve, GUARD, sizeof(of_the_sieve));
    of_the_sieve.stats.struct_size = sizeof(of_the_sieve.stats);
    CHECK(llama_sieve_measure(kept, 1) == LLAMA_SIEVE_OK);
    const int32_t token = llama_sieve_sample(kept, LOGITS, N);
    CHECK(llama_sieve_last_stats(kept, &of_the_sieve.stats) == LLAMA_SIEVE_OK);
    CHECK(of_the_sieve.stats.struct_size == sizeof(of_the_sieve.stats) &&
          of_the_sieve.stats.n_vocab == N);
    CHECK(of_the_sieve.stats.surprisal == llama_sieve_surprisal(LOGITS, N, token, 0));
    CHECK(of_the_sieve.stats.after_top_n_sigma == llama_sieve_candidates(kept, NULL, 0));
    CHECK(is_guarded(of_the_sieve.behind));

    memset(&of_the_cache, GUARD, sizeof(of_the_cache));
    llama_sieve_trie_cache_stats(&of_the_cache.stats);
    CHECK(of_the_cache.stats.hits == 0 && of_the_cache.stats.entries == 0 &&
          is_guarded(of_the_cache.behind));

    const size_t    size  = llama_sieve_state_size(kept);
    unsigned char * bytes = malloc(size);
    CHECK(bytes != NULL && llama_sieve_state_save(kept, bytes, size) == LLAMA_SIEVE_OK);
    CHECK(llama_sieve_state_load(sieve, bytes, size) == LLAMA_SIEVE_OK);
    CHECK(llama_sieve_sample(sieve, LOGITS, N) == llama_sieve_sample(kept, LOGITS, N));
    free(bytes);
    llama_sieve_free(kept);
    llama_sieve_free(sieve);
    puts("as it was");
    return 0;
}
