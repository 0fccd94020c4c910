/* Loads a model's vocabulary, for C and C++. */
#ifndef VOCABULARY_H
#define VOCABULARY_H

#include "llama.h"

static inline void ignore_log(enum ggml_log_level level, const char * text, void * user) {
    (void) level;
    (void) text;
    (void) user;
}

/* Returns the model without its weights, or NULL. llama.cpp's messages are ignored from then on. */
static inline struct llama_model * load_vocabulary(const char * path) {
    llama_log_set(ignore_log, NULL);
    struct llama_model_params params = llama_model_default_params();
    params.vocab_only = true;
    return llama_model_load_from_file(path, params);
}

#endif
