// The parts of llama.cpp's C interface that pass large structs by value, after plain functions,
// and a few results of the C++ standard library that our tests compare with.

#include "llama.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <regex>
#include <vector>

namespace {

// One llama_decode call takes at most this many tokens; vendor_llama_decode splits longer input.
constexpr uint32_t max_batch = 512;

// An iterator over a text that throws once all such iterators of its thread have been read and
// compared a given number of times.
struct counted_char {
    struct too_often {};

    using iterator_category = std::bidirectional_iterator_tag;
    using value_type        = char;
    using difference_type   = ptrdiff_t;
    using pointer           = const char *;
    using reference         = const char &;

    static thread_local size_t left;

    const char * at = nullptr;

    static void count() {
        if (left == 0) {
            throw too_often{};
        }
        left--;
    }

    reference operator*() const {
        count();
        return *at;
    }
    counted_char & operator++() {
        ++at;
        return *this;
    }
    counted_char operator++(int) { return {at++}; }
    counted_char & operator--() {
        --at;
        return *this;
    }
    counted_char operator--(int) { return {at--}; }
    bool operator==(const counted_char & other) const {
        count();
        return at == other.at;
    }
    bool operator!=(const counted_char & other) const { return !(*this == other); }
};

thread_local size_t counted_char::left = 0;

} // namespace

extern "C" {

llama_model * vendor_llama_model_load(const char * path) {
    llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = 0;
    return llama_model_load_from_file(path, params);
}

llama_model * vendor_llama_vocabulary_load(const char * path) {
    llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = 0;
    params.vocab_only   = true;
    return llama_model_load_from_file(path, params);
}

// Returns the built-in grammar; null if its constructor fails or throws.
llama_sampler * vendor_llama_grammar(const llama_vocab * vocab, const char * text,
                                     const char * root, bool lazy, const char ** patterns,
                                     size_t n_patterns, const llama_token * tokens,
                                     size_t n_tokens) {
    try {
        if (!lazy) {
            return llama_sampler_init_grammar(vocab, text, root);
        }
        return llama_sampler_init_grammar_lazy_patterns(vocab, text, root, patterns, n_patterns,
                                                        tokens, n_tokens);
    } catch (...) {
        return nullptr;
    }
}

// Returns the built-in grammar with words as triggers, by the deprecated constructor; null if that
// fails or throws.
llama_sampler * vendor_llama_grammar_words(const llama_vocab * vocab, const char * text,
                                           const char * root, const char ** words, size_t n_words,
                                           const llama_token * tokens, size_t n_tokens) {
    try {
        return llama_sampler_init_grammar_lazy(vocab, text, root, words, n_words, tokens, n_tokens);
    } catch (...) {
        return nullptr;
    }
}

// Accepts the token. Returns false if that throws.
bool vendor_llama_sampler_accept(llama_sampler * smpl, llama_token token) {
    try {
        llama_sampler_accept(smpl, token);
        return true;
    } catch (...) {
        return false;
    }
}

llama_context * vendor_llama_context_new(llama_model * model, uint32_t n_ctx, int32_t n_threads) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx           = n_ctx;
    params.n_batch         = max_batch;
    params.n_ubatch        = max_batch;
    params.n_seq_max       = 1;
    params.n_threads       = n_threads;
    params.n_threads_batch = n_threads;
    params.no_perf         = true;
    return llama_init_from_model(model, params);
}

// Appends the tokens to sequence 0. Returns the first code of llama_decode that is not 0; 0 if
// there is none.
int32_t vendor_llama_decode(llama_context * ctx, const int32_t * tokens, int32_t n_tokens) {
    std::vector<llama_token> input(tokens, tokens + n_tokens);
    const int32_t step = static_cast<int32_t>(llama_n_batch(ctx));
    for (int32_t start = 0; start < n_tokens; start += step) {
        const int32_t n = std::min(step, n_tokens - start);
        const int32_t code = llama_decode(ctx, llama_batch_get_one(input.data() + start, n));
        if (code != 0) {
            return code;
        }
    }
    return 0;
}

