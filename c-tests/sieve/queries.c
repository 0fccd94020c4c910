/* Tests the queries of a sieve from C: parameters, seed, position, history, and the error of one
 * sequence of a batch. Uses no llama.cpp, so that our header must suffice. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alone.h"
#include "../messages.h"

enum { N = 8 };

static const float LOGITS[N] = { 0.1f, 2.0f, 1.5f, 0.3f, 1.9f, 0.0f, 1.2f, 0.7f };

static const struct llama_logit_bias BIASES[] = { { 1, 0.5f }, { 3, -INFINITY } };

/* Returns parameters that all differ from the defaults. */
static llama_sieve_params unusual(void) {
    llama_sieve_params p = llama_sieve_default_params();
    p.temperature     = 0.6f;
    p.top_k           = 5;
    p.top_p           = 0.9f;
    p.min_p           = 0.01f;
    p.typical_p       = 0.95f;
    p.top_n_sigma     = 2.5f;
    p.min_keep        = 2;
    p.penalty_last_n  = 7;
    p.penalty_repeat  = 2.0f;
    p.penalty_freq    = 0.25f;
    p.penalty_present = 0.5f;
    p.seed            = 77;
    p.mode            = LLAMA_SIEVE_MODE_FAST;
    p.rng             = LLAMA_SIEVE_RNG_XOROSHIRO128PLUS;
    p.method          = LLAMA_SIEVE_METHOD_GUMBEL;
    p.order           = LLAMA_SIEVE_ORDER_TEMP_FIRST;
    p.bias            = BIASES;
    p.n_bias          = 2;
    return p;
}

static bool same_params(const llama_sieve_params * a, const llama_sieve_params * b) {
    bool same = a->temperature == b->temperature && a->top_k == b->top_k && a->top_p == b->top_p &&
                a->min_p == b->min_p;
    same = same && a->typical_p == b->typical_p && a->top_n_sigma == b->top_n_sigma &&
           a->min_keep == b->min_keep;
    same = same && a->penalty_last_n == b->penalty_last_n && a->penalty_repeat == b->penalty_repeat;
    same = same && a->penalty_freq == b->penalty_freq && a->penalty_present == b->penalty_present &&
           a->seed == b->seed;
    same = same && a->mode == b->mode && a->rng == b->rng && a->method == b->method &&
           a->order == b->order;
    same = same && a->struct_size == b->struct_size && a->n_bias == b->n_bias;
    for (size_t i = 0; same && i < a->n_bias; i++) {
        same = a->bias[i].token == b->bias[i].token && a->bias[i].bias == b->bias[i].bias;
    }
    return same;
}

static void parameters(void) {
    const llama_sieve_params given = unusual();
    llama_sieve *            sieve = llama_sieve_new(&given);
    llama_sieve_params       seen  = { .struct_size = sizeof(seen) };
    CHECK(sieve != NULL && llama_sieve_get_params(sieve, &seen) == LLAMA_SIEVE_OK);
    CHECK(same_params(&seen, &given) && seen.bias != BIASES);
    /* The parameters can be changed and set again. */
    seen.temperature = 1.25f;
    seen.n_bias      = 1;
    CHECK(llama_sieve_set_params(sieve, &seen) == LLAMA_SIEVE_OK);
    llama_sieve_params again = { .struct_size = sizeof(again) };
    CHECK(llama_sieve_get_params(sieve, &again) == LLAMA_SIEVE_OK);
    CHECK(again.temperature == 1.25f && again.n_bias == 1 && again.bias[0].token == 1 &&
          again.bias[0].bias == 0.5f);
    /* Without biases the pointer is NULL. */
    again.n_bias = 0;
    CHECK(llama_sieve_set_params(sieve, &again) == LLAMA_SIEVE_OK);
    CHECK(llama_sieve_get_params(sieve, &again) == LLAMA_SIEVE_OK && again.bias == NULL &&
          again.n_bias == 0);
    /* On failure nothing is written. */
    llama_sieve_params untouched = given;
    untouched.struct_size = sizeof(untouched) - 8;
    CHECK(llama_sieve_get_params(sieve, &untouched) == LLAMA_SIEVE_ERROR_PARAMS &&
          says("struct_size"));
    CHECK(untouched.temperature == given.temperature && untouched.bias == BIASES);
    untouched.struct_size = sizeof(untouched);
    CHECK(llama_sieve_get_params(NULL, &untouched) == LLAMA_SIEVE_ERROR_NULL &&
          says("sieve is NULL"));
    CHECK(same_params(&untouched, &given));
    CHECK(llama_sieve_get_params(sieve, NULL) == LLAMA_SIEVE_ERROR_NULL && says("out"));
    static uint64_t memory[64];
    void * off = (char *) memory + 1;
    CHECK(llama_sieve_get_params(sieve, off) == LLAMA_SIEVE_ERROR_NULL && says("aligned"));
    llama_sieve_free(sieve);
}

