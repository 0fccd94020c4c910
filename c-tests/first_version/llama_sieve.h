/* The declarations of llama-sieve 0.1.0 as programs were compiled against them. Never changed: a program of that time must run
 * with every later library. */
#ifndef LLAMA_SIEVE_H
#define LLAMA_SIEVE_H

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

struct llama_sampler;
struct llama_vocab;
struct llama_logit_bias;
struct llama_token_data;
struct llama_context;

#define LLAMA_SIEVE_OK 0

#define LLAMA_SIEVE_ERROR_NULL -1

#define LLAMA_SIEVE_ERROR_NO_HOST -2

#define LLAMA_SIEVE_ERROR_INTERNAL -3

#define LLAMA_SIEVE_ERROR_INVALID -4

#define LLAMA_SIEVE_ERROR_NOT_FOUND -5

#define LLAMA_SIEVE_ERROR_SIZE -6

#define LLAMA_SIEVE_ERROR_PARAMS -7

#define LLAMA_SIEVE_ERROR_NO_CANDIDATE -8

#define LLAMA_SIEVE_ERROR_STATE -9

#define LLAMA_SIEVE_ERROR_BUSY -10

#define LLAMA_SIEVE_ERROR_NO_LOGITS -11

#define LLAMA_SIEVE_ERROR_GRAMMAR_TOKEN -20

#define LLAMA_SIEVE_ERROR_GRAMMAR_END -21

#define LLAMA_SIEVE_ERROR_GRAMMAR_LIMIT -22

#define LLAMA_SIEVE_LOG_INFO 2

#define LLAMA_SIEVE_LOG_WARN 3

#define LLAMA_SIEVE_LOG_ERROR 4

#define LLAMA_SIEVE_CERTIFY_NAME 1

#define LLAMA_SIEVE_CERTIFY_SIZE 2

#define LLAMA_SIEVE_CERTIFY_SORTED 3

#define LLAMA_SIEVE_CERTIFY_SELECTED 4

#define LLAMA_SIEVE_CERTIFY_IDS 5

#define LLAMA_SIEVE_CERTIFY_LOGITS 6

#define LLAMA_SIEVE_CERTIFY_PROBABILITIES 7

#define LLAMA_SIEVE_CERTIFY_ARGUMENTS 8

#define LLAMA_SIEVE_CERTIFY_VOCABULARY 9

#define LLAMA_SIEVE_CERTIFY_NOT_MADE 10

#define LLAMA_SIEVE_TRIE_GREEDY 0

#define LLAMA_SIEVE_TRIE_SAMPLED 1

#define LLAMA_SIEVE_TRIE_COMPACT 256

#define LLAMA_SIEVE_TRIE_RESET_IDLE 512

#define LLAMA_SIEVE_TRIE_SPAN_LIMIT 500

#define LLAMA_SIEVE_TRIE_CACHE_BYTES 16777216

#define LLAMA_SIEVE_GRAMMAR_MAX_TEXT 8388608

#define LLAMA_SIEVE_GRAMMAR_MAX_ELEMENTS 4194304

#define LLAMA_SIEVE_GRAMMAR_MAX_RULES 1048576

#define LLAMA_SIEVE_GRAMMAR_MAX_STACKS 262144

#define LLAMA_SIEVE_GRAMMAR_MAX_STEPS 16777216

#define LLAMA_SIEVE_GRAMMAR_CACHE_BYTES 134217728

#define LLAMA_SIEVE_MODE_FAST 0

#define LLAMA_SIEVE_MODE_PARITY 1

#define LLAMA_SIEVE_RNG_XOROSHIRO128PLUS 0

#define LLAMA_SIEVE_RNG_MT19937 1

#define LLAMA_SIEVE_RNG_POSITION 2

#define LLAMA_SIEVE_METHOD_CDF 0

#define LLAMA_SIEVE_METHOD_GUMBEL 1

#define LLAMA_SIEVE_ORDER_TEMP_LAST 0

#define LLAMA_SIEVE_ORDER_TEMP_FIRST 1

typedef struct llama_sieve llama_sieve;

typedef struct llama_sieve_ppl llama_sieve_ppl;

typedef void (*llama_sieve_log_callback)(int level, const char *text, void *user);

typedef struct llama_sieve_cache_stats {

  uint64_t hits;

  uint64_t misses;

  uint64_t evictions;

  uint64_t entries;

  uint64_t bytes;
} llama_sieve_cache_stats;

