// Samples with dead grammars through llama.cpp's own common_sampler_sample, which applies the
// grammar to just the token that it has drawn, and keeps the token if its logit is still finite. No
// token that a dead grammar forbids may be returned and accepted as if nothing were wrong.
//
//   dead_grammars MODEL
//
// It is compiled unchanged for the preload library, and also with llama_sieve_dropin.h, with which
// nothing throws.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "of_common.h"
#include "opened.h"
#include "sampling.h"

namespace {

#ifdef LLAMA_SIEVE_DROPIN_H
constexpr bool throws = false;
#else
constexpr bool throws = true;
#endif

const llama_vocab * vocab;

bool is_end(llama_token token) { return llama_vocab_is_eog(vocab, token); }

// Accepts a token. Returns true if that threw an exception.
bool accept(const sampler_ptr & sampler, llama_token token) {
    try {
        common_sampler_accept(sampler.get(), token, true);
        return false;
    } catch (const std::exception & thrown) {
        const std::string expected = "Unexpected empty grammar stack after accepting piece: ";
        if (std::string(thrown.what()).compare(0, expected.size(), expected) != 0) {
            fail(std::string("another exception: ") + thrown.what());
        }
        return true;
    }
}

// Returns the rule `name` with `n` alternatives, each of which is its index between `before` and
// `behind`.
std::string alternatives(const char * name, int n, const char * before, const char * behind) {
    std::string text = std::string(name) + " ::= ";
    for (int i = 0; i < n; i++) {
        text += (i == 0 ? "" : " | ") + std::string(before) + std::to_string(i) + behind;
    }
    return text + "\n";
}

struct state {
    const char *              name;
    std::string               grammar;
    // The trigger of a lazy grammar.
    const char *              pattern;
    // The tokens after which the grammar is dead; accepting the last one may throw.
    std::vector<llama_token>  tokens;
    // True if no token is allowed afterwards, not even one that ends the generation.
    bool                      cut_off;
};

std::vector<state> states() {
    // Where p begins, there are 360,000 stacks.
    const std::string beyond = "root ::= \"a\" | \"b\" \"c\" p\n" +
                               alternatives("p", 600, "q \"", "\"") +
                               alternatives("q", 600, "\"c", "\"");
    const llama_token a = token_of(vocab, "a"), b = token_of(vocab, "b"), c = token_of(vocab, "c");
    // Each alternation doubles the number of ways to reach the back-reference.
    std::string pattern = "(bc)";
    for (int i = 0; i < 40; i++) {
        pattern += "(?:a|a)";
    }
    static const std::string search = pattern + "\\1";
    std::vector<llama_token> searched = { b, c };
    searched.insert(searched.end(), 40, a);
    const std::string xy = "root ::= \"x\" \"y\"";
    return {
        { "limit", beyond, nullptr, { b, c }, true },
        // Fails when the mask is computed.
        { "limit of a mask", beyond, nullptr, { b }, true },
        { "search", xy, search.c_str(), searched, true },
        { "token", xy, nullptr, { a }, false },
        { "end", xy, nullptr, { llama_vocab_eos(vocab) }, false },
    };
}

struct option_set {
    const char *                                         name;
    std::function<void(common_params_sampling & params)> set;
    bool                                                 end_banned;
};

std::vector<option_set> option_sets() {
    using P = common_params_sampling &;
    return {
        { "defaults", [](P) {}, false },
        { "top-k 1", [](P p) { p.top_k = 1; }, false },
        { "greedy", [](P p) { p.temp = 0.0f; }, false },
        { "mirostat", [](P p) { p.mirostat = 2; }, false },
        { "penalties", [](P p) { p.penalty_repeat = 1.2f; p.top_k = 0; }, false },
        { "end banned",
          [](P p) {
              for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); token++) {
                  if (is_end(token)) {
                      p.logit_bias.push_back({ token, -INFINITY });
                  }
              }
          },
          true },
    };
}

size_t n_forbidden, n_ends, n_thrown;

void follow(llama_context * context, const state & dead, const option_set & options,
            bool grammar_first) {
    const std::string name = std::string(dead.name) + ", " + options.name;
    common_params_sampling params;
    params.seed    = 7;
    params.grammar = { COMMON_GRAMMAR_TYPE_USER, dead.grammar };
    if (dead.pattern != nullptr) {
        params.grammar_lazy     = true;
        params.grammar_triggers = {
            { COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN, dead.pattern, LLAMA_TOKEN_NULL },
        };
    }
    options.set(params);
    sampler_ptr sampler(common_sampler_init(llama_get_model(context), params));
    if (!sampler) {
        fail("common_sampler_init returned NULL");
    }
    // Two calls, since the preload library only watches the first call with a chain.
    for (int i = 0; i < 2; i++) {
        common_sampler_sample(sampler.get(), context, -1, grammar_first);
    }
    bool thrown = false;
    for (const llama_token token : dead.tokens) {
        thrown = accept(sampler, token);
    }
    if (thrown != (throws && std::string(dead.name) == "token")) {
        fail(name + ": what is accepted last throws where it should not, or the reverse");
    }
    for (int i = 0; i < 6; i++) {
        if (i == 3) {
            sampler.reset(common_sampler_clone(sampler.get()));
        }
        const llama_token token =
            common_sampler_sample(sampler.get(), context, -1, grammar_first);
        thrown = accept(sampler, token);
        n_ends += is_end(token);
        n_forbidden += !is_end(token);
        n_thrown += thrown;
        if (!is_end(token) && !options.end_banned) {
            fail(name + ": a forbidden token came out");
        }
        if (thrown != (throws && (dead.cut_off || !is_end(token)))) {
            fail(name + ": token " + std::to_string(token) +
                 (thrown ? " was refused" : " was accepted"));
        }
    }
    for (const char * text : { "a", "x", " the" }) {
        if (accept(sampler, token_of(vocab, text)) != throws) {
            fail(name + ": \"" + text + "\" was accepted");
        }
    }
    if (accept(sampler, llama_vocab_eos(vocab)) != (throws && dead.cut_off)) {
        fail(name + ": the end");
    }
}

} // namespace

int main(int argc, char ** argv) {
    if (argc != 2) {
        fail("usage: dead_grammars MODEL");
    }
    const opened model(argv[1], 32);
    vocab             = model.vocab();
    llama_token begin = llama_vocab_bos(vocab);
    decode(model.context(), &begin, 1);
    for (const state & dead : states()) {
        for (const option_set & options : option_sets()) {
            if (options.end_banned && !throws) {
                continue;
            }
            for (const bool grammar_first : { false, true }) {
                follow(model.context(), dead, options, grammar_first);
            }
        }
    }
    std::printf("%zu ends, %zu forbidden tokens, %zu exceptions\n", n_ends, n_forbidden, n_thrown);
    return 0;
}
