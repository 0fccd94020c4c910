// Generates with chains that together use every constructor of a sampler, and prints the tokens and
// a hash of the candidates that each chain leaves. tests/preload/mutants.rs links it with builds of
// llama.cpp that sample differently.
//
//   mutants MODEL N_TOKENS [KIND]
//
// With KIND, the name of a sampler, it tries only the chains that contain such a sampler and those
// that most programs make. If ALIKE is set in the environment, two arguments of penalties and two
// of DRY have equal values, so that the calls do not show which argument is which.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "llama.h"
#include "opened.h"

namespace {

using members  = std::vector<llama_sampler *>;
using of_vocab = const llama_vocab *;

struct setting {
    const char *                      name;
    std::function<members(of_vocab)> made;
};

members drawn(llama_sampler * sampler) {
    return { sampler, llama_sampler_init_dist(7) };
}

const bool are_alike = std::getenv("ALIKE") != nullptr;

llama_sampler * penalties(of_vocab vocab, int32_t last_n, float repeat) {
    const float present = are_alike ? 0.1f : 0.2f;
    return llama_sampler_init_penalties(llama_vocab_n_tokens(vocab), last_n, repeat, 0.1f, present);
}

llama_sampler * dry(of_vocab vocab, float multiplier) {
    const char * breakers[] = { "\n", ":", "\"", "*" };
    const float  base       = are_alike ? multiplier : 1.75f;
    return llama_sampler_init_dry(vocab, multiplier, base, 2, 64, breakers, 4);
}

llama_sampler * logit_bias(of_vocab vocab) {
    const llama_logit_bias bias[] = { { 5, 1.5f }, { 300, -2.0f }, { 5, 0.7f }, { 2, -INFINITY } };
    return llama_sampler_init_logit_bias(llama_vocab_n_tokens(vocab), 4, bias);
}

// The samplers that llama-server makes by default, with these settings of penalties and DRY.
members served(of_vocab vocab, float repeat, float multiplier) {
    return { penalties(vocab, 64, repeat),
             dry(vocab, multiplier),
             llama_sampler_init_top_n_sigma(-1.0f),
             llama_sampler_init_top_k(40),
             llama_sampler_init_typical(1.0f, 0),
             llama_sampler_init_top_p(0.95f, 0),
             llama_sampler_init_min_p(0.05f, 0),
             llama_sampler_init_xtc(0.0f, 0.1f, 0, 7),
             llama_sampler_init_temp_ext(0.8f, 0.0f, 1.0f),
             llama_sampler_init_dist(7) };
}

// The number of chains that most programs make, which come first.
constexpr int n_common = 4;

std::vector<setting> settings() {
    return {
        { "defaults",
          [](of_vocab) {
              return members{ llama_sampler_init_top_k(40), llama_sampler_init_top_p(0.95f, 0),
                              llama_sampler_init_min_p(0.05f, 0), llama_sampler_init_temp(0.8f),
                              llama_sampler_init_dist(7) };
          } },
        { "server", [](of_vocab vocab) { return served(vocab, 1.1f, 0.0f); } },
        { "server, DRY", [](of_vocab vocab) { return served(vocab, 1.0f, 0.8f); } },
        { "grammar",
          [](of_vocab vocab) {
              return members{ llama_sampler_init_grammar(vocab, "root ::= [a-z ,.;]+", "root"),
                              llama_sampler_init_top_k(40), llama_sampler_init_dist(7) };
          } },
        { "greedy", [](of_vocab) { return members{ llama_sampler_init_greedy() }; } },
        { "dist", [](of_vocab) { return members{ llama_sampler_init_dist(7) }; } },
        { "top-k", [](of_vocab) { return drawn(llama_sampler_init_top_k(20)); } },
        { "top-k of many", [](of_vocab) { return drawn(llama_sampler_init_top_k(300)); } },
        { "top-p", [](of_vocab) { return drawn(llama_sampler_init_top_p(0.5f, 1)); } },
        { "top-p of some", [](of_vocab) { return drawn(llama_sampler_init_top_p(0.35f, 1)); } },
        { "top-p at least", [](of_vocab) { return drawn(llama_sampler_init_top_p(0.1f, 5)); } },
        { "min-p", [](of_vocab) { return drawn(llama_sampler_init_min_p(0.05f, 1)); } },
        { "min-p of equals", [](of_vocab) { return drawn(llama_sampler_init_min_p(1.0f, 1)); } },
        { "min-p at least", [](of_vocab) { return drawn(llama_sampler_init_min_p(0.9f, 6)); } },
        { "typical", [](of_vocab) { return drawn(llama_sampler_init_typical(0.5f, 1)); } },
        { "typical at least", [](of_vocab) { return drawn(llama_sampler_init_typical(0.1f, 4)); } },
        { "temp", [](of_vocab) { return drawn(llama_sampler_init_temp(0.7f)); } },
        { "no temp", [](of_vocab) { return drawn(llama_sampler_init_temp(0.0f)); } },
        { "temp-ext",
          [](of_vocab) { return drawn(llama_sampler_init_temp_ext(0.8f, 0.3f, 1.5f)); } },
        { "temp-ext from 0",
          [](of_vocab) { return drawn(llama_sampler_init_temp_ext(0.3f, 0.5f, 1.0f)); } },
        { "no temp-ext",
          [](of_vocab) { return drawn(llama_sampler_init_temp_ext(0.0f, 0.0f, 1.0f)); } },
        { "xtc", [](of_vocab) { return drawn(llama_sampler_init_xtc(0.5f, 0.02f, 1, 7)); } },
        { "xtc of equals", [](of_vocab) { return drawn(llama_sampler_init_xtc(1, 0.25f, 1, 7)); } },
        { "xtc at least", [](of_vocab) { return drawn(llama_sampler_init_xtc(1, 0.125f, 5, 7)); } },
        { "xtc of halves", [](of_vocab) { return drawn(llama_sampler_init_xtc(1, 0.45f, 0, 7)); } },
        { "top-n-sigma", [](of_vocab) { return drawn(llama_sampler_init_top_n_sigma(1.5f)); } },
        { "mirostat",
          [](of_vocab vocab) {
              return members{ llama_sampler_init_mirostat(llama_vocab_n_tokens(vocab), 7, 3.0f,
                                                          0.3f, 100) };
          } },
        { "mirostat-v2",
          [](of_vocab) { return members{ llama_sampler_init_mirostat_v2(7, 3.0f, 0.3f) }; } },
        { "mirostat-v2 of equals",
          [](of_vocab) { return members{ llama_sampler_init_mirostat_v2(7, 1.0f, 0.1f) }; } },
        { "penalties", [](of_vocab vocab) { return drawn(penalties(vocab, 6, 1.3f)); } },
        { "all penalties", [](of_vocab vocab) { return drawn(penalties(vocab, -1, 1.3f)); } },
        { "DRY",
          [](of_vocab vocab) {
              return members{ dry(vocab, 2.0f), llama_sampler_init_greedy() };
          } },
        { "logit bias", [](of_vocab vocab) { return drawn(logit_bias(vocab)); } },
        { "infill",
          [](of_vocab vocab) {
              return members{ llama_sampler_init_top_k(8), llama_sampler_init_infill(vocab),
                              llama_sampler_init_dist(7) };
          } },
        { "adaptive-p",
          [](of_vocab) {
              return members{ llama_sampler_init_min_p(0.01f, 1),
                              llama_sampler_init_adaptive_p(0.4f, 0.9f, 7) };
          } },
        { "adaptive-p for long",
          [](of_vocab) { return members{ llama_sampler_init_adaptive_p(0.2f, 1.0f, 7) }; } },
    };
}

llama_sampler * chain_of(const setting & one, of_vocab vocab) {
    llama_sampler * chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    for (llama_sampler * member : one.made(vocab)) {
        if (member == nullptr) {
            fail("a constructor returned NULL");
        }
        llama_sampler_chain_add(chain, member);
    }
    return chain;
}

// Applies the chain to these candidates and prints what it leaves. Then the chain accepts the
// selected token, or with `other` a different one.
void apply(llama_sampler * chain, std::vector<llama_token_data> data, bool sorted, bool other) {
    llama_token_data_array left = {};
    left.data                   = data.data();
    left.size                   = data.size();
    left.selected               = -1;
    left.sorted                 = sorted;
    llama_sampler_apply(chain, &left);
    uint64_t sum = left.size + 1000003u * left.sorted;
    for (size_t i = 0; i < left.size; i++) {
        uint32_t bits[3];
        std::memcpy(bits, &left.data[i], sizeof(bits));
        for (const uint32_t word : bits) {
            sum = (sum ^ word) * 1099511628211u;
        }
    }
    const int selected = static_cast<int>(left.selected);
    std::printf("%zu %d %016llx\n", left.size, selected, static_cast<unsigned long long>(sum));
    if (selected < 0 || selected >= static_cast<int>(left.size)) {
        fail("nothing is selected");
    }
    llama_sampler_accept(chain, other ? 9 : left.data[selected].id);
}

// Applies the chain to equal logits, to probabilities that halve from one candidate to the next,
// and to many candidates with ties.
void apply_to_equals(llama_sampler * chain) {
    for (const int n : { 1, 2, 4, 8, 9, 2000 }) {
        std::vector<llama_token_data> equal, halves;
        for (int i = 0; i < n; i++) {
            const float many = n < 100 ? 0.0f : static_cast<float>((i * 37) % 61) * 0.1f - 3.0f;
            equal.push_back({ i, many, 0.0f });
            const float times = static_cast<float>(i < 20 ? i : 20);
            halves.push_back({ n - 1 - i, -0.6931472f * times, 0.0f });
        }
        llama_sampler_reset(chain);
        for (int again = 0; again < 2; again++) {
            apply(chain, equal, false, again == 1);
            apply(chain, halves, true, again == 0);
            apply(chain, equal, n < 100, false);
        }
    }
}

// Returns true if a member of the chain is of the kind `kind`, even if it is disabled.
bool has(llama_sampler * chain, const char * kind) {
    for (int i = 0; i < llama_sampler_chain_n(chain); i++) {
        const char * name = llama_sampler_name(llama_sampler_chain_get(chain, i));
        if (std::strcmp(name + (name[0] == '?'), kind) == 0) {
            return true;
        }
    }
    return false;
}

void generate(const setting & one, llama_sampler * chain, const opened & model, int n_tokens) {
    of_vocab        vocab = model.vocab();
    const size_t    n     = static_cast<size_t>(llama_vocab_n_tokens(vocab));
    const bool has_grammar = std::strcmp(one.name, "grammar") == 0;
    if (!has_grammar) {
        for (const llama_token token : { 303, 301, 302, 303, 301, 302, 303, 307, 301, 302, 303 }) {
            llama_sampler_accept(chain, token);
        }
    }
    for (int i = 0; i < n_tokens; i++) {
        if (i == n_tokens / 3) {
            llama_sampler * clone = llama_sampler_clone(chain);
            llama_sampler_free(chain);
            chain = clone;
        }
        if (i == 2 * n_tokens / 3) {
            llama_sampler * copy = chain_of(one, vocab);
            llama_sampler_copy(chain, copy);
            llama_sampler_free(chain);
            chain = copy;
        }
        if (i == n_tokens - 3) {
            llama_sampler_reset(chain);
        }
        const float *                 logits = llama_get_logits_ith(model.context(), -1);
        std::vector<llama_token_data> data(n);
        for (size_t id = 0; id < n; id++) {
            data[id] = { static_cast<llama_token>(id), logits[id], 0.0f };
        }
        llama_sampler * clone = llama_sampler_clone(chain);
        apply(clone, data, false, false);
        llama_sampler_free(clone);
        const llama_token token = llama_sampler_sample(chain, model.context(), -1);
        std::printf("%d\n", token);
        llama_token last = token;
        decode(model.context(), &last, 1);
    }
    if (!has_grammar) {
        apply_to_equals(chain);
    }
    llama_sampler_free(chain);
}

} // namespace

int main(int argc, char ** argv) {
    if (argc != 3 && argc != 4) {
        fail("usage: mutants MODEL N_TOKENS [KIND]");
    }
    const opened             model(argv[1], 64);
    std::vector<llama_token> prompt = tokenize(model.vocab(), "And the LORD said unto");
    int                      i      = 0;
    for (const setting & one : settings()) {
        llama_sampler * chain = chain_of(one, model.vocab());
        if (i++ >= n_common && argc == 4 && !has(chain, argv[3])) {
            llama_sampler_free(chain);
            continue;
        }
        std::printf("%s\n", one.name);
        llama_memory_clear(llama_get_memory(model.context()), true);
        decode(model.context(), prompt.data(), prompt.size());
        generate(one, chain, model, std::atoi(argv[2]));
    }
    return 0;
}