typedef struct llama_sieve_params {

  size_t struct_size;

  float temperature;

  int32_t top_k;

  float top_p;

  float min_p;

  float typical_p;

  float top_n_sigma;

  size_t min_keep;

  int32_t penalty_last_n;

  float penalty_repeat;

  float penalty_freq;

  float penalty_present;

  uint64_t seed;

  int32_t mode;

  int32_t rng;

  int32_t method;

  int32_t order;

  const struct llama_logit_bias *bias;

  size_t n_bias;
} llama_sieve_params;

typedef struct llama_sieve_stats {

  size_t struct_size;

  float model_entropy;

  float surprisal;

  float sampling_entropy;

  int32_t n_vocab;

  int32_t after_top_k;

  int32_t after_typical;

  int32_t after_top_p;

  int32_t after_min_p;

  int32_t after_top_n_sigma;
} llama_sieve_stats;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

const char *llama_sieve_version(void);

const char *llama_sieve_simd(void);

const char *llama_sieve_last_error(void);

void llama_sieve_log_set(llama_sieve_log_callback callback, void *user);

int llama_sieve_bind_host(void *dl_handle);

int llama_sieve_certify(const char *sampler_name);

struct llama_sampler *llama_sieve_init_greedy(void);

struct llama_sampler *llama_sieve_init_dist(uint32_t seed);

struct llama_sampler *llama_sieve_init_top_k(int32_t k);

struct llama_sampler *llama_sieve_init_top_p(float p, size_t min_keep);

struct llama_sampler *llama_sieve_init_min_p(float p, size_t min_keep);

struct llama_sampler *llama_sieve_init_typical(float p, size_t min_keep);

struct llama_sampler *llama_sieve_init_temp(float t);

struct llama_sampler *llama_sieve_init_top_n_sigma(float n);

struct llama_sampler *llama_sieve_init_penalties(int32_t n_vocab,
                                                 int32_t last_n,
                                                 float repeat,
                                                 float freq,
                                                 float present);

struct llama_sampler *llama_sieve_init_temp_ext(float t, float delta, float exponent);

struct llama_sampler *llama_sieve_init_xtc(float p, float t, size_t min_keep, uint32_t seed);

struct llama_sampler *llama_sieve_init_mirostat(int32_t n_vocab,
                                                uint32_t seed,
                                                float tau,
                                                float eta,
                                                int32_t m);

struct llama_sampler *llama_sieve_init_mirostat_v2(uint32_t seed, float tau, float eta);

struct llama_sampler *llama_sieve_init_dry(const struct llama_vocab *vocab,
                                           float multiplier,
                                           float base,
                                           int32_t allowed_length,
                                           int32_t last_n,
                                           const char **breakers,
                                           size_t n_breakers);

struct llama_sampler *llama_sieve_init_adaptive_p(float target, float decay, uint32_t seed);

struct llama_sampler *llama_sieve_init_logit_bias(int32_t n_vocab,
                                                  int32_t n,
                                                  const struct llama_logit_bias *bias);

struct llama_sampler *llama_sieve_init_infill(const struct llama_vocab *vocab);

struct llama_sampler *llama_sieve_init_tail_free(float z, size_t min_keep);

struct llama_sampler *llama_sieve_init_softmax(void);

uint32_t llama_sieve_get_seed(const struct llama_sampler *smpl);

struct llama_sampler *llama_sampler_init_token_trie(const struct llama_vocab *vocab,
                                                    const char *json,
                                                    int mode);

struct llama_sampler *llama_sieve_init_trie_slot(const struct llama_vocab *vocab);

int llama_sieve_trie_set(struct llama_sampler *smpl, const char *json, size_t len, int mode);

void llama_sieve_trie_clear(struct llama_sampler *smpl);

int llama_sieve_trie_activate(struct llama_sampler *smpl, const char *path);

bool llama_sieve_trie_is_active(const struct llama_sampler *smpl);

const char *llama_sieve_trie_leaf(const struct llama_sampler *smpl);

size_t llama_sieve_trie_forced(const struct llama_sampler *smpl, int32_t *out, size_t cap);

size_t llama_sieve_trie_allowed(const struct llama_sampler *smpl, int32_t *out, size_t cap);

void llama_sieve_trie_cache_stats(struct llama_sieve_cache_stats *out);

int eliza_inference_bind_token_trie(void *handle, struct llama_sampler *slot);

void eliza_inference_set_token_trie(void *handle, const char *json, size_t len, int mode);

void eliza_inference_clear_token_trie(void *handle);

struct llama_sampler *llama_sieve_init_grammar(const struct llama_vocab *vocab,
                                               const char *grammar_str,
                                               const char *grammar_root);

