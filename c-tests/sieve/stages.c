/* Tests the stages of a sieve in the caller's order, and the errors for invalid ones. Uses no
 * llama.cpp, so that our header must suffice. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alone.h"
#include "../messages.h"

enum { N = 64, STEPS = 60 };

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Fills in different logits for each position; some dozens of tokens are probable. */
static void logits_at(int position, float out[N]) {
    for (int i = 0; i < N; i++) {
        out[i] = 3.0f * sinf(0.7f * (float) i + 1.3f * (float) position);
    }
}

static int32_t step(llama_sieve * sieve, int position) {
    float logits[N];
    logits_at(position, logits);
    const int32_t token = llama_sieve_sample(sieve, logits, N);
    CHECK(token >= 0 && token < N);
    /* Repetitions, for DRY and the penalties. */
    llama_sieve_accept(sieve, token);
    llama_sieve_accept(sieve, position % 3);
    return token;
}

static void check_same_text(llama_sieve * a, llama_sieve * b, int from, int to) {
    for (int i = from; i < to; i++) {
        CHECK(step(a, i) == step(b, i));
    }
}

static llama_sieve * new_sieve(int32_t rng) {
    llama_sieve_params params = llama_sieve_default_params();
    params.seed               = 11;
    params.rng                = rng;
    llama_sieve * sieve       = llama_sieve_new(&params);
    CHECK(sieve != NULL);
    return sieve;
}

static llama_sieve_stages with_order(const int32_t * stages, size_t n) {
    llama_sieve_stages made = llama_sieve_default_stages();
    made.stages             = stages;
    made.n_stages           = n;
    made.dry_multiplier     = 0.8f;
    made.xtc_probability    = 0.5f;
    made.xtc_threshold      = 0.05f;
    made.dynatemp_range     = 0.4f;
    made.adaptive_target    = 0.3f;
    return made;
}

static bool has_stages(const llama_sieve * sieve, const int32_t * stages, size_t n) {
    int32_t out[16];
    for (size_t i = 0; i < COUNT(out); i++) {
        out[i] = -99;
    }
    if (llama_sieve_get_stages(sieve, out, COUNT(out)) != (int) n || (n < 16 && out[n] != -99)) {
        return false;
    }
    return n == 0 || memcmp(out, stages, n * sizeof(*out)) == 0;
}

/* The default order of llama.cpp's programs, in common/sampling.cpp. */
static const int32_t PROGRAMS[] = {
    LLAMA_SIEVE_STAGE_PENALTIES, LLAMA_SIEVE_STAGE_DRY,     LLAMA_SIEVE_STAGE_TOP_N_SIGMA,
    LLAMA_SIEVE_STAGE_TOP_K,     LLAMA_SIEVE_STAGE_TYPICAL, LLAMA_SIEVE_STAGE_TOP_P,
    LLAMA_SIEVE_STAGE_MIN_P,     LLAMA_SIEVE_STAGE_XTC,     LLAMA_SIEVE_STAGE_DYNAMIC_TEMPERATURE,
};

static void defaults(void) {
    const llama_sieve_stages stages = llama_sieve_default_stages();
    CHECK(stages.struct_size == sizeof(stages) && stages.n_stages == COUNT(PROGRAMS));
    CHECK(memcmp(stages.stages, PROGRAMS, sizeof(PROGRAMS)) == 0);
    CHECK(stages.dry_multiplier == 0.0f && stages.dry_base == 1.75f &&
          stages.dry_allowed_length == 2 && stages.dry_penalty_last_n == 64);
    CHECK(stages.xtc_probability == 0.0f && stages.xtc_threshold == 0.1f &&
          stages.dynatemp_range == 0.0f && stages.dynatemp_exponent == 1.0f);
    CHECK(stages.mirostat_tau == 5.0f && stages.mirostat_eta == 0.1f && stages.mirostat_m == 100 &&
          stages.adaptive_target == -1.0f && stages.adaptive_decay == 0.9f);
    llama_sieve * sieve = new_sieve(LLAMA_SIEVE_RNG_MT19937);
    CHECK(llama_sieve_set_stages(sieve, &stages) == LLAMA_SIEVE_OK);
    CHECK(has_stages(sieve, PROGRAMS, COUNT(PROGRAMS)));
    /* Stages that are off change nothing: without them the tokens are the same. */
    static const int32_t own[] = { LLAMA_SIEVE_STAGE_PENALTIES, LLAMA_SIEVE_STAGE_TOP_K,
                                   LLAMA_SIEVE_STAGE_TOP_P, LLAMA_SIEVE_STAGE_MIN_P,
                                   LLAMA_SIEVE_STAGE_TEMPERATURE };
    llama_sieve_stages less = stages;
    less.stages             = own;
    less.n_stages           = COUNT(own);
    llama_sieve * other     = new_sieve(LLAMA_SIEVE_RNG_MT19937);
    CHECK(llama_sieve_set_stages(other, &less) == LLAMA_SIEVE_OK);
    check_same_text(sieve, other, 0, STEPS);
    llama_sieve_free(sieve);
    llama_sieve_free(other);
}

