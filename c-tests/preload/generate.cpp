// Generates text with plain llama.h, through every sampler constructor. The tests run it with the
// built-in samplers and with ours, and compare what it prints.
//
//   generate MODEL FIRST_SEED N_SEEDS [N_TOKENS]
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "llama.h"
#include "opened.h"

namespace {

struct sampler_free {
    void operator()(llama_sampler * sampler) const { llama_sampler_free(sampler); }
};
using sampler_ptr = std::unique_ptr<llama_sampler, sampler_free>;

struct option_set {
    const char * name;
    std::function<std::vector<llama_sampler *>(const llama_vocab *, uint32_t seed)> members;
};

std::vector<option_set> option_sets() {
    using members = std::vector<llama_sampler *>;
    return {
        { "greedy",
          [](const llama_vocab *, uint32_t) { return members{ llama_sampler_init_greedy() }; } },
        { "dist",
          [](const llama_vocab *, uint32_t seed) {
              return members{ llama_sampler_init_dist(seed) };
          } },
        { "top-k",
          [](const llama_vocab *, uint32_t seed) {
              return members{ llama_sampler_init_top_k(20), llama_sampler_init_dist(seed) };
          } },
        { "top-p",
          [](const llama_vocab *, uint32_t seed) {
              return members{ llama_sampler_init_top_p(0.9f, 1), llama_sampler_init_dist(seed) };
          } },
        { "min-p",
          [](const llama_vocab *, uint32_t seed) {
              return members{ llama_sampler_init_min_p(0.05f, 1), llama_sampler_init_dist(seed) };
          } },
        { "typical",
          [](const llama_vocab *, uint32_t seed) {
              return members{ llama_sampler_init_typical(0.8f, 1), llama_sampler_init_dist(seed) };
          } },
        { "temp",
          [](const llama_vocab *, uint32_t seed) {
              return members{ llama_sampler_init_temp(0.7f), llama_sampler_init_dist(seed) };
          } },
        { "temp-ext",
          [](const llama_vocab *, uint32_t seed) {
              return members{ llama_sampler_init_temp_ext(0.8f, 0.3f, 1.5f),
                              llama_sampler_init_dist(seed) };
          } },
        { "xtc",
          [](const llama_vocab *, uint32_t seed) {
              return members{ llama_sampler_init_xtc(0.5f, 0.1f, 1, seed),
                              llama_sampler_init_dist(seed) };
          } },
        { "top-n-sigma",
          [](const llama_vocab *, uint32_t seed) {
              return members{ llama_sampler_init_top_n_sigma(1.5f), llama_sampler_init_dist(seed) };
          } },
        { "mirostat",
          [](const llama_vocab * vocab, uint32_t seed) {
              return members{ llama_sampler_init_mirostat(llama_vocab_n_tokens(vocab), seed, 4.0f,
                                                          0.1f, 100) };
          } },
        { "mirostat-v2",
          [](const llama_vocab *, uint32_t seed) {
              return members{ llama_sampler_init_mirostat_v2(seed, 4.0f, 0.1f) };
          } },
        { "penalties",
          [](const llama_vocab * vocab, uint32_t seed) {
              return members{ llama_sampler_init_penalties(llama_vocab_n_tokens(vocab), 16, 1.3f,
                                                           0.1f, 0.2f),
                              llama_sampler_init_dist(seed) };
          } },
        { "dry",
          [](const llama_vocab * vocab, uint32_t) {
              const char * breakers[] = { "\n", ":", "\"", "*" };
              return members{ llama_sampler_init_dry(vocab, 2.0f, 1.75f, 1, 64, breakers, 4),
                              llama_sampler_init_greedy() };
          } },
        { "adaptive-p",
          [](const llama_vocab *, uint32_t seed) {
              return members{ llama_sampler_init_min_p(0.01f, 1),
                              llama_sampler_init_adaptive_p(0.4f, 0.9f, seed) };
          } },
        { "logit-bias",
          [](const llama_vocab * vocab, uint32_t seed) {
              const int32_t                n_vocab = llama_vocab_n_tokens(vocab);
              std::vector<llama_logit_bias> biases;
              for (llama_token token = 3; token < n_vocab; token += 7) {
                  biases.push_back({ token, token % 2 == 0 ? 1.5f : -2.5f });
              }
              return members{ llama_sampler_init_logit_bias(
                                  n_vocab, static_cast<int32_t>(biases.size()), biases.data()),
                              llama_sampler_init_dist(seed) };
          } },
        { "infill",
          [](const llama_vocab * vocab, uint32_t seed) {
              return members{ llama_sampler_init_top_k(8), llama_sampler_init_infill(vocab),
                              llama_sampler_init_dist(seed) };
          } },
        { "disabled",
          [](const llama_vocab * vocab, uint32_t seed) {
              return members{ llama_sampler_init_penalties(llama_vocab_n_tokens(vocab), 0, 1.0f,
                                                           0.0f, 0.0f),
                              llama_sampler_init_top_k(0),
                              llama_sampler_init_top_p(1.0f, 1),
                              llama_sampler_init_min_p(0.0f, 1),
                              llama_sampler_init_temp(1.0f),
                              llama_sampler_init_dist(seed) };
          } },
        { "default chain",
          [](const llama_vocab * vocab, uint32_t seed) {
              const char * breakers[] = { "\n", ":", "\"", "*" };
              return members{ llama_sampler_init_penalties(llama_vocab_n_tokens(vocab), 64, 1.1f,
                                                           0.0f, 0.0f),
                              llama_sampler_init_dry(vocab, 0.8f, 1.75f, 2, 64, breakers, 4),
                              llama_sampler_init_top_n_sigma(-1.0f),
                              llama_sampler_init_top_k(40),
                              llama_sampler_init_typical(1.0f, 1),
                              llama_sampler_init_top_p(0.95f, 1),
                              llama_sampler_init_min_p(0.05f, 1),
                              llama_sampler_init_xtc(0.3f, 0.2f, 1, seed),
                              llama_sampler_init_temp_ext(0.8f, 0.0f, 1.0f),
                              llama_sampler_init_dist(seed) };
          } },
        { "everything before mirostat",
          [](const llama_vocab * vocab, uint32_t seed) {
              const llama_logit_bias bias = { 5, 2.0f };
              return members{ llama_sampler_init_logit_bias(llama_vocab_n_tokens(vocab), 1, &bias),
                              llama_sampler_init_typical(0.95f, 4),
                              llama_sampler_init_min_p(0.02f, 2),
                              llama_sampler_init_temp_ext(1.0f, 0.5f, 1.0f),
                              llama_sampler_init_mirostat_v2(seed, 3.0f, 0.2f) };
          } },
    };
}

std::string piece(const llama_vocab * vocab, llama_token token) {
    char          buffer[64];
    const int32_t n = llama_token_to_piece(vocab, token, buffer, sizeof(buffer), 0, false);
    std::string   text;
    for (int32_t i = 0; i < n; i++) {
        text += buffer[i] == '\n' ? '|' : buffer[i];
    }
    return text;
}

sampler_ptr make_chain(const option_set & options, const llama_vocab * vocab, uint32_t seed) {
    sampler_ptr chain(llama_sampler_chain_init(llama_sampler_chain_default_params()));
    for (llama_sampler * member : options.members(vocab, seed)) {
        if (member == nullptr) {
            fail("a constructor returned NULL");
        }
        llama_sampler_chain_add(chain.get(), member);
    }
    return chain;
}

} // namespace

