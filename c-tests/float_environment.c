/* A thread whose denormal numbers are flushed to zero, as in every program that is linked with
 * -ffast-math: our samplers must leave the same candidates as the built-ins, from arrays and
 * directly from logits. Only for processors with such a mode. */
#include <math.h>

#include "check.h"

#include "llama_sieve.h"

#ifdef __SSE__
#include <xmmintrin.h>
static void flush_to_zero(bool on) {
    /* The bits that flush denormal results (FTZ) and operands (DAZ). */
    const unsigned both = 0x8040;
    _mm_setcsr(on ? _mm_getcsr() | both : _mm_getcsr() & ~both);
}
#else
static void flush_to_zero(bool on) {
    (void) on;
}
#endif

enum { N_KINDS = 12, ROUNDS = 48 };

static void make(int kind, struct llama_sampler * made[2]) {
#define BOTH(...) BOTH_OF(__VA_ARGS__)
#define BOTH_OF(name, ...)                           \
    made[0] = llama_sieve_init_##name(__VA_ARGS__);  \
    made[1] = llama_sampler_init_##name(__VA_ARGS__); \
    break
    switch (kind) {
        case 0: BOTH(dist, 1);
        case 1: BOTH(top_k, 40);
        case 2: BOTH(top_k, 1000);
        case 3: BOTH(top_p, 0.95f, 1);
        case 4: BOTH(min_p, 1e-30f, 1);
        case 5: BOTH(typical, 0.9f, 1);
        case 6: BOTH(temp_ext, 0.8f, 0.3f, 1.5f);
        case 7: BOTH(xtc, 1.0f, 0.0f, 1, 1);
        case 8: BOTH(top_n_sigma, 1.0f);
        case 9: BOTH(mirostat, 32000, 1, 5.0f, 0.1f, 100);
        case 10: BOTH(mirostat_v2, 1, 5.0f, 0.1f);
        default: BOTH(adaptive_p, 0.5f, 0.9f, 1);
    }
    CHECK(made[0] != NULL && made[1] != NULL);
}

static bool are_equal(const llama_token_data_array * a, const llama_token_data_array * b) {
    return a->size == b->size && a->selected == b->selected && a->sorted == b->sorted &&
           memcmp(a->data, b->data, a->size * sizeof(*a->data)) == 0;
}

enum { MOST = 32000 };

/* Makes the same comparison directly from the logits, with a draw at the end. */
static void compare_from_logits(int kind, const llama_token_data * first, int n) {
    static float            logits[MOST];
    static llama_token_data data[MOST], left[MOST];
    struct llama_sampler *  chains[2];
    struct llama_sampler *  made[2];
    make(kind, made);
    for (int side = 0; side < 2; side++) {
        chains[side] = llama_sampler_chain_init(llama_sampler_chain_default_params());
        llama_sampler_chain_add(chains[side], made[side]);
    }
    llama_sampler_chain_add(chains[0], llama_sieve_init_dist(1));
    llama_sampler_chain_add(chains[1], llama_sampler_init_dist(1));
    for (int i = 0; i < n; i++) {
        data[i]   = first[i];
        logits[i] = first[i].logit;
    }
    llama_token_data_array expected = {
        .data = data, .size = (size_t) n, .selected = -1, .sorted = false
    };
    flush_to_zero(true);
    llama_sampler_apply(chains[1], &expected);
    const int token = llama_sieve_chain_sample_logits(chains[0], logits, n);
    const int size  = llama_sieve_chain_candidates(chains[0], left, MOST);
    flush_to_zero(false);
    CHECK(token == expected.data[expected.selected].id);
    CHECK(size == (int) expected.size);
    CHECK(memcmp(left, expected.data, expected.size * sizeof(*left)) == 0);
    llama_sampler_free(chains[0]);
    llama_sampler_free(chains[1]);
}

int main(void) {
    static const int   SIZES[]   = { 2, 40, 300, 5000, 32000, 32000 };
    static const float SPREADS[] = { 20.0f, 90.0f, 110.0f, 200.0f };
    static llama_token_data first[MOST], data[2][MOST];
    static char subject[64];
    numbers from = { 7 };
    check_subject = subject;
    for (int round = 0; round < ROUNDS; round++) {
        const int   n      = SIZES[round % 6];
        const float spread = SPREADS[round / 6 % 4];
        for (int i = 0; i < n; i++) {
            const float u = (float) number_below(&from, 1 << 24) / (float) (1 << 24);
            const float x = round % 2 == 0 ? u * spread : logf(u + 1e-9f) * spread / 20.0f;
            first[i]      = (llama_token_data) { .id = i, .logit = x, .p = 0.0f };
        }
        for (int kind = 0; kind < N_KINDS; kind++) {
            snprintf(subject, sizeof(subject), "kind %d, round %d", kind, round);
            struct llama_sampler * made[2];
            make(kind, made);
            llama_token_data_array arrays[2];
            for (int side = 0; side < 2; side++) {
                memcpy(data[side], first, (size_t) n * sizeof(*first));
                arrays[side] = (llama_token_data_array){
                    .data = data[side], .size = (size_t) n, .selected = -1, .sorted = false
                };
                flush_to_zero(true);
                llama_sampler_apply(made[side], &arrays[side]);
                flush_to_zero(false);
                llama_sampler_free(made[side]);
            }
            CHECK(are_equal(&arrays[0], &arrays[1]));
            compare_from_logits(kind, first, n);
        }
    }
    puts("the same with denormals flushed");
    return EXIT_SUCCESS;
}
