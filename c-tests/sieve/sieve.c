/* Tests the sieve from C: its choices, its answers to bad input, and that it changes nothing else.
 * Uses no llama.cpp, so that our header must suffice. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alone.h"
#include "../messages.h"

enum { N = 5000, N_BATCH = 8 };

static uint32_t numbers = 7;

static float next_number(void) {
    numbers = numbers * 1664525u + 1013904223u;
    return (float) (numbers >> 8) / 16777216.0f;
}

static float * make_logits(void) {
    float * logits = malloc(N * sizeof(*logits));
    CHECK(logits != NULL);
    for (int i = 0; i < N; i++) {
        logits[i] = 6.0f * next_number() - 3.0f;
    }
    for (int i = 0; i < 30; i++) {
        logits[(i * 167) % N] = 12.0f - 0.2f * (float) i;
    }
    return logits;
}

static llama_sieve_params seeded(void) {
    llama_sieve_params params = llama_sieve_default_params();
    params.seed = 42;
    return params;
}

static void defaults(void) {
    const llama_sieve_params p = llama_sieve_default_params();
    CHECK(p.struct_size == sizeof(p));
    CHECK(p.temperature == 0.8f && p.top_k == 40 && p.top_p == 0.95f && p.min_p == 0.05f);
    CHECK(p.typical_p == 1.0f && p.top_n_sigma == -1.0f && p.min_keep == 1);
    CHECK(p.penalty_last_n == 64 && p.penalty_repeat == 1.0f && p.penalty_freq == 0.0f &&
          p.penalty_present == 0.0f);
    CHECK(p.seed == 0xFFFFFFFF);
    CHECK(p.mode == LLAMA_SIEVE_MODE_PARITY && p.rng == LLAMA_SIEVE_RNG_MT19937);
    CHECK(p.method == LLAMA_SIEVE_METHOD_CDF && p.order == LLAMA_SIEVE_ORDER_TEMP_LAST);
    CHECK(p.bias == NULL && p.n_bias == 0);
}

static void a_generation(const float * logits) {
    const llama_sieve_params params = seeded();
    llama_sieve *            a      = llama_sieve_new(&params);
    llama_sieve *            b      = llama_sieve_new(&params);
    CHECK(a != NULL && b != NULL);
    int32_t first[20];
    for (int i = 0; i < 20; i++) {
        first[i] = llama_sieve_sample(a, logits, N);
        CHECK(first[i] >= 0 && first[i] < N);
        CHECK(llama_sieve_sample(b, logits, N) == first[i]);
        llama_sieve_accept(a, first[i]);
        llama_sieve_accept(b, first[i]);
    }
    /* A clone and a saved state continue with the same tokens. */
    llama_sieve * c    = llama_sieve_clone(a);
    const size_t  size = llama_sieve_state_size(a);
    uint8_t *     bytes = malloc(size);
    CHECK(c != NULL && size == 136 + 4 * 20 + 2496 && bytes != NULL);
    CHECK(llama_sieve_state_save(a, bytes, size - 1) == LLAMA_SIEVE_ERROR_STATE && says("room"));
    CHECK(llama_sieve_state_save(a, bytes, size) == LLAMA_SIEVE_OK);
    llama_sieve_reset(b);
    CHECK(llama_sieve_state_load(b, bytes, size) == LLAMA_SIEVE_OK);
    for (int i = 0; i < 20; i++) {
        const int32_t token = llama_sieve_sample(a, logits, N);
        CHECK(llama_sieve_sample(c, logits, N) == token &&
              llama_sieve_sample(b, logits, N) == token);
    }
    bytes[60] ^= 1;
    CHECK(llama_sieve_state_load(b, bytes, size) == LLAMA_SIEVE_ERROR_STATE && says("damaged"));
    CHECK(llama_sieve_state_load(b, bytes, 3) == LLAMA_SIEVE_ERROR_STATE && says("too few"));
    CHECK(llama_sieve_state_load(b, NULL, size) == LLAMA_SIEVE_ERROR_NULL);
    CHECK(llama_sieve_state_load_with(b, bytes, size, 2) == LLAMA_SIEVE_ERROR_INVALID &&
          says("options are 2"));
    CHECK(llama_sieve_state_load_with(b, NULL, size, LLAMA_SIEVE_STATE_PARAMS) ==
          LLAMA_SIEVE_ERROR_NULL);
    CHECK(llama_sieve_state_save(b, NULL, size) == LLAMA_SIEVE_ERROR_NULL);
    llama_sieve_reset(a);
    CHECK(llama_sieve_sample(a, logits, N) == first[0]);
    free(bytes);
    llama_sieve_free(a);
    llama_sieve_free(b);
    llama_sieve_free(c);
}

