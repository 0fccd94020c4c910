/* The two commonest uses of the sieve in C: a generation with one set of parameters, and one whose
 * parameters depend on the model's entropy.
 *
 * With an installed llama-sieve and an installed llama.cpp:
 *
 *     cc -std=c11 -O2 examples/sieve.c -o sieve $(pkg-config --cflags --libs llama_sieve llama)
 *
 * In the repository, with the llama.cpp that its tests use:
 *
 *     cargo build --release
 *     cc -std=c11 -O2 examples/sieve.c -o sieve \
 *         -Iinclude -Ltarget/release -Wl,-rpath,$PWD/target/release -lllama_sieve \
 *        $(cargo run -q --release -p vendor-llama-cpp --bin llama_flags)
 *
 *     ./sieve models/kjv-tiny.gguf plain "In the beginning" 42
 *     ./sieve models/kjv-tiny.gguf adaptive
 *
 * Arguments: model, "plain" or "adaptive", prompt (default "And the LORD said unto"), seed (default
 * 42). Wrong arguments: exit code 2. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llama.h"
#include "llama_sieve.h"

enum { N_TOKENS = 80, N_PROMPT = 512 };

typedef struct {
    struct llama_model *       model;
    const struct llama_vocab * vocab;
    struct llama_context *     context;
    llama_sieve *              sieve;
} generation;

static void log_errors_only(enum ggml_log_level level, const char * text, void * user) {
    (void) user;
    if (level == GGML_LOG_LEVEL_ERROR) {
        fputs(text, stderr);
    }
}

/* Appends tokens to the context, which then has the logits of the next token. */
static bool decode(generation * g, llama_token * tokens, int32_t n) {
    if (llama_decode(g->context, llama_batch_get_one(tokens, n)) != 0) {
        fprintf(stderr, "sieve: llama_decode failed\n");
        return false;
    }
    return true;
}

/* The first use: sampling and accepting in one call, directly from the context's logits. */
static llama_token plain(generation * g) {
    return llama_sieve_sample_ctx(g->sieve, g->context, -1);
}

/* The second use: inspect the distribution, choose parameters, sample, accept. */
static llama_token adaptive(generation * g) {
    const float * logits  = llama_get_logits_ith(g->context, -1);
    const int32_t n_vocab = llama_vocab_n_tokens(g->vocab);
    const float   entropy = llama_sieve_entropy(logits, n_vocab, 0);

    llama_sieve_params params = llama_sieve_default_params();
    if (entropy < 2.0f) { /* Certain: widen the search. */
        params.top_k       = 256;
        params.temperature = 1.5f;
        params.top_p       = 0.98f;
    } else if (entropy > 5.0f) { /* Flat: focus. */
        params.top_k       = 20;
        params.temperature = 0.5f;
        params.top_p       = 0.9f;
    }
    const int set = llama_sieve_set_params(g->sieve, &params); /* Keeps history and generator. */
    if (set < 0) {
        return set;
    }
    const llama_token token = llama_sieve_sample(g->sieve, logits, n_vocab);
    if (token >= 0) {
        llama_sieve_accept(g->sieve, token);
    }
    return token;
}

static bool generate(generation * g, const char * prompt, llama_token (*next)(generation *)) {
    llama_token   tokens[N_PROMPT];
    const int32_t n =
        llama_tokenize(g->vocab, prompt, (int32_t) strlen(prompt), tokens, N_PROMPT, true, false);
    if (n < 1) {
        fprintf(stderr, "sieve: the prompt has no tokens, or more than %d\n", N_PROMPT);
        return false;
    }
    if (!decode(g, tokens, n)) {
        return false;
    }
    fputs(prompt, stdout);
    for (int i = 0; i < N_TOKENS; i++) {
        llama_token token = next(g);
        if (token < 0) {
            fprintf(stderr, "sieve: %s\n", llama_sieve_last_error());
            return false;
        }
        if (llama_vocab_is_eog(g->vocab, token)) {
            break;
        }
        char          piece[256];
        const int32_t length =
            llama_token_to_piece(g->vocab, token, piece, (int32_t) sizeof(piece), 0, true);
        fwrite(piece, 1, length > 0 ? (size_t) length : 0, stdout);
        if (!decode(g, &token, 1)) {
            return false;
        }
    }
    putchar('\n');
    return true;
}

static bool start(generation * g, const char * model, uint64_t seed) {
    g->model = llama_model_load_from_file(model, llama_model_default_params());
    if (g->model == NULL) {
        fprintf(stderr, "sieve: cannot load %s\n", model);
        return false;
    }
    g->vocab = llama_model_get_vocab(g->model);
    struct llama_context_params context_params = llama_context_default_params();
    context_params.n_ctx   = N_PROMPT + N_TOKENS;
    context_params.n_batch = N_PROMPT;
    /* Enough for a small model; a large one needs more. */
    context_params.n_threads       = 1;
    context_params.n_threads_batch = 1;
    g->context             = llama_init_from_model(g->model, context_params);
    if (g->context == NULL) {
        fprintf(stderr, "sieve: no context\n");
        return false;
    }
    llama_sieve_params params = llama_sieve_default_params();
    params.seed               = seed;
    g->sieve                  = llama_sieve_new(&params);
    if (g->sieve == NULL) {
        fprintf(stderr, "sieve: %s\n", llama_sieve_last_error());
        return false;
    }
    return true;
}

static void finish(generation * g) {
    llama_sieve_free(g->sieve);
    if (g->context != NULL) {
        llama_free(g->context);
    }
    if (g->model != NULL) {
        llama_model_free(g->model);
    }
}

int main(int argc, char ** argv) {
    const bool is_adaptive = argc > 2 && strcmp(argv[2], "adaptive") == 0;
    if (argc < 3 || argc > 5 || (!is_adaptive && strcmp(argv[2], "plain") != 0)) {
        fprintf(stderr, "usage: sieve MODEL plain|adaptive [PROMPT [SEED]]\n");
        return 2;
    }
    const char *   prompt = argc > 3 ? argv[3] : "And the LORD said unto";
    const uint64_t seed   = argc > 4 ? strtoull(argv[4], NULL, 10) : 42;
    llama_log_set(log_errors_only, NULL);
    llama_backend_init();
    generation g  = { 0 };
    const bool ok =
        start(&g, argv[1], seed) && generate(&g, prompt, is_adaptive ? adaptive : plain);
    finish(&g);
    llama_backend_free();
    return ok ? 0 : 1;
}
