// Walks through grammars, plain and lazy, with llama.h alone. The tests run it with the built-in
// samplers and with ours, and compare what it prints: the tokens that are allowed after each text,
// the exceptions with their messages, and the rejected grammars.
//
//   grammars MODEL OTHER_MODEL
//   grammars hostile MODEL        tries grammars on which the built-in hangs or aborts
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "llama.h"

namespace {

[[noreturn]] void fail(const char * what) {
    std::fprintf(stderr, "grammars: %s\n", what);
    std::exit(1);
}

struct model_free {
    void operator()(llama_model * model) const { llama_model_free(model); }
};
struct sampler_free {
    void operator()(llama_sampler * sampler) const { llama_sampler_free(sampler); }
};
using model_ptr   = std::unique_ptr<llama_model, model_free>;
using sampler_ptr = std::unique_ptr<llama_sampler, sampler_free>;

model_ptr load(const char * path) {
    llama_model_params params = llama_model_default_params();
    params.vocab_only         = true;
    model_ptr model(llama_model_load_from_file(path, params));
    if (!model) {
        fail("the model cannot be loaded");
    }
    return model;
}

const llama_vocab * vocab_of(const model_ptr & model) { return llama_model_get_vocab(model.get()); }

std::string piece_of(const llama_vocab * vocab, llama_token token) {
    char          text[256];
    const int32_t n = llama_token_to_piece(vocab, token, text, sizeof(text), 0, true);
    return std::string(text, static_cast<size_t>(n < 0 ? 0 : n));
}

// Returns the token whose text is `text`. Ends the program if there is none.
llama_token token_of(const llama_vocab * vocab, const std::string & text) {
    for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); token++) {
        if (piece_of(vocab, token) == text) {
            return token;
        }
    }
    fail("there is no token of that text");
}

struct generator {
    uint64_t state;

    uint64_t below(uint64_t n) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return (state >> 33) % n;
    }
};

struct array {
    std::vector<llama_token_data> data;
    llama_token_data_array        all;

    explicit array(const std::vector<llama_token> & tokens) {
        for (const llama_token token : tokens) {
            data.push_back({ token, static_cast<float>(token % 17) - 3.5f, 0.0f });
        }
        all = { data.data(), data.size(), -1, false };
    }
};

std::vector<llama_token> whole(const llama_vocab * vocab) {
    std::vector<llama_token> tokens;
    for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); token++) {
        tokens.push_back(token);
    }
    return tokens;
}

// Returns a hash of an array that the grammar has filtered: of its ids, the bits of its logits, the
// selected index and whether it is sorted.
uint64_t digest(const llama_token_data_array & left) {
    uint64_t sum = 14695981039346656037u;
    auto     mix = [&](uint64_t value) { sum = (sum ^ value) * 1099511628211u; };
    mix(left.size);
    mix(static_cast<uint64_t>(left.selected));
    mix(left.sorted);
    for (size_t i = 0; i < left.size; i++) {
        uint32_t bits;
        std::memcpy(&bits, &left.data[i].logit, sizeof(bits));
        mix(static_cast<uint64_t>(left.data[i].id));
        mix(bits);
    }
    return sum;
}

// Applies the grammar to all tokens, in order and shuffled, to a few, and to one, and prints what
// is left. Returns the tokens that are allowed.
std::vector<llama_token> look(llama_sampler * grammar, const llama_vocab * vocab,
                              generator & random) {
    std::vector<llama_token> tokens = whole(vocab);
    array                    all(tokens);
    llama_sampler_apply(grammar, &all.all);
    std::vector<llama_token> allowed;
    for (const llama_token_data & candidate : all.data) {
        if (candidate.logit != -INFINITY) {
            allowed.push_back(candidate.id);
        }
    }
    for (size_t i = tokens.size() - 1; i > 0; i--) {
        std::swap(tokens[i], tokens[random.below(i + 1)]);
    }
    array shuffled(tokens);
    llama_sampler_apply(grammar, &shuffled.all);
    tokens.resize(1 + random.below(60));
    array few(tokens);
    llama_sampler_apply(grammar, &few.all);
    array one({ tokens[0] });
    llama_sampler_apply(grammar, &one.all);
    std::printf(" %zu/%016llx/%016llx/%016llx/%d", allowed.size(),
                static_cast<unsigned long long>(digest(all.all)),
                static_cast<unsigned long long>(digest(shuffled.all)),
                static_cast<unsigned long long>(digest(few.all)), one.data[0].logit == -INFINITY);
    return allowed;
}

// Makes a call, and prints the message of any exception.
void attempt(const char * what, const std::function<void()> & call) {
    try {
        call();
        std::printf("%s: nothing thrown\n", what);
    } catch (const std::exception & thrown) {
        std::printf("%s: caught: %s\n", what, thrown.what());
    }
}