static void candidates_and_stats(const float * logits) {
    const llama_sieve_params params = seeded();
    llama_sieve *            sieve  = llama_sieve_new(&params);
    struct llama_token_data  out[64];
    llama_sieve_stats        stats = { .struct_size = sizeof(stats) };
    CHECK(llama_sieve_candidates(sieve, out, 64) == 0);
    CHECK(llama_sieve_measure(sieve, true) == LLAMA_SIEVE_OK);
    const int32_t token = llama_sieve_sample(sieve, logits, N);
    const int     n     = llama_sieve_candidates(sieve, out, 64);
    CHECK(n > 0 && n <= 40 && llama_sieve_candidates(sieve, NULL, 0) == n);
    float sum   = 0.0f;
    bool  found = false;
    for (int i = 0; i < n; i++) {
        sum += out[i].p;
        found = found || out[i].id == token;
        CHECK(i == 0 || out[i - 1].logit >= out[i].logit);
    }
    CHECK(found && fabsf(sum - 1.0f) < 1e-5f);
    CHECK(llama_sieve_candidates(sieve, NULL, 1) == LLAMA_SIEVE_ERROR_NULL);
    CHECK(llama_sieve_last_stats(sieve, &stats) == LLAMA_SIEVE_OK);
    CHECK(stats.n_vocab == N && stats.after_top_k == 40 && stats.after_top_n_sigma == n);
    CHECK(stats.model_entropy == llama_sieve_entropy(logits, N, 0));
    CHECK(stats.surprisal == llama_sieve_surprisal(logits, N, token, 0));
    CHECK(stats.sampling_entropy == llama_sieve_candidates_entropy(out, (size_t) n, 0));
    stats.struct_size = 8;
    CHECK(llama_sieve_last_stats(sieve, &stats) == LLAMA_SIEVE_ERROR_PARAMS && says("struct_size"));
    CHECK(llama_sieve_last_stats(sieve, NULL) == LLAMA_SIEVE_ERROR_NULL);
    llama_sieve_free(sieve);

    CHECK(llama_sieve_top_candidates(logits, N, 5, out) == 5);
    CHECK(out[0].id == llama_sieve_greedy(logits, N) && out[0].p > out[4].p);
    CHECK(fabsf(-logf(out[0].p) - llama_sieve_surprisal(logits, N, out[0].id, 0)) < 1e-5f);
    CHECK(llama_sieve_top_candidates(logits, N, 0, out) == 0);
    CHECK(llama_sieve_top_candidates(logits, N, -1, out) == LLAMA_SIEVE_ERROR_SIZE);
    CHECK(llama_sieve_top_candidates(logits, N, 5, NULL) == LLAMA_SIEVE_ERROR_NULL);
    CHECK(llama_sieve_top_candidates(NULL, N, 5, out) == LLAMA_SIEVE_ERROR_NULL);
}

static void steering(const float * logits) {
    llama_sieve_params params = seeded();
    params.temperature        = 0.0f;
    llama_sieve * sieve       = llama_sieve_new(&params);
    const int32_t best        = llama_sieve_greedy(logits, N);
    CHECK(llama_sieve_sample(sieve, logits, N) == best);
    const struct llama_logit_bias bias[] = { { best, -INFINITY }, { 17, 50.0f } };
    params.bias   = bias;
    params.n_bias = 2;
    CHECK(llama_sieve_set_params(sieve, &params) == LLAMA_SIEVE_OK);
    CHECK(llama_sieve_sample(sieve, logits, N) == 17);
    params.bias = NULL;
    CHECK(llama_sieve_set_params(sieve, &params) == LLAMA_SIEVE_ERROR_NULL && says("bias"));
    CHECK(llama_sieve_sample(sieve, logits, N) == 17); /* The old parameters stay. */
    CHECK(llama_sieve_set_params(sieve, NULL) == LLAMA_SIEVE_ERROR_NULL);
    llama_sieve_free(sieve);
}