// Writes n uniform doubles in [0, 1) from a Mersenne Twister with this seed.
void vendor_std_uniform_double(uint32_t seed, size_t n, double * out) {
    std::mt19937 generator(seed);
    std::uniform_real_distribution<double> uniform(0.0, 1.0);
    std::generate_n(out, n, [&] { return uniform(generator); });
}

// Returns a std::regex; null if its constructor throws.
void * vendor_std_regex(const char * pattern, size_t n) {
    try {
        return new std::regex(pattern, n);
    } catch (...) {
        return nullptr;
    }
}

void vendor_std_regex_free(void * regex) {
    delete static_cast<std::regex *>(regex);
}

// Returns the number of groups, with the whole match as the first; 0 if there is no match. Writes
// the beginning and the end of each group (-1 for a group that takes no part) to out, which has
// room for n_out numbers. Groups for which there is no room are not written.
size_t vendor_std_regex_find(const void * regex, const char * text, size_t n, bool whole,
                             int64_t * out, size_t n_out) {
    const std::regex & pattern = *static_cast<const std::regex *>(regex);
    std::cmatch match;
    if (!(whole ? std::regex_match(text, text + n, match, pattern)
                : std::regex_search(text, text + n, match, pattern))) {
        return 0;
    }
    for (size_t i = 0; i < match.size() && 2 * i + 1 < n_out; i++) {
        out[2 * i]     = match[i].matched ? match.position(i) : -1;
        out[2 * i + 1] = match[i].matched ? match.position(i) + match.length(i) : -1;
    }
    return match.size();
}

// Returns true if the search of vendor_std_regex_find ends before its iterators were read and
// compared more than most times. For some patterns std::regex would not end in a reasonable time.
bool vendor_std_regex_ends(const void * regex, const char * text, size_t n, bool whole,
                           size_t most) {
    const std::regex & pattern = *static_cast<const std::regex *>(regex);
    counted_char::left = most;
    try {
        std::match_results<counted_char> match;
        const counted_char begin{text}, end{text + n};
        if (whole) {
            std::regex_match(begin, end, match, pattern);
        } else {
            std::regex_search(begin, end, match, pattern);
        }
        return true;
    } catch (counted_char::too_often) {
        return false;
    }
}

// Writes the order in which std::sort leaves the indices of n keys, larger keys first.
void vendor_std_sort(const float * keys, size_t n, uint32_t * out) {
    std::iota(out, out + n, 0u);
    std::sort(out, out + n, [&](uint32_t a, uint32_t b) { return keys[a] > keys[b]; });
}

// Writes the order in which std::partial_sort leaves the indices of n keys, larger keys first,
// including those after the first k.
void vendor_std_partial_sort(const float * keys, size_t n, size_t k, uint32_t * out) {
    std::iota(out, out + n, 0u);
    std::partial_sort(out, out + k, out + n,
                      [&](uint32_t a, uint32_t b) { return keys[a] > keys[b]; });
}

// n keys on which std::sort runs out of levels and takes to its heap: an adversary that fixes a
// key only when a comparison asks for it, and then as far back as it can (McIlroy 1999).
void vendor_std_sort_killer(size_t n, float * keys) {
    const float  open = -static_cast<float>(n) - 1.0f;
    float        next = 0.0f;
    uint32_t     candidate = 0;
    std::fill(keys, keys + n, open);
    std::vector<uint32_t> order(n);
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
        if (keys[a] == open && keys[b] == open) {
            keys[a == candidate ? a : b] = next;
            next -= 1.0f;
        }
        if (keys[a] == open) {
            candidate = a;
        } else if (keys[b] == open) {
            candidate = b;
        }
        return keys[a] > keys[b];
    });
}

} // extern "C"
