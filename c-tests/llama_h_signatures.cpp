// Every constructor has the type of the built-in that it replaces, so that a program only has to
// change the name.
#include <type_traits>

#include "llama.h"
#include "llama_sieve.h"

#define SAME_TYPE(name) \
    static_assert(std::is_same<decltype(&llama_sieve_init_##name), \
                               decltype(&llama_sampler_init_##name)>::value, \
                  "llama_sieve_init_" #name " has other arguments than llama_sampler_init_" #name)

SAME_TYPE(greedy);
SAME_TYPE(dist);
SAME_TYPE(top_k);
SAME_TYPE(top_p);
SAME_TYPE(min_p);
SAME_TYPE(typical);
SAME_TYPE(temp);
SAME_TYPE(top_n_sigma);
SAME_TYPE(penalties);
SAME_TYPE(temp_ext);
SAME_TYPE(xtc);
SAME_TYPE(mirostat);
SAME_TYPE(mirostat_v2);
SAME_TYPE(dry);
SAME_TYPE(adaptive_p);
SAME_TYPE(logit_bias);
SAME_TYPE(infill);

int main() {
    return 0;
}