static void half_precision(void) {
    const llama_sieve_params params = seeded();
    llama_sieve *            sieve  = llama_sieve_new(&params);
    /* The numbers 1, 2, 30 and -1. */
    const uint16_t f16[]  = { 0x3C00, 0x4000, 0x4F80, 0xBC00 };
    const uint16_t bf16[] = { 0x3F80, 0x4000, 0x41F0, 0xBF80 };
    CHECK(llama_sieve_sample_f16(sieve, f16, 4) == 2);
    CHECK(llama_sieve_sample_bf16(sieve, bf16, 4) == 2);
    CHECK(llama_sieve_sample_f16(sieve, NULL, 4) == LLAMA_SIEVE_ERROR_NULL);
    CHECK(llama_sieve_sample_bf16(sieve, bf16, 0) == LLAMA_SIEVE_ERROR_SIZE);
    llama_sieve_free(sieve);
}

static void bad_parameters(void) {
    llama_sieve_params good = seeded();
    llama_sieve_params p;
#define REFUSED(change, words)                   \
    do {                                         \
        p = good;                                \
        change;                                  \
        CHECK(llama_sieve_new(&p) == NULL);      \
        CHECK(says(words));                      \
    } while (0)
    REFUSED(p.struct_size = 0, "struct_size");
    REFUSED(p.struct_size = sizeof(p) - 1, "struct_size");
    REFUSED(p.struct_size = sizeof(p) + 8, "struct_size");
    REFUSED(p.temperature = NAN, "temperature");
    REFUSED(p.penalty_repeat = 0.0f, "penalty_repeat");
    REFUSED(p.mode = 2, "mode is 2");
    REFUSED(p.rng = -1, "rng is -1");
    REFUSED(p.method = 9, "method is 9");
    REFUSED(p.order = 2, "order is 2");
    REFUSED(p.n_bias = 1, "bias");
    CHECK(llama_sieve_new(NULL) == NULL && says("NULL"));
    CHECK(llama_sieve_init_sampler(NULL) == NULL && says("NULL"));
    /* Without llama.cpp no sampler can be made, and there is no context. */
    llama_sieve_log_set(ignore_message, NULL);
    CHECK(llama_sieve_init_sampler(&good) == NULL && says("no llama.cpp"));
    llama_sieve_log_set(NULL, NULL);
    llama_sieve * sieve = llama_sieve_new(&good);
    CHECK(sieve != NULL && strcmp(llama_sieve_last_error(), "") == 0);
    CHECK(llama_sieve_sample_ctx(sieve, NULL, -1) == LLAMA_SIEVE_ERROR_NULL);
    int no_context = 0;
    CHECK(llama_sieve_sample_ctx(sieve, (struct llama_context *) &no_context, -1) ==
          LLAMA_SIEVE_ERROR_NO_HOST);
    llama_sieve_free(sieve);
}