struct grammar_text {
    const char *              name;
    const char *              text;
    std::vector<const char *> patterns;
    std::vector<const char *> token_texts;
    // The tokens with which a walk of a lazy grammar starts. NULL if the grammar is not lazy.
    const char *              begin;
};

const char * json =
    "root ::= object\n"
    "object ::= \"{\" ws (pair (\",\" ws pair)*)? \"}\"\n"
    "pair ::= string \":\" ws value\n"
    "value ::= object | string | number | \"[\" ws (value (\",\" ws value)*)? \"]\"\n"
    "string ::= \"\\\"\" [^\"\\\\\\x00-\\x1f]* \"\\\"\" ws\n"
    "number ::= \"-\"? [0-9]+ ws\n"
    "ws ::= [ \\n]{0,3}\n";

std::vector<grammar_text> grammars() {
    return {
        { "json", json, {}, {}, nullptr },
        { "phrase", "root ::= \" the\" [a-z ]* (\" and\" | \" of\" [^,]+)", {}, {}, nullptr },
        { "tokens", "root ::= <[260]> [a-z]{2,9} !<[300]> | \"x\"", {}, {}, nullptr },
        { "nothing", "", {}, {}, nullptr },
        { "lazy word", "root ::= \"the\" [a-z ]+ \".\"", { "the" }, {}, " LORD said in the" },
        { "lazy group",
          "root ::= \"e\" [a-z ]+ \".\"",
          { "and[\\s\\S]*?h(e)" },
          {},
          " land LORD of th" },
        { "lazy pattern of all",
          "root ::= [^.]+ \".\"",
          { "^[\\s\\S]*?( of)[\\s\\S]*$", "never" },
          {},
          " land LORD in" },
        { "lazy token", "root ::= \" of\" [a-z ]+ \".\"", {}, { " of" }, " LORD said" },
    };
}

// Makes the grammar with the constructor of its kind.
sampler_ptr make(const llama_vocab * vocab, const grammar_text & grammar, bool words = false) {
    if (grammar.begin == nullptr) {
        return sampler_ptr(llama_sampler_init_grammar(vocab, grammar.text, "root"));
    }
    std::vector<llama_token> tokens;
    for (const char * text : grammar.token_texts) {
        tokens.push_back(token_of(vocab, text));
    }
    std::vector<const char *> patterns = grammar.patterns;
    if (words) {
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#endif
        return sampler_ptr(llama_sampler_init_grammar_lazy(vocab, grammar.text, "root",
                                                           patterns.data(), patterns.size(),
                                                           tokens.data(), tokens.size()));
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
    }
    return sampler_ptr(llama_sampler_init_grammar_lazy_patterns(vocab, grammar.text, "root",
                                                                patterns.data(), patterns.size(),
                                                                tokens.data(), tokens.size()));
}

// Returns the tokens of a text, each the longest that fits.
std::vector<llama_token> tokens_of(const llama_vocab * vocab, std::string text) {
    std::vector<llama_token> tokens;
    while (!text.empty()) {
        llama_token best   = -1;
        size_t      length = 0;
        for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); token++) {
            const std::string piece = piece_of(vocab, token);
            if (piece.size() > length && text.compare(0, piece.size(), piece) == 0) {
                best   = token;
                length = piece.size();
            }
        }
        if (best < 0) {
            fail("a text has no tokens");
        }
        tokens.push_back(best);
        text.erase(0, length);
    }
    return tokens;
}

void walk(const llama_vocab * vocab, const grammar_text & text, uint64_t seed, bool words) {
    generator   random{ seed };
    sampler_ptr grammar = make(vocab, text, words);
    sampler_ptr other   = make(vocab, text, words);
    std::printf("%s%s, seed %llu:", text.name, words ? " as word" : "",
                static_cast<unsigned long long>(seed));
    if (!grammar || !other) {
        std::printf(" refused\n");
        return;
    }
    std::printf(" %s", llama_sampler_name(grammar.get()));
    std::vector<llama_token> first;
    if (text.begin != nullptr) {
        first = tokens_of(vocab, text.begin);
    }
    for (size_t i = 0; i < 30; i++) {
        const std::vector<llama_token> allowed = look(grammar.get(), vocab, random);
        if (i == 7) {
            grammar.reset(llama_sampler_clone(grammar.get()));
        }
        if (i == 11) {
            llama_sampler_copy(grammar.get(), other.get());
            std::swap(grammar, other);
        }
        if (i == 19) {
            llama_sampler_reset(grammar.get());
            continue;
        }
        if (allowed.empty()) {
            break;
        }
        const llama_token token =
            i < first.size() ? first[i] : allowed[random.below(allowed.size())];
        if (llama_vocab_is_eog(vocab, token)) {
            llama_sampler_reset(other.get());
            std::swap(grammar, other);
            continue;
        }
        try {
            llama_sampler_accept(grammar.get(), token);
        } catch (const std::exception & thrown) {
            // A trigger was found where the grammar cannot start.
            std::printf(" %d, caught: %s", token, thrown.what());
            llama_sampler_reset(grammar.get());
        }
    }
    std::printf("\n");
}