static void set_and_get(void) {
    llama_sieve * sieve = new_sieve(LLAMA_SIEVE_RNG_XOROSHIRO128PLUS);
    llama_sieve * plain = new_sieve(LLAMA_SIEVE_RNG_XOROSHIRO128PLUS);
    int32_t       out[4] = { -99, -99, -99, -99 };
    CHECK(has_stages(sieve, NULL, 0) && llama_sieve_get_stages(sieve, NULL, 0) == 0);
    /* The caller's array is copied. */
    int32_t order[3] = { LLAMA_SIEVE_STAGE_TOP_P, LLAMA_SIEVE_STAGE_XTC,
                         LLAMA_SIEVE_STAGE_TEMPERATURE };
    const int32_t      kept[3] = { order[0], order[1], order[2] };
    llama_sieve_stages stages  = with_order(order, 3);
    CHECK(llama_sieve_set_stages(sieve, &stages) == LLAMA_SIEVE_OK);
    memset(order, 0xEE, sizeof(order));
    CHECK(has_stages(sieve, kept, 3) && llama_sieve_get_stages(sieve, NULL, 0) == 3);
    CHECK(llama_sieve_get_stages(sieve, out, 2) == 3 && out[0] == kept[0] && out[1] == kept[1] &&
          out[2] == -99);
    /* A clone has them, too. */
    llama_sieve * clone = llama_sieve_clone(sieve);
    CHECK(has_stages(clone, kept, 3));
    check_same_text(sieve, clone, 0, STEPS);
    llama_sieve_free(clone);
    /* None at all is an order, too: only the draw is left. */
    stages.stages   = NULL;
    stages.n_stages = 0;
    CHECK(llama_sieve_set_stages(sieve, &stages) == LLAMA_SIEVE_OK && has_stages(sieve, NULL, 0));
    step(sieve, 0);
    CHECK(llama_sieve_candidates(sieve, NULL, 0) == N);
    /* NULL restores the default order. After a reset the sieve starts afresh. */
    CHECK(llama_sieve_set_stages(sieve, NULL) == LLAMA_SIEVE_OK && has_stages(sieve, NULL, 0));
    step(sieve, 0);
    CHECK(llama_sieve_candidates(sieve, NULL, 0) < N);
    llama_sieve_reset(sieve);
    check_same_text(sieve, plain, 0, STEPS);
    llama_sieve_free(sieve);
    llama_sieve_free(plain);
}