size_t llama_sieve_grammar_mask(const struct llama_sampler *smpl, uint32_t *bits, size_t n_words);

bool llama_sieve_grammar_is_complete(const struct llama_sampler *smpl);

int llama_sieve_grammar_error(const struct llama_sampler *smpl);

void llama_sieve_grammar_cache_stats(struct llama_sieve_cache_stats *out);

void llama_sieve_vocab_forget(const struct llama_vocab *vocab);

struct llama_sieve_params llama_sieve_default_params(void);

struct llama_sieve *llama_sieve_new(const struct llama_sieve_params *params);

struct llama_sieve *llama_sieve_clone(const struct llama_sieve *sieve);

void llama_sieve_free(struct llama_sieve *sieve);

void llama_sieve_reset(struct llama_sieve *sieve);

int llama_sieve_set_params(struct llama_sieve *sieve, const struct llama_sieve_params *params);

void llama_sieve_accept(struct llama_sieve *sieve, int32_t token);

int32_t llama_sieve_sample(struct llama_sieve *sieve, const float *logits, int32_t n_vocab);

int32_t llama_sieve_sample_f16(struct llama_sieve *sieve, const uint16_t *logits, int32_t n_vocab);

int32_t llama_sieve_sample_bf16(struct llama_sieve *sieve, const uint16_t *logits, int32_t n_vocab);

int llama_sieve_sample_batch(struct llama_sieve *const *sieves,
                             const float *const *logits,
                             int32_t n_vocab,
                             size_t n,
                             int32_t *out,
                             int n_threads);

int32_t llama_sieve_sample_ctx(struct llama_sieve *sieve, struct llama_context *ctx, int32_t idx);

struct llama_sampler *llama_sieve_init_sampler(const struct llama_sieve_params *params);

int llama_sieve_candidates(const struct llama_sieve *sieve,
                           struct llama_token_data *out,
                           size_t cap);

int llama_sieve_measure(struct llama_sieve *sieve, bool measured);

int llama_sieve_last_stats(const struct llama_sieve *sieve, struct llama_sieve_stats *out);

size_t llama_sieve_state_size(const struct llama_sieve *sieve);

int llama_sieve_state_save(const struct llama_sieve *sieve, uint8_t *bytes, size_t size);

int llama_sieve_state_load(struct llama_sieve *sieve, const uint8_t *bytes, size_t size);

int llama_sieve_top_candidates(const float *logits,
                               int32_t n_vocab,
                               int32_t n,
                               struct llama_token_data *out);

int32_t llama_sieve_greedy(const float *logits, int32_t n_vocab);

int32_t llama_sieve_chain_sample(struct llama_sampler *chain,
                                 struct llama_context *ctx,
                                 int32_t idx);

int32_t llama_sieve_chain_sample_logits(struct llama_sampler *chain,
                                        const float *logits,
                                        int32_t n_vocab);

int32_t llama_sieve_chain_sample_f16(struct llama_sampler *chain,
                                     const uint16_t *logits,
                                     int32_t n_vocab);

int32_t llama_sieve_chain_sample_bf16(struct llama_sampler *chain,
                                      const uint16_t *logits,
                                      int32_t n_vocab);

int llama_sieve_chain_sample_batch(struct llama_sampler *const *chains,
                                   const float *const *logits,
                                   int32_t n_vocab,
                                   size_t n,
                                   int32_t *out,
                                   int n_threads);

int llama_sieve_chain_candidates(struct llama_sampler *chain,
                                 struct llama_token_data *out,
                                 size_t cap);

float llama_sieve_entropy(const float *logits, int32_t n, int base);

float llama_sieve_surprisal(const float *logits, int32_t n, int32_t token, int base);

float llama_sieve_candidates_entropy(const struct llama_token_data *candidates, size_t n, int base);

float llama_sieve_candidates_surprisal(const struct llama_token_data *candidates,
                                       size_t n,
                                       int32_t token,
                                       int base);

struct llama_sieve_ppl *llama_sieve_ppl_new(void);

void llama_sieve_ppl_add(struct llama_sieve_ppl *ppl, float surprisal_nats);

float llama_sieve_ppl_value(const struct llama_sieve_ppl *ppl);

size_t llama_sieve_ppl_count(const struct llama_sieve_ppl *ppl);

void llama_sieve_ppl_reset(struct llama_sieve_ppl *ppl);

struct llama_sieve_ppl *llama_sieve_ppl_clone(const struct llama_sieve_ppl *ppl);

void llama_sieve_ppl_free(struct llama_sieve_ppl *ppl);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif
