// Common parts of the programs that run a model: opening it, and finding tokens by their texts.
#ifndef OPENED_H
#define OPENED_H

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "llama.h"

[[noreturn]] inline void fail(const std::string & what) {
    std::fprintf(stderr, "%s\n", what.c_str());
    std::exit(1);
}

struct model_free {
    void operator()(llama_model * model) const { llama_model_free(model); }
};
struct context_free {
    void operator()(llama_context * context) const { llama_free(context); }
};

// A model, and a context of `n_ctx` tokens that computes on one thread. Also silences llama.cpp's
// log.
class opened {
  public:
    opened(const char * path, uint32_t n_ctx) {
        llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
        llama_backend_init();
        llama_model_params model_params = llama_model_default_params();
        model_params.n_gpu_layers       = 0;
        model.reset(llama_model_load_from_file(path, model_params));
        if (!model) {
            fail("the model cannot be loaded");
        }
        llama_context_params context_params = llama_context_default_params();
        context_params.n_ctx                = n_ctx;
        context_params.n_threads            = 1;
        context_params.n_threads_batch      = 1;
        owned.reset(llama_init_from_model(model.get(), context_params));
        if (!owned) {
            fail("no context");
        }
    }

    llama_context *     context() const { return owned.get(); }
    const llama_vocab * vocab() const { return llama_model_get_vocab(model.get()); }

  private:
    std::unique_ptr<llama_model, model_free>     model;
    std::unique_ptr<llama_context, context_free> owned;
};

inline void decode(llama_context * context, llama_token * tokens, size_t n) {
    if (llama_decode(context, llama_batch_get_one(tokens, static_cast<int32_t>(n))) != 0) {
        fail("llama_decode failed");
    }
}

// Returns the tokens of a prompt.
inline std::vector<llama_token> tokenize(const llama_vocab * vocab, const std::string & text) {
    std::vector<llama_token> tokens(text.size() + 8);
    const int32_t n =
        llama_tokenize(vocab, text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                       static_cast<int32_t>(tokens.size()), true, false);
    if (n <= 0) {
        fail("the prompt has no tokens");
    }
    tokens.resize(static_cast<size_t>(n));
    return tokens;
}

// Returns the token whose text is `text`. Ends the program if there is none.
inline llama_token token_of(const llama_vocab * vocab, const std::string & text) {
    for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); token++) {
        char          piece[256];
        const int32_t n = llama_token_to_piece(vocab, token, piece, sizeof(piece), 0, true);
        if (n >= 0 && std::string(piece, static_cast<size_t>(n)) == text) {
            return token;
        }
    }
    fail("no token is \"" + text + "\"");
}

#endif
