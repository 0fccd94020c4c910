// For tests/preload/other_lists.rs: samples with penalties, DRY and logit bias, whose constructors
// have the parameters that lists.h declares, and prints the results. If IN_THREADS is set in the
// environment, each setting has a thread of its own, and all start at once.
//
//   other_lists MODEL SETTING...
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "../vocabulary.h"

#include "lists.h"

namespace {

struct setting {
    int32_t last_n;
    float   repeat, freq, present;
    float   multiplier, base;
    int32_t allowed_length, dry_last_n;
    size_t  n_breakers;
    int32_t n_biases;
};

// In some settings two arguments have the same value, so that exchanging them changes nothing.
const setting settings[] = {
    { 64, 1.1f, 0.0f, 0.0f, 0.0f, 1.75f, 2, 64, 4, 1 },
    { 64, 1.0f, 0.5f, 0.0f, 0.8f, 1.75f, 2, 64, 4, 3 },
    { 24, 1.3f, 0.4f, 0.7f, 1.5f, 1.2f, 1, 200, 4, 40 },
    { 2000, 1.2f, 0.25f, 0.25f, 2.0f, 2.0f, 3, 1000, 3, 200 },
    { 5, 1.0f, 0.0f, 0.6f, 0.9f, 1.1f, 4, 4000, 0, 0 },
    { 0, 1.1f, 0.1f, 0.1f, 0.5f, 1.75f, 1, 1, 1, 1 },
    { 48, 1.7f, 0.3f, 0.2f, 0.7f, 1.3f, 2, 32, 2, 2 },
};

[[noreturn]] void fail(const char * what) {
    std::fprintf(stderr, "other_lists: %s\n", what);
    std::exit(1);
}

std::string run(const llama_vocab * vocab, size_t number) {
    const setting & s       = settings[number];
    const int32_t   n_vocab = llama_vocab_n_tokens(vocab);

    const char *                  breakers[] = { "\n", ":", "\"", "a" };
    std::vector<llama_logit_bias> biases;
    for (int32_t i = 0; i < s.n_biases; i++) {
        biases.push_back({ (i * 37 + 3) % n_vocab, 0.25f * static_cast<float>(i % 7) - 0.8f });
    }
    llama_sampler * chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    // The program's extra arguments have nothing to do with ours.
    const char * volatile some_text = "extra";
    const char * extra              = some_text;
    llama_sampler_chain_add(
        chain, mutant_logit_bias(LOGIT_BIAS_CALL(n_vocab, s.n_biases, biases.data())));
    llama_sampler_chain_add(
        chain, mutant_penalties(PENALTIES_CALL(n_vocab, s.last_n, s.repeat, s.freq, s.present)));
    llama_sampler_chain_add(
        chain, mutant_dry(DRY_CALL(vocab, s.multiplier, s.base, s.allowed_length, s.dry_last_n,
                                   breakers, s.n_breakers)));
    (void) extra;
    llama_sampler_chain_add(chain, llama_sampler_init_dist(42));

    std::string said = "setting " + std::to_string(number) + ":";
    uint32_t                      state = 1;
    std::vector<llama_token_data> data;
    for (int i = 0; i < 150; i++) {
        data.clear();
        for (llama_token id = 0; id < n_vocab; id++) {
            // Few tokens are likely, so that they come again and again.
            state             = state * 1664525u + 1013904223u;
            const float noise = static_cast<float>(state >> 8) / (1 << 24);
            data.push_back({ id, id % 97 < 12 && id < 400 ? 4.0f + 3.0f * noise : noise, 0.0f });
        }
        llama_token_data_array array = { data.data(), data.size(), -1, false };
        llama_sampler_apply(chain, &array);
        const llama_token token = array.data[array.selected].id;
        llama_sampler_accept(chain, token);
        said += " " + std::to_string(token);
    }
    llama_sampler_free(chain);
    return said;
}

} // namespace

int main(int argc, char ** argv) {
    if (argc < 3) {
        fail("usage: other_lists MODEL SETTING...");
    }
    llama_model * model = load_vocabulary(argv[1]);
    if (model == nullptr) {
        fail("the model cannot be loaded");
    }
    const llama_vocab *      vocab = llama_model_get_vocab(model);
    std::vector<std::string> said(static_cast<size_t>(argc));
    std::vector<std::thread> threads;
    for (int i = 2; i < argc; i++) {
        const auto one = [&said, vocab, argv, i] {
            said[static_cast<size_t>(i)] = run(vocab, std::strtoul(argv[i], nullptr, 10));
        };
        if (std::getenv("IN_THREADS") != nullptr) {
            threads.emplace_back(one);
        } else {
            one();
        }
    }
    for (std::thread & thread : threads) {
        thread.join();
    }
    for (int i = 2; i < argc; i++) {
        std::printf("%s\n", said[static_cast<size_t>(i)].c_str());
    }
    llama_model_free(model);
    return 0;
}
