// Makes samplers and prints their tokens, under a filter that ends the program at any unneeded
// system call.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "../filter.h"
#include "../vocabulary.h"

namespace {

[[noreturn]] void fail(const char * what) {
    std::fprintf(stderr, "filtered: %s\n", what);
    std::exit(1);
}

// Prints the tokens that a chain of this sampler and dist selects, one after another.
void show(const char * name, llama_sampler * smpl, int n) {
    llama_sampler * chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    llama_sampler_chain_add(chain, smpl);
    llama_sampler_chain_add(chain, llama_sampler_init_dist(7));
    std::printf("%s:", name);
    for (int i = 0; i < 20; i++) {
        std::vector<llama_token_data> data;
        for (int id = 0; id < n; id++) {
            data.push_back({ id, std::sin(static_cast<float>(id * (i + 1))), 0.0f });
        }
        llama_token_data_array all = { data.data(), data.size(), -1, false };
        llama_sampler_apply(chain, &all);
        const llama_token token = all.data[all.selected].id;
        std::printf(" %d", token);
        llama_sampler_accept(chain, token);
    }
    std::printf("\n");
    llama_sampler_free(chain);
}

} // namespace

int main(int argc, char ** argv) {
    if (argc != 2) {
        fail("usage: filtered MODEL");
    }
    llama_backend_init();
    llama_model * model = load_vocabulary(argv[1]);
    if (model == nullptr) {
        fail("the model cannot be loaded");
    }
    const llama_vocab * vocab = llama_model_get_vocab(model);
    const int           n = llama_vocab_n_tokens(vocab);
    end_at_other_system_calls();
    const llama_logit_bias biases[] = { { 5, 1.5f }, { 9, -INFINITY } };
    const char *           breakers[] = { "\n", "." };
    show("top-k", llama_sampler_init_top_k(40), n);
    show("top-p", llama_sampler_init_top_p(0.9f, 1), n);
    show("min-p", llama_sampler_init_min_p(0.3f, 1), n);
    show("typical", llama_sampler_init_typical(0.5f, 1), n);
    show("temp", llama_sampler_init_temp(0.7f), n);
    show("temp-ext", llama_sampler_init_temp_ext(0.7f, 0.2f, 1.0f), n);
    show("xtc", llama_sampler_init_xtc(0.5f, 0.1f, 1, 3), n);
    show("top-n-sigma", llama_sampler_init_top_n_sigma(1.0f), n);
    show("penalties", llama_sampler_init_penalties(n, 64, 1.1f, 0.1f, 0.2f), n);
    show("logit-bias", llama_sampler_init_logit_bias(n, 2, biases), n);
    show("no biases", llama_sampler_init_logit_bias(n, 0, nullptr), n);
    show("dry", llama_sampler_init_dry(vocab, 0.8f, 1.75f, 2, 512, breakers, 2), n);
    show("no dry", llama_sampler_init_dry(vocab, 0.0f, 1.75f, 2, 512, breakers, 2), n);
    show("no breakers", llama_sampler_init_dry(vocab, 0.8f, 1.75f, 2, 512, nullptr, 0), n);
    show("infill", llama_sampler_init_infill(vocab), n);
    show("grammar", llama_sampler_init_grammar(vocab, "root ::= [a-z ]*", "root"), n);
    llama_model_free(model);
    return 0;
}
