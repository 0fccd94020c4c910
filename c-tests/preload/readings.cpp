// Walks through grammars, plain and lazy, that together contain every construct, and prints what
// they allow. tests/preload/readings.rs links it with builds of llama.cpp that read grammars
// differently.
//
//   readings MODEL [N_THREADS]
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "../vocabulary.h"

namespace {

struct sampler_free {
    void operator()(llama_sampler * sampler) const { llama_sampler_free(sampler); }
};
using sampler_ptr = std::unique_ptr<llama_sampler, sampler_free>;

enum class kind { plain, words, patterns, tokens };

struct reading {
    const char *              text;
    kind                      waits    = kind::plain;
    std::vector<const char *> triggers = {};
    const char *              begin    = "";
};

const std::vector<reading> readings = {
    { "root ::= [a-z]+ | \"x\" [^a-m]*" },
    { "root ::= \"\\t\" | \"a\\n\" | [\\t \\n] [b\\t]+" },
    { "root ::= \"a\\-b\" | [a\\-c]+" },
    { "root ::= \"\\d\" [a-c]" },
    { "root ::= ~ \"a\"" },
    { "root ::= . . [^q]" },
    { "root ::= (\"a\" | \"the \"){0,150}" },
    { "root ::= \"a\"{0,3000} \"b\"" },
    { "root ::= [ a-z]{2,40} \".\"" },
    { "root ::= <[260]> [a-z] | !<[261]> [a-m]" },
    { "root ::= [\xc3\xa9-\xc3\xbf] . | [^a-y] [\xe2\x82\xac]" },
    { "root ::= \"(\" root \")\" | ([a-f] | \"x\" |) \"y\"? # end\n" },
    { "root ::= \"a\"{2001,2500} \"b\"" },
    { "root ::= ([a-m]{1,50} \".\"){1,60}" },
    { "root ::= (\"a\"" },
    { "root ::= b" },
    { "root ::= root \"a\" | \"b\"" },
    { "root ::= (\"a\"?)* \"b\"" },
    { "" },
    { "root ::= [a-z ]+", kind::words, { "the", "a.", "in" }, "lording" },
    { "root ::= \"nd\" [a-z ]+ | \"d\" [of ]+", kind::patterns, { "(n)[a-z]*(d)" }, "land of" },
    { "root ::= [a-f]+", kind::patterns, { "N", "[e]" }, "nde" },
    { "root ::= [a-z ]+", kind::patterns, { "^[a-z]*(an)$" }, "an land" },
    { "root ::= [a-z ]+ \".\"", kind::patterns, { "and", "of" }, "so and so of" },
    { "root ::= [a-z ]*", kind::patterns, { "(" }, "a" },
    { "root ::= \"b\" [a-m]+ | [n-z ]+ \".\"", kind::tokens, {}, "ab" },
};

std::string piece_of(const llama_vocab * vocab, llama_token token) {
    char          text[256];
    const int32_t n = llama_token_to_piece(vocab, token, text, sizeof(text), 0, true);
    return std::string(text, static_cast<size_t>(n < 0 ? 0 : n));
}

// Returns the tokens that spell the text, one for each character.
std::vector<llama_token> spelt(const llama_vocab * vocab, const std::string & text) {
    std::vector<llama_token> tokens;
    for (const char character : text) {
        for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); token++) {
            if (piece_of(vocab, token) == std::string(1, character)) {
                tokens.push_back(token);
                break;
            }
        }
    }
    return tokens;
}

sampler_ptr make(const llama_vocab * vocab, const reading & one) {
    std::vector<const char *> triggers = one.triggers;
    const std::vector<llama_token> tokens =
        one.waits == kind::tokens ? spelt(vocab, "b") : std::vector<llama_token>();
    if (one.waits == kind::plain) {
        return sampler_ptr(llama_sampler_init_grammar(vocab, one.text, "root"));
    }
    if (one.waits == kind::words) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
        return sampler_ptr(llama_sampler_init_grammar_lazy(vocab, one.text, "root", triggers.data(),
                                                           triggers.size(), nullptr, 0));
#pragma GCC diagnostic pop
    }
    return sampler_ptr(llama_sampler_init_grammar_lazy_patterns(
        vocab, one.text, "root", triggers.data(), triggers.size(), tokens.data(), tokens.size()));
}

