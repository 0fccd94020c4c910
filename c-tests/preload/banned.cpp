// Samples where every candidate is banned: by a bias, or by a grammar that has ended and a bias
// that bans the end. The tests compare the results of llama_sampler_sample with the built-in
// samplers, with ours under the preload library, and with the drop-in header.
//
//   banned MODEL
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "llama.h"
#include "opened.h"

namespace {

struct sampler_free {
    void operator()(llama_sampler * sampler) const { llama_sampler_free(sampler); }
};
using sampler_ptr = std::unique_ptr<llama_sampler, sampler_free>;

const llama_vocab * vocab;

// Returns a bias that bans the tokens that end the generation, or all tokens.
llama_sampler * ban(bool all) {
    const int32_t                 n = llama_vocab_n_tokens(vocab);
    std::vector<llama_logit_bias> biases;
    for (llama_token token = 0; token < n; token++) {
        if (all || llama_vocab_is_eog(vocab, token)) {
            biases.push_back({ token, -INFINITY });
        }
    }
    return llama_sampler_init_logit_bias(n, static_cast<int32_t>(biases.size()), biases.data());
}

using made = std::vector<llama_sampler *>;

std::vector<std::function<made(uint32_t seed)>> chains() {
    return {
        [](uint32_t) -> made { return { llama_sampler_init_greedy() }; },
        [](uint32_t seed) -> made { return { llama_sampler_init_dist(seed) }; },
        [](uint32_t seed) -> made {
            return { llama_sampler_init_top_k(40), llama_sampler_init_top_p(0.95f, 1),
                     llama_sampler_init_min_p(0.05f, 1), llama_sampler_init_temp(0.8f),
                     llama_sampler_init_dist(seed) };
        },
        [](uint32_t seed) -> made {
            return { llama_sampler_init_temp(0.0f), llama_sampler_init_dist(seed) };
        },
        [](uint32_t seed) -> made { return { llama_sampler_init_mirostat_v2(seed, 5.0f, 0.1f) }; },
    };
}

void sample(llama_context * context, bool by_grammar) {
    size_t number = 0;
    for (const auto & rest : chains()) {
        for (uint32_t seed = 1; seed <= 3; seed++) {
            sampler_ptr chain(llama_sampler_chain_init(llama_sampler_chain_default_params()));
            llama_sampler_chain_add(chain.get(), ban(!by_grammar));
            if (by_grammar) {
                llama_sampler * grammar =
                    llama_sampler_init_grammar(vocab, "root ::= \" the\"", "root");
                llama_sampler_accept(grammar, token_of(vocab, " the"));
                llama_sampler_chain_add(chain.get(), grammar);
            }
            for (llama_sampler * sampler : rest(seed)) {
                llama_sampler_chain_add(chain.get(), sampler);
            }
            std::printf("%s, chain %zu, seed %u:", by_grammar ? "end" : "all", number, seed);
            for (int i = 0; i < 3; i++) {
                try {
                    std::printf(" %d", llama_sampler_sample(chain.get(), context, -1));
                } catch (const std::exception & thrown) {
                    std::printf(" caught: %s", thrown.what());
                    // The built-in would abort at the next token.
                    break;
                }
            }
            std::printf("\n");
        }
        number++;
    }
}

} // namespace

int main(int argc, char ** argv) {
    if (argc != 2) {
        fail("usage: banned MODEL");
    }
    const opened model(argv[1], 32);
    vocab             = model.vocab();
    llama_token begin = llama_vocab_bos(vocab);
    decode(model.context(), &begin, 1);
    sample(model.context(), false);
    sample(model.context(), true);
    return 0;
}
