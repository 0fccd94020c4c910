// Generates text with llama.cpp's default chain and penalties, for the pictures of a trace.
//
//   pictured MODEL PROMPT N_TOKENS
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llama.h"

enum { ROOM = 512 };

static void quiet(enum ggml_log_level level, const char * text, void * data) {
    (void) data;
    if (level == GGML_LOG_LEVEL_ERROR) {
        fputs(text, stderr);
    }
}

static struct llama_sampler * make_chain(const struct llama_vocab * vocab) {
    struct llama_sampler * chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    const int32_t          n     = llama_vocab_n_tokens(vocab);
    llama_sampler_chain_add(chain, llama_sampler_init_penalties(n, 64, 1.2f, 0.0f, 0.0f));
    llama_sampler_chain_add(chain, llama_sampler_init_top_k(40));
    llama_sampler_chain_add(chain, llama_sampler_init_top_p(0.9f, 1));
    llama_sampler_chain_add(chain, llama_sampler_init_min_p(0.1f, 1));
    llama_sampler_chain_add(chain, llama_sampler_init_temp(0.8f));
    llama_sampler_chain_add(chain, llama_sampler_init_dist(11));
    return chain;
}

int main(int argc, char ** argv) {
    if (argc != 4) {
        fputs("usage: pictured MODEL PROMPT N_TOKENS\n", stderr);
        return 2;
    }
    llama_log_set(quiet, NULL);
    struct llama_model * model =
        llama_model_load_from_file(argv[1], llama_model_default_params());
    if (model == NULL) {
        return 1;
    }
    struct llama_context * ctx = llama_init_from_model(model, llama_context_default_params());
    const struct llama_vocab * vocab = llama_model_get_vocab(model);
    llama_token tokens[ROOM];
    const char * prompt = argv[2];
    int32_t n = llama_tokenize(vocab, prompt, (int32_t) strlen(prompt), tokens, ROOM, true, false);
    if (ctx == NULL || n <= 0) {
        return 1;
    }
    struct llama_sampler * chain = make_chain(vocab);
    for (int i = atoi(argv[3]); i > 0; i--) {
        if (llama_decode(ctx, llama_batch_get_one(tokens, n)) != 0) {
            return 1;
        }
        tokens[0] = llama_sampler_sample(chain, ctx, -1);
        n = 1;
        char          piece[64];
        const int32_t length = llama_token_to_piece(vocab, tokens[0], piece, sizeof piece, 0, true);
        printf("%.*s", length > 0 ? length : 0, piece);
    }
    putchar('\n');
    llama_sampler_free(chain);
    llama_free(ctx);
    llama_model_free(model);
    return 0;
}
