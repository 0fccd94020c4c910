/*
 * llama-sieve's samplers in the place of llama.cpp's, without changing a source file.
 *
 * After this header, the names of the built-in constructors mean ours:
 *
 *     #include "llama_sieve_dropin.h"
 *     // This is llama_sieve_init_top_k(40):
 *     llama_sampler_chain_add(chain, llama_sampler_init_top_k(40));
 *
 * or, for all files of a project at once, compile with -include llama_sieve_dropin.h. Link with
 * llama_sieve in addition to llama. The tokens stay the same. It stands before or after llama.h,
 * which it includes; both must be found.
 *
 * Replaced: llama_sampler_init_ greedy, dist, top_k, top_p, min_p, typical, temp, temp_ext, xtc,
 *   top_n_sigma, mirostat, mirostat_v2, penalties, dry, adaptive_p, logit_bias, infill, grammar,
 *   grammar_lazy and grammar_lazy_patterns, in calls and where their addresses are taken;
 *   llama_sampler_get_seed, which has to know ours; and llama_sampler_sample, which then samples
 *   straight from the logits (llama_sieve_chain_sample: a negative error where llama.cpp's own ends
 *   the process, or gives a token that is banned since all are).
 * Left alone: all other functions of llama.h, among them chains, which work with both, and names
 *   inside strings, as for dlsym.
 *
 * Where llama.cpp's grammar throws (it accepts a token that it does not allow) or ends the process,
 *   ours throws nothing: it then allows only tokens that end the generation, and
 *   llama_sieve_grammar_error says so. A program that catches that exception asks this instead, or
 *   keeps llama.cpp's grammars: it puts #undef llama_sampler_init_grammar, _lazy and _lazy_patterns
 *   after this header. A trigger pattern that is no regular expression gives NULL.
 *
 * Off: with -DLLAMA_SIEVE_DROPIN_DISABLE the header declares what it includes, nothing else.
 *
 * The constructors' arguments are those of llama.cpp 0.6.0. Where another llama.h declares others,
 * the compiler says so at the call.
 */

#ifndef LLAMA_SIEVE_DROPIN_H
#define LLAMA_SIEVE_DROPIN_H

/* First, so that its own declarations keep their names. */
#include "llama.h"
#include "llama_sieve.h"

#ifndef LLAMA_SIEVE_DROPIN_DISABLE

/* Not macros with arguments: those would miss &llama_sampler_init_top_k. */
#define llama_sampler_init_greedy      llama_sieve_init_greedy
#define llama_sampler_init_dist        llama_sieve_init_dist
#define llama_sampler_init_top_k       llama_sieve_init_top_k
#define llama_sampler_init_top_p       llama_sieve_init_top_p
#define llama_sampler_init_min_p       llama_sieve_init_min_p
#define llama_sampler_init_typical     llama_sieve_init_typical
#define llama_sampler_init_temp        llama_sieve_init_temp
#define llama_sampler_init_temp_ext    llama_sieve_init_temp_ext
#define llama_sampler_init_xtc         llama_sieve_init_xtc
#define llama_sampler_init_top_n_sigma llama_sieve_init_top_n_sigma
#define llama_sampler_init_mirostat    llama_sieve_init_mirostat
#define llama_sampler_init_mirostat_v2 llama_sieve_init_mirostat_v2
#define llama_sampler_init_penalties   llama_sieve_init_penalties
#define llama_sampler_init_dry         llama_sieve_init_dry
#define llama_sampler_init_adaptive_p  llama_sieve_init_adaptive_p
#define llama_sampler_init_logit_bias  llama_sieve_init_logit_bias
#define llama_sampler_init_infill      llama_sieve_init_infill
#define llama_sampler_init_grammar     llama_sieve_init_grammar
#define llama_sampler_init_grammar_lazy llama_sieve_init_grammar_lazy
#define llama_sampler_init_grammar_lazy_patterns llama_sieve_init_grammar_lazy_patterns
#define llama_sampler_get_seed         llama_sieve_get_seed
#define llama_sampler_sample           llama_sieve_chain_sample

#endif /* LLAMA_SIEVE_DROPIN_DISABLE */

#endif /* LLAMA_SIEVE_DROPIN_H */