// Returns the tokens that are allowed, and adds their number and a hash of them to `out`.
std::vector<llama_token> allowed(llama_sampler * grammar, const llama_vocab * vocab,
                                 std::string & out) {
    std::vector<llama_token_data> data;
    for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); token++) {
        data.push_back({ token, 1.0f, 0.0f });
    }
    llama_token_data_array all = { data.data(), data.size(), -1, false };
    llama_sampler_apply(grammar, &all);
    std::vector<llama_token> left;
    uint64_t                 sum = 14695981039346656037u;
    for (const llama_token_data & one : data) {
        if (one.logit != -INFINITY) {
            sum = (sum ^ static_cast<uint64_t>(one.id)) * 1099511628211u;
            left.push_back(one.id);
        }
    }
    char told[40];
    std::snprintf(told, sizeof(told), " %zu/%08llx", left.size(),
                  static_cast<unsigned long long>(sum & 0xffffffffu));
    out += told;
    return left;
}

void follow(const llama_vocab * vocab, const reading & one, std::string & out) {
    sampler_ptr grammar = make(vocab, one);
    if (!grammar) {
        out += " NULL";
        return;
    }
    uint64_t random = 7;
    for (int round = 0; round < 2; round++) {
        std::vector<llama_token> left = allowed(grammar.get(), vocab, out);
        for (const llama_token token : spelt(vocab, one.begin)) {
            llama_sampler_accept(grammar.get(), token);
            left = allowed(grammar.get(), vocab, out);
        }
        // A walk through a grammar with counts goes past the largest count.
        const bool counts = std::string(one.text).find("{0,") != std::string::npos;
        for (int i = 0; i < (counts ? 3100 : 12); i++) {
            std::vector<llama_token> next;
            for (const llama_token token : left) {
                const bool is_next = !counts || piece_of(vocab, token) == "a";
                if (!llama_vocab_is_eog(vocab, token) && is_next) {
                    next.push_back(token);
                }
            }
            if (next.empty()) {
                break;
            }
            random = random * 6364136223846793005u + 1442695040888963407u;
            llama_sampler_accept(grammar.get(), next[(random >> 33) % next.size()]);
            if (!counts || i % 50 == 49) {
                left = allowed(grammar.get(), vocab, out);
            }
            if (i == 5) {
                grammar.reset(llama_sampler_clone(grammar.get()));
            }
        }
        llama_sampler_reset(grammar.get());
    }
}

std::string all_readings(const llama_vocab * vocab) {
    std::string out;
    for (const reading & one : readings) {
        out += one.text;
        out += ':';
        try {
            follow(vocab, one, out);
        } catch (const std::exception & thrown) {
            out += std::string(" caught: ") + thrown.what();
        }
        out += '\n';
    }
    return out;
}

} // namespace

int main(int argc, char ** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: readings MODEL [N_THREADS]\n");
        return 1;
    }
    llama_backend_init();
    llama_model * model = load_vocabulary(argv[1]);
    if (model == nullptr) {
        std::fprintf(stderr, "readings: the model cannot be loaded\n");
        return 1;
    }
    const llama_vocab *      vocab     = llama_model_get_vocab(model);
    const int                n_threads = argc > 2 ? std::atoi(argv[2]) : 1;
    std::vector<std::string> out(static_cast<size_t>(n_threads));
    std::vector<std::thread> threads;
    for (std::string & said : out) {
        threads.emplace_back([&said, vocab] { said = all_readings(vocab); });
    }
    for (std::thread & thread : threads) {
        thread.join();
    }
    for (const std::string & said : out) {
        std::fputs(said.c_str(), stdout);
    }
    llama_model_free(model);
    return 0;
}