int main(int argc, char ** argv) {
    if (argc != 4 && argc != 5) {
        fail("usage: generate MODEL FIRST_SEED N_SEEDS [N_TOKENS]");
    }
    const opened             model(argv[1], 128);
    llama_context *          context = model.context();
    const llama_vocab *      vocab   = model.vocab();
    std::vector<llama_token> prompt  = tokenize(vocab, "And the LORD said unto");
    decode(context, prompt.data(), prompt.size());

    const uint32_t first_seed = static_cast<uint32_t>(std::strtoul(argv[2], nullptr, 10));
    const uint32_t n_seeds    = static_cast<uint32_t>(std::strtoul(argv[3], nullptr, 10));
    const int      n_tokens   = argc == 5 ? std::atoi(argv[4]) : 40;
    for (const option_set & options : option_sets()) {
        for (uint32_t seed = first_seed; seed < first_seed + n_seeds; seed++) {
            sampler_ptr chain = make_chain(options, vocab, seed);
            std::printf("%s, seed %u (%u):", options.name, seed,
                        llama_sampler_get_seed(chain.get()));
            if (seed == first_seed) {
                for (int i = 0; i < llama_sampler_chain_n(chain.get()); i++) {
                    const llama_sampler * member = llama_sampler_chain_get(chain.get(), i);
                    std::printf(" %s[%u]", llama_sampler_name(member),
                                llama_sampler_get_seed(member));
                }
            }
            // Only the last token of the prompt again: its logits are the first to sample from.
            llama_memory_seq_rm(llama_get_memory(context), 0,
                                static_cast<llama_pos>(prompt.size()) - 1, -1);
            decode(context, &prompt.back(), 1);
            std::string text;
            for (int i = 0; i < n_tokens; i++) {
                if (i == n_tokens / 2) {
                    // A clone must continue from the original's state.
                    chain.reset(llama_sampler_clone(chain.get()));
                }
                llama_token token = llama_sampler_sample(chain.get(), context, -1);
                std::printf(" %d", token);
                text += piece(vocab, token);
                decode(context, &token, 1);
            }
            std::printf("\n  %s\n", text.c_str());
        }
    }
    return 0;
}