// Checks tokens that the grammar does not allow: each must throw, and a reset must restore the
// grammar.
void throws(const llama_vocab * vocab, const grammar_text & text,
            const std::vector<std::string> & before, const std::string & bad) {
    sampler_ptr grammar = make(vocab, text);
    std::printf("%s throws\n", text.name);
    for (int round = 0; round < 2; round++) {
        for (const std::string & piece : before) {
            llama_sampler_accept(grammar.get(), token_of(vocab, piece));
        }
        // An invalid token changes nothing.
        attempt("no token",
                [&] { llama_sampler_accept(grammar.get(), llama_vocab_n_tokens(vocab)); });
        attempt("-1", [&] { llama_sampler_accept(grammar.get(), -1); });
        attempt("refused", [&] { llama_sampler_accept(grammar.get(), token_of(vocab, bad)); });
        attempt("refused again",
                [&] { llama_sampler_accept(grammar.get(), token_of(vocab, " the")); });
        sampler_ptr clone(llama_sampler_clone(grammar.get()));
        attempt("of the clone",
                [&] { llama_sampler_accept(clone.get(), token_of(vocab, " and")); });
        llama_sampler_reset(grammar.get());
        generator random{ 7 };
        look(grammar.get(), vocab, random);
        std::printf("\n");
        // A chain passes the exception on.
        sampler_ptr chain(llama_sampler_chain_init(llama_sampler_chain_default_params()));
        llama_sampler_chain_add(chain.get(), make(vocab, text).release());
        for (const std::string & piece : before) {
            llama_sampler_accept(chain.get(), token_of(vocab, piece));
        }
        attempt("of the chain", [&] { llama_sampler_accept(chain.get(), token_of(vocab, bad)); });
    }
}

void all_throws(const llama_vocab * vocab) {
    const std::vector<grammar_text> all = grammars();
    throws(vocab, all[0], { "{" }, " the");
    throws(vocab, all[1], { " the", "in" }, ",");
    // Grammars that start at the token, within it, and several tokens before it.
    throws(vocab, { "wrong token", "root ::= \"x\"", {}, { " of" }, "" }, { "in" }, " of");
    throws(vocab, { "wrong rest", "root ::= \"x\"", { "sh(all)" }, {}, "" }, { "in" }, " shall");
    throws(vocab, { "wrong tail", "root ::= \"o\" \"x\"", { "(o)[\\s\\S]*nd" }, {}, "" },
           { " of", "in" }, "nd");
    throws(vocab, { "wrong end", "root ::= \" of\" \"in\" \"x\"", { " of[\\s\\S]*nd" }, {}, "" },
           { " of", "in" }, "nd");
    throws(vocab, { "then wrong", "root ::= \"all\" [a-z]+", { "sh(all)" }, {}, "" },
           { " shall", "in" }, ",");
}

void refused(const llama_vocab * vocab) {
    for (const char * text : { "root ::=", "root ::= (\"a\"", "root ::= b", "other ::= \"a\"",
                               "root ::= root \"a\"", "root ::= \"a\"{2001}" }) {
        std::printf("%s: %d\n", text, make(vocab, { "refused", text, {}, {}, nullptr }) == nullptr);
    }
    for (const char * pattern : { "(", "[z-a]", "a{2,1}", "\\1" }) {
        attempt(pattern, [&] {
            std::printf("%d\n", make(vocab, { "refused", "root ::= \"a\"", { pattern }, {}, "" }) ==
                                    nullptr);
        });
    }
}

// Loads another model at the same address.
void reloaded(const char * path, const char * other) {
    const void * at = nullptr;
    size_t       n  = 0;
    for (int i = 0; i < 6; i++) {
        const model_ptr     model = load(i % 2 == 0 ? path : other);
        const llama_vocab * vocab = vocab_of(model);
        n += vocab == at;
        at = vocab;
        for (const char * text : { "root ::= \"nd\" | \"x\"", "root ::= [a-m]+ \"n\"" }) {
            sampler_ptr grammar = make(vocab, { "", text, {}, {}, nullptr });
            generator   random{ 1 };
            look(grammar.get(), vocab, random);
        }
        std::printf("\n");
    }
    std::fprintf(stderr, "%zu models lay where another was\n", n);
}