static void bad_logits(const float * logits) {
    const llama_sieve_params params = seeded();
    llama_sieve *            sieve  = llama_sieve_new(&params);
    CHECK(llama_sieve_sample(NULL, logits, N) == LLAMA_SIEVE_ERROR_NULL && says("sieve is NULL"));
    CHECK(llama_sieve_sample(sieve, NULL, N) == LLAMA_SIEVE_ERROR_NULL && says("logits"));
    CHECK(llama_sieve_sample(sieve, logits, 0) == LLAMA_SIEVE_ERROR_SIZE && says("n_vocab is 0"));
    CHECK(llama_sieve_sample(sieve, logits, -3) == LLAMA_SIEVE_ERROR_SIZE && says("-3"));
    CHECK(llama_sieve_greedy(NULL, N) == LLAMA_SIEVE_ERROR_NULL);
    CHECK(llama_sieve_greedy(logits, 0) == LLAMA_SIEVE_ERROR_SIZE);
    const float masked[]   = { -INFINITY, NAN, -INFINITY };
    const float infinite[] = { 1.0f, INFINITY, 0.0f, INFINITY };
    CHECK(llama_sieve_sample(sieve, masked, 3) == LLAMA_SIEVE_ERROR_NO_CANDIDATE &&
          says("minus infinity"));
    CHECK(llama_sieve_greedy(masked, 3) == LLAMA_SIEVE_ERROR_NO_CANDIDATE);
    CHECK(llama_sieve_sample(sieve, infinite, 4) >= 0 && llama_sieve_greedy(infinite, 4) == 1);
    /* Every function accepts NULL. */
    llama_sieve_free(NULL);
    llama_sieve_reset(NULL);
    llama_sieve_accept(NULL, 1);
    CHECK(llama_sieve_clone(NULL) == NULL && llama_sieve_state_size(NULL) == 0);
    CHECK(llama_sieve_set_params(NULL, &params) == LLAMA_SIEVE_ERROR_NULL);
    CHECK(llama_sieve_measure(NULL, true) == LLAMA_SIEVE_ERROR_NULL);
    CHECK(llama_sieve_reserve(NULL, N) == LLAMA_SIEVE_ERROR_NULL && says("sieve is NULL"));
    CHECK(llama_sieve_reserve(sieve, 0) == LLAMA_SIEVE_ERROR_SIZE && says("n_vocab is 0"));
    CHECK(llama_sieve_reserve(sieve, -7) == LLAMA_SIEVE_ERROR_SIZE && says("-7"));
    CHECK(llama_sieve_candidates(NULL, NULL, 0) == LLAMA_SIEVE_ERROR_NULL);
    llama_sieve_free(sieve);
}

static void batch(const float * logits) {
    int32_t tokens[3][N_BATCH];
    const float * rows[N_BATCH];
    for (int t = 0; t < 3; t++) {
        llama_sieve * sieves[N_BATCH];
        for (int i = 0; i < N_BATCH; i++) {
            llama_sieve_params params = seeded();
            params.seed += (uint64_t) i;
            sieves[i] = llama_sieve_new(&params);
            rows[i]   = logits;
        }
        CHECK(llama_sieve_sample_batch(sieves, rows, N, N_BATCH, tokens[t], 1 + t) ==
              LLAMA_SIEVE_OK);
        CHECK(memcmp(tokens[t], tokens[0], sizeof(tokens[0])) == 0);
        if (t == 2) {
            llama_sieve * twice[] = { sieves[0], sieves[1], sieves[0] };
            int32_t       out[3]  = { -77, -77, -77 };
            CHECK(llama_sieve_sample_batch(twice, rows, N, 3, out, 2) == LLAMA_SIEVE_ERROR_BUSY &&
                  says("sieve 2"));
            CHECK(out[0] == -77 && out[1] == -77);
            CHECK(llama_sieve_sample_batch(sieves, rows, 0, 2, out, 2) == LLAMA_SIEVE_ERROR_SIZE);
            CHECK(llama_sieve_sample_batch(sieves, NULL, N, 2, out, 2) == LLAMA_SIEVE_ERROR_NULL);
            CHECK(llama_sieve_sample_batch(sieves, rows, N, 2, NULL, 2) == LLAMA_SIEVE_ERROR_NULL);
            CHECK(llama_sieve_sample_batch(NULL, NULL, N, 0, NULL, 2) == LLAMA_SIEVE_OK);
            /* A sequence without candidates does not affect the others. */
            float masked[3] = { -INFINITY, -INFINITY, -INFINITY };
            const float   few[3]  = { 1.0f, 9.0f, -30.0f };
            const float * mixed[] = { few, masked };
            CHECK(llama_sieve_sample_batch(sieves, mixed, 3, 2, out, 2) ==
                      LLAMA_SIEVE_ERROR_NO_CANDIDATE &&
                  says("sequence 1"));
            CHECK(out[0] >= 0 && out[1] == LLAMA_SIEVE_ERROR_NO_CANDIDATE);
        }
        for (int i = 0; i < N_BATCH; i++) {
            llama_sieve_free(sieves[i]);
        }
    }
}

