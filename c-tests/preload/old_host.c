// Stands in for an older libllama: its constructors print what they were called with, and make samplers without functions.
#include "old_llama.h"

#include <stdio.h>
#include <stdlib.h>

static struct llama_sampler * own(void) {
    return calloc(1, sizeof(struct llama_sampler));
}

struct llama_sampler * llama_sampler_chain_init(struct llama_sampler_chain_params params) {
    (void) params;
    return own();
}

#ifndef WITHOUT_SAMPLER_INIT
struct llama_sampler * llama_sampler_init(struct llama_sampler_i * iface, void * ctx) {
    struct llama_sampler * made = own();
    made->iface = iface;
    made->ctx   = ctx;
    return made;
}
#endif

struct llama_sampler * llama_sampler_init_greedy(void) {
    printf("host: greedy()\n");
    return own();
}

struct llama_sampler * llama_sampler_init_dist(uint32_t seed) {
    printf("host: dist(%u)\n", seed);
    return own();
}

struct llama_sampler * llama_sampler_init_top_k(int32_t k) {
    printf("host: top_k(%d)\n", k);
    return own();
}

struct llama_sampler * llama_sampler_init_top_p(float p, size_t min_keep) {
    printf("host: top_p(%g, %zu)\n", p, min_keep);
    return own();
}

const char * llama_sampler_name(const struct llama_sampler * smpl) {
    return smpl->iface == NULL ? "the host's" : smpl->iface->name(smpl);
}

int llama_sampler_chain_n(const struct llama_sampler * chain) {
    (void) chain;
    return 0;
}

struct llama_sampler * llama_sampler_chain_get(struct llama_sampler * chain, int32_t i) {
    (void) chain;
    (void) i;
    return NULL;
}

uint32_t llama_sampler_get_seed(const struct llama_sampler * smpl) {
    (void) smpl;
    return 4711;
}

#if defined(PENALTIES_WITH_NEWLINES)
struct llama_sampler * llama_sampler_init_penalties(int32_t n_vocab, llama_token eos, llama_token newline, int32_t last_n, float repeat, float freq,
                                                    float present, bool penalize_newline, bool ignore_eos) {
    printf("host: penalties(%d, %d, %d, %d, %g, %g, %g, %d, %d)\n", n_vocab, eos, newline, last_n, repeat, freq, present, penalize_newline, ignore_eos);
    return own();
}
#elif defined(PENALTIES_WITH_N_VOCAB)
struct llama_sampler * llama_sampler_init_penalties(int32_t n_vocab, int32_t last_n, float repeat, float freq, float present) {
    printf("host: penalties(%d, %d, %g, %g, %g)\n", n_vocab, last_n, repeat, freq, present);
    return own();
}
#else
struct llama_sampler * llama_sampler_init_penalties(int32_t last_n, float repeat, float freq, float present) {
    printf("host: penalties(%d, %g, %g, %g)\n", last_n, repeat, freq, present);
    return own();
}
#endif

#if defined(DRY_WITHOUT_N_CTX_TRAIN)
struct llama_sampler * llama_sampler_init_dry(const struct llama_vocab * vocab, float multiplier, float base, int32_t allowed_length, int32_t last_n,
                                              const char ** breakers, size_t n_breakers) {
    printf("host: dry(%d, %g, %g, %d, %d, %s, %zu)\n", vocab != NULL, multiplier, base, allowed_length, last_n, breakers[0], n_breakers);
    return own();
}
#else
struct llama_sampler * llama_sampler_init_dry(const struct llama_vocab * vocab, int32_t n_ctx_train, float multiplier, float base,
                                              int32_t allowed_length, int32_t last_n, const char ** breakers, size_t n_breakers) {
    printf("host: dry(%d, %d, %g, %g, %d, %d, %s, %zu)\n", vocab != NULL, n_ctx_train, multiplier, base, allowed_length, last_n, breakers[0],
           n_breakers);
    return own();
}
#endif

// What tells the age of a build.

#ifdef WITH_SET_SAMPLER
void llama_set_sampler(void);
void llama_set_sampler(void) {
}
#endif

#ifdef WITH_SAMPLER_COPY
void llama_sampler_copy(void);
void llama_sampler_copy(void) {
}
#endif