// Runs the cases that only our samplers survive.
void hostile(const llama_vocab * vocab) {
    const std::string deep = "root ::= " + std::string(100000, '(');
    for (const char * text :
         { "root ::= \"a\"{3,1}", "a ::= root{0} \"x\"",
           "root ::= a root \"z\" | \"x\"\na ::= b\nb ::= \"\" | \"y\"\n", deep.c_str() }) {
        std::printf("%d\n", make(vocab, { "hostile", text, {}, {}, nullptr }) == nullptr);
    }
    // The end comes too early: after that, only the end is allowed.
    sampler_ptr grammar = make(vocab, { "end", "root ::= \"and\" \"x\"", {}, {}, nullptr });
    llama_sampler_accept(grammar.get(), llama_vocab_eos(vocab));
    llama_sampler_accept(grammar.get(), llama_vocab_eos(vocab));
    array all(whole(vocab));
    llama_sampler_apply(grammar.get(), &all.all);
    size_t n = 0;
    for (const llama_token_data & candidate : all.data) {
        n += candidate.logit != -INFINITY;
        if (candidate.logit != -INFINITY && !llama_vocab_is_eog(vocab, candidate.id)) {
            fail("something else than the end is allowed");
        }
    }
    std::printf("%d\n", n > 0);
    // The same after an exception, where the built-in would end the process.
    llama_sampler_reset(grammar.get());
    attempt("refused", [&] { llama_sampler_accept(grammar.get(), token_of(vocab, " of")); });
    const llama_token alone = token_of(vocab, "nd");
    array             one({ alone });
    llama_sampler_apply(grammar.get(), &one.all);
    std::printf("%d\n", one.data[0].id == alone && one.data[0].logit == -INFINITY);
    llama_sampler_accept(grammar.get(), llama_vocab_eos(vocab));
}

int n_allowed(const llama_vocab * vocab, llama_sampler * grammar) {
    array all(whole(vocab));
    llama_sampler_apply(grammar, &all.all);
    int n = 0;
    for (const llama_token_data & candidate : all.data) {
        n += candidate.logit != -INFINITY;
    }
    return n;
}

// Makes a grammar so large that our sampler cannot find out within its limits which tokens may come
// first, so that the built-in is used. Prints how many tokens are allowed.
void large(const llama_vocab * vocab) {
    std::string text = "root ::= \"z\"";
    for (int i = 0; i < 1000; i++) {
        const std::string counts[] = { std::to_string(i % 9 + 2), std::to_string(i % 7 + 2) };
        text += " | ([^\\n]{1," + counts[0] + "} \",\"?){1," + counts[1] + "} \"\\n";
        text += std::to_string(i) + "\"";
    }
    sampler_ptr grammar = make(vocab, { "large", text.c_str(), {}, {}, nullptr });
    std::printf("%d\n", n_allowed(vocab, grammar.get()));
}

// Makes grammars that name tokens, as the first grammars of the process. Prints how many tokens the
// built-in allows in each.
void tokens(const llama_vocab * vocab) {
    const char * const texts[] = { "root ::= !<[5]>*", "root ::= <[5]> [a-z]+",
                                   "root ::= ([a-z] | <[5]>)+" };
    for (const char * text : texts) {
        sampler_ptr grammar = make(vocab, { "tokens", text, {}, {}, nullptr });
        std::printf("%d\n", n_allowed(vocab, grammar.get()));
    }
}

} // namespace

int main(int argc, char ** argv) {
    if (argc != 3) {
        fail("usage: grammars MODEL OTHER_MODEL, or grammars hostile MODEL, or large, or tokens");
    }
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    llama_backend_init();
    const std::pair<const char *, void (*)(const llama_vocab *)> modes[] = {
        { "hostile", hostile },
        { "large", large },
        { "tokens", tokens },
    };
    for (const auto & [name, body] : modes) {
        if (std::strcmp(argv[1], name) == 0) {
            const model_ptr model = load(argv[2]);
            body(vocab_of(model));
            return 0;
        }
    }
    {
        const model_ptr     model = load(argv[1]);
        const llama_vocab * vocab = vocab_of(model);
        for (const grammar_text & text : grammars()) {
            for (uint64_t seed = 1; seed <= 3; seed++) {
                walk(vocab, text, seed, false);
            }
            if (text.begin != nullptr && text.patterns.size() == 1) {
                walk(vocab, text, 4, true);
            }
        }
        all_throws(vocab);
        refused(vocab);
    }
    reloaded(argv[1], argv[2]);
    return 0;
}