/* Passes every pointer misaligned by one byte, except those to bytes: each is an error, and nothing
 * is read or written. */
static void misaligned(const float * logits) {
    static uint64_t memory[64];
    void * off = (char *) memory + 1;
    static const uint64_t zeros[64];
    llama_sieve_params params = seeded();
    llama_sieve * sieve = llama_sieve_new(&params);
    llama_sieve * const * sieves = &sieve;
    const float * const * all_logits = &logits;
    int32_t token = 0;
    CHECK(llama_sieve_sample(sieve, logits, N) >= 0);

    CHECK(llama_sieve_new(off) == NULL && says("aligned"));
    params.bias   = off;
    params.n_bias = 1;
    CHECK(llama_sieve_new(&params) == NULL && says("aligned"));
    CHECK(llama_sieve_clone(off) == NULL && says("aligned"));
    CHECK(llama_sieve_set_params(sieve, off) == LLAMA_SIEVE_ERROR_NULL);
    CHECK(llama_sieve_sample(off, logits, N) == LLAMA_SIEVE_ERROR_NULL);
    CHECK(llama_sieve_sample(sieve, off, 4) == LLAMA_SIEVE_ERROR_NULL);
    CHECK(llama_sieve_sample_f16(sieve, off, 4) == LLAMA_SIEVE_ERROR_NULL);
    CHECK(llama_sieve_sample_bf16(sieve, off, 4) == LLAMA_SIEVE_ERROR_NULL);
    CHECK(llama_sieve_candidates(sieve, off, 4) == LLAMA_SIEVE_ERROR_NULL && says("aligned"));
    CHECK(llama_sieve_last_stats(sieve, off) == LLAMA_SIEVE_ERROR_NULL);
    CHECK(llama_sieve_sample_batch(off, all_logits, N, 1, &token, 1) == LLAMA_SIEVE_ERROR_NULL);
    CHECK(llama_sieve_sample_batch(sieves, off, N, 1, &token, 1) == LLAMA_SIEVE_ERROR_NULL);
    CHECK(llama_sieve_sample_batch(sieves, all_logits, N, 1, off, 1) == LLAMA_SIEVE_ERROR_NULL);
    CHECK(llama_sieve_top_candidates(logits, N, 4, off) == LLAMA_SIEVE_ERROR_NULL &&
          says("aligned"));
    CHECK(llama_sieve_top_candidates(off, 4, 1, (llama_token_data *) memory) ==
          LLAMA_SIEVE_ERROR_NULL);
    CHECK(llama_sieve_greedy(off, 4) == LLAMA_SIEVE_ERROR_NULL);
    CHECK(isnan(llama_sieve_entropy(off, 4, 0)) && says("aligned"));
    CHECK(isnan(llama_sieve_candidates_entropy(off, 4, 0)) && says("aligned"));
    CHECK(isnan(llama_sieve_ppl_value(off)) && says("aligned"));
    llama_sieve_ppl_add(off, 1.0f);
    CHECK(llama_sieve_ppl_count(off) == 0);
    llama_sieve_ppl_reset(off);
    CHECK(llama_sieve_ppl_clone(off) == NULL);
    llama_sieve_ppl_free(off);
    llama_sieve_trie_cache_stats(off);
    CHECK(says("aligned"));
    llama_sieve_reset(off);
    llama_sieve_accept(off, 1);
    CHECK(says("aligned"));
    llama_sieve_log_set(ignore_message, NULL);
    llama_sieve_free(off);
    llama_sieve_log_set(NULL, NULL);
    CHECK(memcmp(memory, zeros, sizeof(memory)) == 0);
    llama_sieve_free(sieve);
}

int main(void) {
    float * logits = make_logits();
    float * copy   = make_logits();
    memcpy(copy, logits, N * sizeof(*copy));
    defaults();
    a_generation(logits);
    candidates_and_stats(logits);
    steering(logits);
    half_precision();
    bad_parameters();
    bad_logits(logits);
    batch(logits);
    misaligned(logits);
    CHECK(memcmp(copy, logits, N * sizeof(*copy)) == 0);
    free(copy);
    free(logits);
    puts("the sieve answers");
    return 0;
}