static void seeds_and_positions(void) {
    llama_sieve_params params = llama_sieve_default_params();
    llama_sieve *      random = llama_sieve_new(&params);
    const uint64_t     seed   = llama_sieve_current_seed(random);
    CHECK(seed != 0xFFFFFFFF);
    /* The drawn seed reproduces the run. */
    params.seed            = seed;
    llama_sieve * repeated = llama_sieve_new(&params);
    CHECK(llama_sieve_current_seed(repeated) == seed);
    llama_sieve_stats stats = { .struct_size = sizeof(stats) };
    for (int i = 0; i < 40; i++) {
        CHECK(llama_sieve_n_accepted(random) == (uint64_t) i);
        const int32_t token = llama_sieve_sample(random, LOGITS, N);
        CHECK(token >= 0 && llama_sieve_sample(repeated, LOGITS, N) == token);
        CHECK(llama_sieve_last_stats(random, &stats) == LLAMA_SIEVE_OK &&
              stats.n_accepted == (uint64_t) i);
        llama_sieve_accept(random, token);
        llama_sieve_accept(repeated, token);
    }
    /* A new seed takes effect at reset. */
    params.seed = 5;
    CHECK(llama_sieve_set_params(random, &params) == LLAMA_SIEVE_OK &&
          llama_sieve_current_seed(random) == seed);
    llama_sieve_reset(random);
    CHECK(llama_sieve_current_seed(random) == 5 && llama_sieve_n_accepted(random) == 0);
    CHECK(llama_sieve_current_seed(NULL) == 0xFFFFFFFF && says("sieve is NULL"));
    CHECK(llama_sieve_n_accepted(NULL) == 0 && says("sieve is NULL"));
    llama_sieve_free(random);
    llama_sieve_free(repeated);
}

static void history(void) {
    llama_sieve_params params = llama_sieve_default_params();
    params.penalty_last_n  = 6;
    params.penalty_repeat  = 2.0f;
    params.penalty_freq    = 0.25f;
    params.penalty_present = 0.5f;
    params.bias            = BIASES;
    params.n_bias          = 2;
    llama_sieve * sieve    = llama_sieve_new(&params);
    CHECK(llama_sieve_history_size(sieve) == 0 && llama_sieve_history_unique(sieve, NULL, 0) == 0);
    CHECK(!llama_sieve_history_contains(sieve, 1) && llama_sieve_history_count(sieve, 1) == 0);
    const int32_t tokens[] = { 5, 5, 1, 2, 1, 6, 1, 7 };
    for (int i = 0; i < 8; i++) {
        llama_sieve_accept(sieve, tokens[i]);
    }
    /* The last six: 1 2 1 6 1 7. */
    CHECK(llama_sieve_history_size(sieve) == 6 && llama_sieve_n_accepted(sieve) == 8);
    CHECK(llama_sieve_history_count(sieve, 1) == 3 && llama_sieve_history_count(sieve, 7) == 1);
    CHECK(llama_sieve_history_contains(sieve, 6) && !llama_sieve_history_contains(sieve, 5));
    CHECK(llama_sieve_history_count(sieve, 5) == 0 && llama_sieve_history_count(sieve, -1) == 0);
    int32_t out[8] = { -9, -9, -9, -9, -9, -9, -9, -9 };
    CHECK(llama_sieve_history_unique(sieve, out, 8) == 4 && out[4] == -9);
    bool seen[N] = { false };
    for (int i = 0; i < 4; i++) {
        CHECK(out[i] >= 0 && out[i] < N && !seen[out[i]]);
        seen[out[i]] = true;
    }
    CHECK(seen[1] && seen[2] && seen[6] && seen[7]);
    int32_t two[3] = { -9, -9, -9 };
    CHECK(llama_sieve_history_unique(sieve, two, 2) == 4 && two[0] == out[0] && two[1] == out[1] &&
          two[2] == -9);
    CHECK(llama_sieve_history_unique(sieve, NULL, 3) == 4);
    /* Computed by hand: the bias, then division or multiplication, then the penalties. */
    CHECK(llama_sieve_adjusted_logit(sieve, 1, 1.5f) == (1.5f + 0.5f) / 2.0f - (3 * 0.25f + 0.5f));
    CHECK(llama_sieve_adjusted_logit(sieve, 7, -1.0f) == -1.0f * 2.0f - (1 * 0.25f + 0.5f));
    CHECK(llama_sieve_adjusted_logit(sieve, 0, 1.25f) == 1.25f);
    CHECK(llama_sieve_adjusted_logit(sieve, 3, 9.0f) == -INFINITY);
    CHECK(isnan(llama_sieve_adjusted_logit(sieve, 0, NAN)));
    CHECK(llama_sieve_adjusted_logit(sieve, -5, 1.0f) == 1.0f);

    static uint64_t memory[4];
    int32_t * off = (int32_t *) (void *) ((char *) memory + 1);
    CHECK(llama_sieve_history_unique(sieve, off, 2) == 0 && says("aligned"));
    CHECK(llama_sieve_history_unique(NULL, out, 8) == 0 && says("sieve is NULL"));
    CHECK(llama_sieve_history_size(NULL) == 0 && says("sieve is NULL"));
    CHECK(llama_sieve_history_count(NULL, 1) == 0 && says("sieve is NULL"));
    CHECK(!llama_sieve_history_contains(NULL, 1) && says("sieve is NULL"));
    CHECK(isnan(llama_sieve_adjusted_logit(NULL, 1, 1.0f)) && says("sieve is NULL"));
    llama_sieve_free(sieve);
}