/* Invalid stages are refused, and change neither stages nor tokens. */
static void wrong_stages(void) {
    static const int32_t good[]    = { LLAMA_SIEVE_STAGE_DRY, LLAMA_SIEVE_STAGE_XTC,
                                       LLAMA_SIEVE_STAGE_MIROSTAT_V2 };
    static const int32_t unknown[] = { LLAMA_SIEVE_STAGE_TOP_K, 14 };
    static const int32_t below[]   = { 0 };
    static const int32_t least[]   = { INT32_MIN };
    static const int32_t twice[]   = { LLAMA_SIEVE_STAGE_TOP_K, LLAMA_SIEVE_STAGE_TOP_P,
                                       LLAMA_SIEVE_STAGE_TOP_K };
    static const int32_t early[]   = { LLAMA_SIEVE_STAGE_ADAPTIVE_P, LLAMA_SIEVE_STAGE_TOP_P };
    static const int32_t both[]    = { LLAMA_SIEVE_STAGE_MIROSTAT, LLAMA_SIEVE_STAGE_MIROSTAT_V2 };
    static const struct {
        const int32_t * stages;
        size_t          n;
        const char *    text;
    } wrong[] = {
        { unknown, 2, "a stage is 14" },
        { below, 1, "a stage is 0" },
        { least, 1, "a stage is -2147483648" },
        { twice, 3, "the stage top_k is named twice" },
        { early, 2, "the stage adaptive_p draws the token, so it must be the last" },
        { both, 2, "the stage mirostat draws the token, so it must be the last" },
        { twice, SIZE_MAX, "n_stages is" },
        { twice, SIZE_MAX / sizeof(int32_t) + 2, "n_stages is" },
        { twice, 30, "n_stages is 30; stages may have 29 at most" },
    };
    llama_sieve *            sieve  = new_sieve(LLAMA_SIEVE_RNG_MT19937);
    const llama_sieve_stages stages = with_order(good, COUNT(good));
    CHECK(llama_sieve_set_stages(sieve, &stages) == LLAMA_SIEVE_OK);
    for (int i = 0; i < 20; i++) {
        step(sieve, i);
    }
    llama_sieve * twin = llama_sieve_clone(sieve);
    for (size_t i = 0; i < COUNT(wrong); i++) {
        const llama_sieve_stages bad = with_order(wrong[i].stages, wrong[i].n);
        CHECK(llama_sieve_set_stages(sieve, &bad) == LLAMA_SIEVE_ERROR_PARAMS &&
              says(wrong[i].text));
        CHECK(has_stages(sieve, good, COUNT(good)));
    }
    /* Wrong pointers. */
    static uint64_t memory[64];
    void *          off = (char *) memory + 1;
    CHECK(llama_sieve_set_stages(sieve, off) == LLAMA_SIEVE_ERROR_NULL && says("aligned"));
    llama_sieve_stages bad = with_order(off, 2);
    CHECK(llama_sieve_set_stages(sieve, &bad) == LLAMA_SIEVE_ERROR_NULL && says("aligned"));
    bad.stages = NULL;
    CHECK(llama_sieve_set_stages(sieve, &bad) == LLAMA_SIEVE_ERROR_NULL && says("stages"));
    CHECK(llama_sieve_get_stages(sieve, NULL, 1) == LLAMA_SIEVE_ERROR_NULL && says("out"));
    CHECK(llama_sieve_get_stages(sieve, off, 2) == LLAMA_SIEVE_ERROR_NULL && says("aligned"));
    CHECK(llama_sieve_get_stages(sieve, off, 0) == (int) COUNT(good));
    for (size_t i = 0; i < COUNT(memory); i++) {
        CHECK(memory[i] == 0);
    }
    /* Wrong sizes. */
    const size_t sizes[] = { 0, 8, sizeof(bad) - 8, sizeof(bad) + 8, SIZE_MAX };
    for (size_t i = 0; i < COUNT(sizes); i++) {
        bad             = stages;
        bad.struct_size = sizes[i];
        CHECK(llama_sieve_set_stages(sieve, &bad) == LLAMA_SIEVE_ERROR_PARAMS &&
              says("struct_size of llama_sieve_stages"));
    }
    /* Parameters of stages in the order are checked; those of others are not. */
    bad                 = stages;
    bad.xtc_probability = NAN;
    CHECK(llama_sieve_set_stages(sieve, &bad) == LLAMA_SIEVE_ERROR_PARAMS &&
          says("probability of the stage xtc is NaN, not a finite number"));
    bad          = stages;
    bad.dry_base = INFINITY;
    CHECK(llama_sieve_set_stages(sieve, &bad) == LLAMA_SIEVE_ERROR_PARAMS &&
          says("base of the stage dry is inf"));
    bad              = stages;
    bad.mirostat_eta = -INFINITY;
    CHECK(llama_sieve_set_stages(sieve, &bad) == LLAMA_SIEVE_ERROR_PARAMS &&
          says("eta of the stage mirostat_v2 is -inf"));
    CHECK(has_stages(sieve, good, COUNT(good)));
    check_same_text(sieve, twin, 20, 20 + STEPS);
    bad                 = stages;
    bad.adaptive_target = NAN;
    CHECK(llama_sieve_set_stages(sieve, &bad) == LLAMA_SIEVE_OK);
    check_same_text(sieve, twin, 0, STEPS);
    /* Slots of samplers. */
    CHECK(llama_sieve_set_sampler(sieve, 0, NULL) == LLAMA_SIEVE_OK);
    CHECK(llama_sieve_set_sampler(sieve, LLAMA_SIEVE_MAX_SAMPLERS, NULL) ==
              LLAMA_SIEVE_ERROR_PARAMS &&
          says("the slot of a sampler is 16; they go from 0 to 15"));
    CHECK(llama_sieve_set_sampler(sieve, -1, NULL) == LLAMA_SIEVE_ERROR_PARAMS && says("slot"));
    CHECK(llama_sieve_set_sampler(sieve, 0, off) == LLAMA_SIEVE_ERROR_NULL && says("aligned"));
    /* A NULL sieve. */
    CHECK(llama_sieve_set_sampler(NULL, 0, NULL) == LLAMA_SIEVE_ERROR_NULL &&
          says("sieve is NULL"));
    CHECK(llama_sieve_set_stages(NULL, &stages) == LLAMA_SIEVE_ERROR_NULL &&
          says("sieve is NULL"));
    CHECK(llama_sieve_set_stages(NULL, NULL) == LLAMA_SIEVE_ERROR_NULL && says("sieve is NULL"));
    CHECK(llama_sieve_get_stages(NULL, NULL, 0) == LLAMA_SIEVE_ERROR_NULL &&
          says("sieve is NULL"));
    CHECK(llama_sieve_set_stages(off, &stages) == LLAMA_SIEVE_ERROR_NULL && says("aligned"));
    llama_sieve_free(sieve);
    llama_sieve_free(twin);
}

