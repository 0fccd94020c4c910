// As much of an older llama.h as the tests need, for a program and a stand-in of libllama that
// agree on one of the older argument lists:
//
//   PENALTIES_WITH_N_VOCAB    n_vocab is the first argument of penalties (since b10258)
//   DRY_WITHOUT_N_CTX_TRAIN   n_ctx_train is no longer the second argument of dry (since b10273)
//   PENALTIES_WITH_ANOTHER    an additional integer comes first, as a future build may have it
//   PENALTIES_WITH_NEWLINES   the nine arguments of the first builds with samplers (before b4335)
#ifndef OLD_LLAMA_H
#define OLD_LLAMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int32_t llama_token;

struct llama_vocab;

typedef struct {
    llama_token id;
    float       logit;
    float       p;
} llama_token_data;

typedef struct {
    llama_token_data * data;
    size_t             size;
    int64_t            selected;
    bool               sorted;
} llama_token_data_array;

struct llama_sampler;

// The six functions that every build has.
struct llama_sampler_i {
    const char * (*name)(const struct llama_sampler *);
    void (*accept)(struct llama_sampler *, llama_token);
    void (*apply)(struct llama_sampler *, llama_token_data_array *);
    void (*reset)(struct llama_sampler *);
    struct llama_sampler * (*clone)(const struct llama_sampler *);
    void (*free)(struct llama_sampler *);
};

struct llama_sampler {
    struct llama_sampler_i * iface;
    void *                   ctx;
};

struct llama_sampler_chain_params {
    bool no_perf;
};

struct llama_sampler * llama_sampler_chain_init(struct llama_sampler_chain_params params);
struct llama_sampler * llama_sampler_init(struct llama_sampler_i * iface, void * ctx);
struct llama_sampler * llama_sampler_init_greedy(void);
struct llama_sampler * llama_sampler_init_dist(uint32_t seed);
struct llama_sampler * llama_sampler_init_min_p(float p, size_t min_keep);
struct llama_sampler * llama_sampler_init_temp(float t);
void                   llama_sampler_free(struct llama_sampler * smpl);
const char *           llama_sampler_name(const struct llama_sampler * smpl);
int                    llama_sampler_chain_n(const struct llama_sampler * chain);
struct llama_sampler * llama_sampler_chain_get(struct llama_sampler * chain, int32_t i);
uint32_t               llama_sampler_get_seed(const struct llama_sampler * smpl);

#if defined(PENALTIES_WITH_NEWLINES)
struct llama_sampler * llama_sampler_init_penalties(int32_t n_vocab, llama_token eos,
                                                    llama_token newline, int32_t last_n,
                                                    float repeat, float freq, float present,
                                                    bool penalize_newline, bool ignore_eos);
#elif defined(PENALTIES_WITH_ANOTHER)
struct llama_sampler * llama_sampler_init_penalties(int32_t another, int32_t n_vocab,
                                                    int32_t last_n, float repeat, float freq,
                                                    float present);
#elif defined(PENALTIES_WITH_N_VOCAB)
struct llama_sampler * llama_sampler_init_penalties(int32_t n_vocab, int32_t last_n, float repeat,
                                                    float freq, float present);
#else
struct llama_sampler * llama_sampler_init_penalties(int32_t last_n, float repeat, float freq,
                                                    float present);
#endif

#if defined(DRY_WITHOUT_N_CTX_TRAIN)
struct llama_sampler * llama_sampler_init_dry(const struct llama_vocab * vocab, float multiplier,
                                              float base, int32_t allowed_length, int32_t last_n,
                                              const char ** breakers, size_t n_breakers);
#else
struct llama_sampler * llama_sampler_init_dry(const struct llama_vocab * vocab, int32_t n_ctx_train,
                                              float multiplier, float base, int32_t allowed_length,
                                              int32_t last_n, const char ** breakers,
                                              size_t n_breakers);
#endif

#endif
