// Tests which tokens a batch has written when a foreign member of one of its chains throws.
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <utility>
#include <vector>

#include "llama.h"
#include "llama_sieve.h"

#define CHECK(condition) \
    if (!(condition)) std::fprintf(stderr, "%d: %s\n", __LINE__, #condition), std::exit(1)

namespace {

enum Member { OURS, OTHER, THROWING };

llama_sampler * other(bool throws) {
    static llama_sampler_i rule = {};
    rule.name                   = [](const llama_sampler *) { return "other"; };
    rule.apply                  = [](llama_sampler * smpl, llama_token_data_array *) {
        if (smpl->ctx != nullptr) throw std::runtime_error("apply");
    };
    return llama_sampler_init(&rule, throws ? &rule : nullptr);
}

llama_sampler * chain_with(Member member) {
    llama_sampler * chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    if (member != OURS) llama_sampler_chain_add(chain, other(member == THROWING));
    llama_sampler_chain_add(chain, llama_sieve_init_greedy());
    return chain;
}

}  // namespace

int main() {
    const Member      members[] = {OTHER, OURS, THROWING, OURS, OTHER};
    const llama_token written[] = {1, 1, -77, 1, -77};
    const int         n         = 5;
    const float       logits[]  = {0, 3, 2};
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        std::vector<llama_sampler *> chains;
        for (Member member : members) chains.push_back(chain_with(member));
        const std::vector<const float *> of(n, logits);
        std::vector<llama_token>         out(n, -77);
        // Twice: after an exception everything works as before.
        for (int round = 0; round < 2; round++) {
            bool has_thrown = false;
            try {
                llama_sieve_chain_sample_batch(chains.data(), of.data(), 3, n, out.data(),
                                               n_threads);
            } catch (const std::runtime_error &) {
                has_thrown = true;
            }
            CHECK(has_thrown);
            for (int i = 0; i < n; i++) CHECK(out[i] == written[i]);
        }
        std::swap(chains[2], chains[4]);
        std::vector<const float *> first(of.begin(), of.begin() + 4);
        CHECK(llama_sieve_chain_sample_batch(chains.data(), first.data(), 3, 4, out.data(),
                                             n_threads) == LLAMA_SIEVE_OK);
        CHECK(out[2] == 1);
        for (llama_sampler * chain : chains) llama_sampler_free(chain);
    }
    std::puts("the others were written");
    return 0;
}