/* Without llama.cpp there is no vocabulary; an empty list of breakers does not need one. */
static void breakers_of_dry(void) {
    static uint64_t  memory[64];
    const char *     texts[3] = { NULL, "", "\n" };
    llama_sieve *    sieve    = new_sieve(LLAMA_SIEVE_RNG_MT19937);
    llama_sieve *    plain    = new_sieve(LLAMA_SIEVE_RNG_MT19937);
    const int32_t    order[]  = { LLAMA_SIEVE_STAGE_DRY };
    const llama_sieve_stages stages = with_order(order, 1);
    /* Before the stage is set, and after. */
    CHECK(llama_sieve_set_dry_breakers(sieve, NULL, NULL, 0) == LLAMA_SIEVE_OK);
    CHECK(llama_sieve_set_stages(sieve, &stages) == LLAMA_SIEVE_OK &&
          llama_sieve_set_stages(plain, &stages) == LLAMA_SIEVE_OK);
    CHECK(llama_sieve_set_dry_breakers(sieve, NULL, NULL, 5) == LLAMA_SIEVE_OK);
    CHECK(llama_sieve_set_dry_breakers(sieve, NULL, texts, 0) == LLAMA_SIEVE_OK);
    CHECK(llama_sieve_set_dry_breakers(sieve, NULL, texts, 2) == LLAMA_SIEVE_OK);
    CHECK(llama_sieve_set_dry_breakers(sieve, NULL, texts, 3) == LLAMA_SIEVE_ERROR_NULL &&
          says("vocab is NULL"));
    CHECK(llama_sieve_set_dry_breakers(sieve, (const struct llama_vocab *) memory, texts, 3) ==
          LLAMA_SIEVE_ERROR_NO_HOST);
    CHECK(llama_sieve_set_dry_breakers(sieve, NULL, (void *) ((char *) memory + 1), 3) ==
              LLAMA_SIEVE_ERROR_NULL &&
          says("aligned"));
    CHECK(llama_sieve_set_dry_breakers(NULL, NULL, NULL, 0) == LLAMA_SIEVE_ERROR_NULL &&
          says("sieve is NULL"));
    check_same_text(sieve, plain, 0, STEPS);
    llama_sieve_free(sieve);
    llama_sieve_free(plain);
}

int main(void) {
    llama_sieve_log_set(ignore_message, NULL);
    defaults();
    set_and_get();
    wrong_stages();
    breakers_of_dry();
    puts("the stages answer");
    return 0;
}