static void errors_of_a_batch(void) {
    const llama_sieve_params params = unusual();
    llama_sieve *            sieves[4];
    for (int i = 0; i < 4; i++) {
        sieves[i] = llama_sieve_new(&params);
        CHECK(strcmp(llama_sieve_error(sieves[i]), "") == 0);
    }
    float masked[N];
    for (int i = 0; i < N; i++) {
        masked[i] = -INFINITY;
    }
    const float * rows[] = { LOGITS, masked, LOGITS, masked };
    int32_t       out[4];
    CHECK(llama_sieve_sample_batch(sieves, rows, N, 4, out, 2) == LLAMA_SIEVE_ERROR_NO_CANDIDATE &&
          says("sequence 1"));
    for (int i = 0; i < 4; i++) {
        CHECK((out[i] >= 0) == (i % 2 == 0));
        CHECK((strstr(llama_sieve_error(sieves[i]), "minus infinity") != NULL) == (i % 2 == 1));
        CHECK((strlen(llama_sieve_error(sieves[i])) > 0) == (i % 2 == 1));
    }
    /* The errors of single calls after the batch. */
    CHECK(llama_sieve_sample(sieves[1], LOGITS, N) >= 0 &&
          strcmp(llama_sieve_error(sieves[1]), "") == 0);
    CHECK(llama_sieve_sample(sieves[0], masked, N) == LLAMA_SIEVE_ERROR_NO_CANDIDATE);
    CHECK(strstr(llama_sieve_error(sieves[0]), "minus infinity") != NULL);
    /* A wrong argument sets no error of the sieve. */
    CHECK(llama_sieve_sample(sieves[2], NULL, N) == LLAMA_SIEVE_ERROR_NULL &&
          strcmp(llama_sieve_error(sieves[2]), "") == 0);
    CHECK(llama_sieve_error(NULL) == NULL && says("sieve is NULL"));
    for (int i = 0; i < 4; i++) {
        llama_sieve_free(sieves[i]);
    }
}

static void a_sieve_of_no_sampler(void) {
    CHECK(llama_sieve_of_sampler(NULL) == NULL && says("sampler is NULL"));
    static uint64_t memory[4];
    CHECK(llama_sieve_of_sampler((struct llama_sampler *) (void *) ((char *) memory + 1)) == NULL &&
          says("aligned"));
}

int main(void) {
    parameters();
    seeds_and_positions();
    history();
    errors_of_a_batch();
    a_sieve_of_no_sampler();
    puts("the sieve tells");
    return 0;
}
