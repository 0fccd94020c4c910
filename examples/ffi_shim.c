/* Wraps those functions of llama.h that take or return structs by value in functions that do not,
 * for languages that call C at run time.
 *
 * A declaration of llama_model_params in Python or JavaScript would have to be kept in step with
 * llama.h by hand, and a missing field would cause wrong calls instead of an error. Here the
 * compiler reads llama.h. A host with a binding of its own (llama-cpp-python, node-llama-cpp)
 * already has these functions, and needs no shim.
 *
 * With a llama.cpp that was built in LLAMA:
 *
 *     cc -std=c11 -O2 -shared -fPIC -I $LLAMA/include -I $LLAMA/ggml/include \
 *         examples/ffi_shim.c -o libffi_shim.so \
 *         -L $LLAMA/build/bin -lllama -Wl,-rpath,$LLAMA/build/bin */
#include <stdint.h>
#include <stdio.h>

#include "llama.h"

static void log_errors_only(enum ggml_log_level level, const char * text, void * user) {
    (void) user;
    if (level == GGML_LOG_LEVEL_ERROR) {
        fputs(text, stderr);
    }
}

/* Loads a model. Must be called first. Free the model with llama_model_free. */
struct llama_model * shim_load_model(const char * path) {
    llama_log_set(log_errors_only, NULL);
    llama_backend_init();
    struct llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = 0;
    return llama_model_load_from_file(path, params);
}

/* Makes a context for n_ctx tokens. Free it with llama_free. */
struct llama_context * shim_new_context(struct llama_model * model, int32_t n_ctx) {
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx           = (uint32_t) n_ctx;
    params.n_batch         = (uint32_t) n_ctx;
    params.n_threads       = 1;
    params.n_threads_batch = 1;
    return llama_init_from_model(model, params);
}

/* Appends n tokens to the context. Returns 0 on success. */
int32_t shim_decode(struct llama_context * context, const int32_t * tokens, int32_t n) {
    /* llama_decode does not write to the tokens. */
    return llama_decode(context, llama_batch_get_one((llama_token *) tokens, n));
}

/* Makes an empty chain. Free it with llama_sampler_free. */
struct llama_sampler * shim_new_chain(void) {
    return llama_sampler_chain_init(llama_sampler_chain_default_params());
}
