// The drop-in header renames calls and addresses, in C and C++, before llama.h and after it. Its
// functions are never called: the test looks at the symbols that the object file refers to.
#ifdef LLAMA_H_FIRST
#include "llama.h"
#include "llama_sieve_dropin.h"
#else
#include "llama_sieve_dropin.h"
#include "llama.h"
#endif
// One of the constructors is deprecated where it is llama.cpp's own.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
// The header may be included twice.
#include "llama_sieve_dropin.h"

struct llama_sampler * (*address_of_top_k(void))(int32_t);
struct llama_sampler * (*address_of_top_k(void))(int32_t) {
    return &llama_sampler_init_top_k;
}

llama_token (*address_of_sample(void))(struct llama_sampler *, struct llama_context *, int32_t);
llama_token (*address_of_sample(void))(struct llama_sampler *, struct llama_context *, int32_t) {
    return &llama_sampler_sample;
}

struct llama_sampler * (*address_of_grammar(void))(const struct llama_vocab *, const char *,
                                                   const char *);
struct llama_sampler * (*address_of_grammar(void))(const struct llama_vocab *, const char *,
                                                   const char *) {
    return &llama_sampler_init_grammar;
}

uint32_t make_all(struct llama_sampler * chain, const struct llama_vocab * vocab,
                  const llama_logit_bias * bias, const char ** breakers);
uint32_t make_all(struct llama_sampler * chain, const struct llama_vocab * vocab,
                  const llama_logit_bias * bias, const char ** breakers) {
    llama_sampler_chain_add(chain, llama_sampler_init_greedy());
    llama_sampler_chain_add(chain, llama_sampler_init_dist(1));
    llama_sampler_chain_add(chain, llama_sampler_init_top_p(0.9f, 1));
    llama_sampler_chain_add(chain, llama_sampler_init_min_p(0.1f, 1));
    llama_sampler_chain_add(chain, llama_sampler_init_typical(0.9f, 1));
    llama_sampler_chain_add(chain, llama_sampler_init_temp(0.9f));
    llama_sampler_chain_add(chain, llama_sampler_init_temp_ext(0.9f, 0.1f, 1.0f));
    llama_sampler_chain_add(chain, llama_sampler_init_xtc(0.5f, 0.1f, 1, 1));
    llama_sampler_chain_add(chain, llama_sampler_init_top_n_sigma(1.0f));
    llama_sampler_chain_add(chain, llama_sampler_init_mirostat(100, 1, 5.0f, 0.1f, 100));
    llama_sampler_chain_add(chain, llama_sampler_init_mirostat_v2(1, 5.0f, 0.1f));
    llama_sampler_chain_add(chain, llama_sampler_init_penalties(100, 64, 1.1f, 0.0f, 0.0f));
    llama_sampler_chain_add(chain, llama_sampler_init_dry(vocab, 0.8f, 1.75f, 2, 64, breakers, 1));
    llama_sampler_chain_add(chain, llama_sampler_init_adaptive_p(0.5f, 0.9f, 1));
    llama_sampler_chain_add(chain, llama_sampler_init_logit_bias(100, 1, bias));
    llama_sampler_chain_add(chain, llama_sampler_init_infill(vocab));
    llama_sampler_chain_add(chain, llama_sampler_init_grammar(vocab, "root ::= \"a\"", "root"));
    llama_sampler_chain_add(chain, llama_sampler_init_grammar_lazy(vocab, "root ::= \"a\"", "root",
                                                                   breakers, 1, NULL, 0));
    llama_sampler_chain_add(chain,
                            llama_sampler_init_grammar_lazy_patterns(vocab, "root ::= \"a\"",
                                                                     "root", breakers, 1, NULL, 0));
    return llama_sampler_get_seed(chain);
}
