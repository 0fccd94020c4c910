// Stands for an older libllama: its constructors have the parameters of that version, print the
// arguments of the program's calls, and make the samplers with today's libllama, LIBLLAMA. LIBLLAMA
// is loaded so that only this file sees it, and calls its own constructors when it clones samplers.
// llama-sieve tries the same constructors with other arguments, which are not printed.
#include "old_llama.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Finds the function `name` in the current libllama.
static void own(const char * name, void * function) {
    void * libllama = dlopen(LIBLLAMA, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    void * found    = libllama == NULL ? NULL : dlsym(libllama, name);
    if (found == NULL) {
        fprintf(stderr, "old_host: %s\n", dlerror());
        exit(1);
    }
    memcpy(function, &found, sizeof(found));
}

struct llama_sampler * llama_sampler_chain_init(struct llama_sampler_chain_params params) {
    struct llama_sampler * (*init)(struct llama_sampler_chain_params);
    own("llama_sampler_chain_init", &init);
    return init(params);
}

void llama_sampler_free(struct llama_sampler * smpl) {
    void (*free_sampler)(struct llama_sampler *);
    own("llama_sampler_free", &free_sampler);
    free_sampler(smpl);
}

#ifndef WITHOUT_SAMPLER_INIT
struct llama_sampler * llama_sampler_init(struct llama_sampler_i * iface, void * ctx) {
    struct llama_sampler * (*init)(struct llama_sampler_i *, void *);
    own("llama_sampler_init", &init);
    return init(iface, ctx);
}
#endif

struct llama_sampler * llama_sampler_init_greedy(void) {
    struct llama_sampler * (*init)(void);
    own("llama_sampler_init_greedy", &init);
    return init();
}

struct llama_sampler * llama_sampler_init_dist(uint32_t seed) {
    struct llama_sampler * (*init)(uint32_t);
    own("llama_sampler_init_dist", &init);
    if (seed == 4242) {
        printf("host: dist(%u)\n", seed);
    }
#ifdef OLD_DIST
    // Draws other numbers from the same seed.
    return init(seed + 1);
#else
    return init(seed);
#endif
}

struct llama_sampler * llama_sampler_init_min_p(float p, size_t min_keep) {
    struct llama_sampler * (*init)(float, size_t);
    own("llama_sampler_init_min_p", &init);
    if (p == 0.5f && min_keep == 1) {
        printf("host: min_p(%g, %zu)\n", p, min_keep);
    }
    return init(p, min_keep);
}

struct llama_sampler * llama_sampler_init_temp(float t) {
    struct llama_sampler * (*init)(float);
    own("llama_sampler_init_temp", &init);
    if (t == 0.5f) {
        printf("host: temp(%g)\n", t);
    }
    return init(t);
}

const char * llama_sampler_name(const struct llama_sampler * smpl) {
    return smpl->iface->name(smpl);
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
    uint32_t (*get_seed)(const struct llama_sampler *);
    own("llama_sampler_get_seed", &get_seed);
    return get_seed(smpl);
}

static struct llama_sampler * penalties(int32_t last_n, float repeat, float freq, float present) {
    struct llama_sampler * (*init)(int32_t, int32_t, float, float, float);
    own("llama_sampler_init_penalties", &init);
    return init(1000, last_n, repeat, freq, present);
}

#if defined(PENALTIES_WITH_NEWLINES)
struct llama_sampler * llama_sampler_init_penalties(int32_t n_vocab, llama_token eos,
                                                    llama_token newline, int32_t last_n,
                                                    float repeat, float freq, float present,
                                                    bool penalize_newline, bool ignore_eos) {
    printf("host: penalties(%d, %d, %d, %d, %g, %g, %g, %d, %d)\n", n_vocab, eos, newline, last_n,
           repeat, freq, present, penalize_newline, ignore_eos);
    return penalties(last_n, repeat, freq, present);
}
#elif defined(PENALTIES_WITH_ANOTHER)
// An argument list that a future build may have.
struct llama_sampler * llama_sampler_init_penalties(int32_t another, int32_t n_vocab,
                                                    int32_t last_n, float repeat, float freq,
                                                    float present) {
    printf("host: penalties(%d, %d, %d, %g, %g, %g)\n", another, n_vocab, last_n, repeat, freq,
           present);
    return penalties(last_n, repeat, freq, present);
}
#elif defined(PENALTIES_WITH_N_VOCAB)
struct llama_sampler * llama_sampler_init_penalties(int32_t n_vocab, int32_t last_n, float repeat,
                                                    float freq, float present) {
    if (repeat == 2.0f) {
        printf("host: penalties(%d, %d, %g, %g, %g)\n", n_vocab, last_n, repeat, freq, present);
    }
    return penalties(last_n, repeat, freq, present);
}
#else
struct llama_sampler * llama_sampler_init_penalties(int32_t last_n, float repeat, float freq,
                                                    float present) {
    if (repeat == 2.0f) {
        printf("host: penalties(%d, %g, %g, %g)\n", last_n, repeat, freq, present);
    }
    return penalties(last_n, repeat, freq, present);
}
#endif

static struct llama_sampler * dry(const struct llama_vocab * vocab, float multiplier, float base,
                                  int32_t allowed_length, int32_t last_n, const char ** breakers,
                                  size_t n_breakers) {
    struct llama_sampler * (*init)(const struct llama_vocab *, float, float, int32_t, int32_t,
                                   const char **, size_t);
    own("llama_sampler_init_dry", &init);
    return init(vocab, multiplier, base, allowed_length, last_n, breakers, n_breakers);
}

#if defined(DRY_WITHOUT_N_CTX_TRAIN)
struct llama_sampler * llama_sampler_init_dry(const struct llama_vocab * vocab, float multiplier,
                                              float base, int32_t allowed_length, int32_t last_n,
                                              const char ** breakers, size_t n_breakers) {
    if (base == 3.0f) {
        printf("host: dry(%d, %g, %g, %d, %d, %s, %zu)\n", vocab != NULL, multiplier, base,
               allowed_length, last_n, breakers[0], n_breakers);
    }
    return dry(vocab, multiplier, base, allowed_length, last_n, breakers, n_breakers);
}
#else
struct llama_sampler * llama_sampler_init_dry(const struct llama_vocab * vocab, int32_t n_ctx_train,
                                              float multiplier, float base, int32_t allowed_length,
                                              int32_t last_n, const char ** breakers,
                                              size_t n_breakers) {
    if (base == 3.0f) {
        printf("host: dry(%d, %d, %g, %g, %d, %d, %s, %zu)\n", vocab != NULL, n_ctx_train,
               multiplier, base, allowed_length, last_n, breakers[0], n_breakers);
    }
    return dry(vocab, multiplier, base, allowed_length, last_n == -1 ? n_ctx_train : last_n,
               breakers, n_breakers);
}
#endif

// The functions that tell llama-sieve how old a build is.

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

#ifdef WITH_VERSION
const char * llama_version(void);
const char * llama_version(void) {
    return WITH_VERSION;
}
#endif

// In a real build this is a C++ function of libllama-common.
#ifdef WITH_BUILD_NUMBER
int build_number(void) __asm__("_Z18llama_build_numberv");
int build_number(void) {
    return WITH_BUILD_NUMBER;
}
#endif
