/* The functions of llama.cpp that the library calls, with one vocabulary and one context. Compiled
 * as a shared library, once for every function that a host could lack, with -DWITHOUT_name. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

struct llama_sampler {
    void * iface;
    void * ctx;
};

#define N_VOCAB 16

#ifndef WITHOUT_llama_sampler_init
struct llama_sampler * llama_sampler_init(void * iface, void * ctx);
struct llama_sampler * llama_sampler_init(void * iface, void * ctx) {
    struct llama_sampler * smpl = malloc(sizeof *smpl);
    if (smpl != NULL) {
        smpl->iface = iface;
        smpl->ctx = ctx;
    }
    return smpl;
}
#endif

#ifndef WITHOUT_llama_sampler_name
const char * llama_sampler_name(const struct llama_sampler * smpl);
const char * llama_sampler_name(const struct llama_sampler * smpl) {
    (void) smpl;
    return "a sampler";
}
#endif

#ifndef WITHOUT_llama_sampler_get_seed
uint32_t llama_sampler_get_seed(const struct llama_sampler * smpl);
uint32_t llama_sampler_get_seed(const struct llama_sampler * smpl) {
    (void) smpl;
    return 7;
}
#endif

#ifndef WITHOUT_llama_sampler_chain_n
int llama_sampler_chain_n(const struct llama_sampler * chain);
int llama_sampler_chain_n(const struct llama_sampler * chain) {
    (void) chain;
    return 0;
}
#endif

#ifndef WITHOUT_llama_sampler_chain_get
struct llama_sampler * llama_sampler_chain_get(struct llama_sampler * chain, int32_t i);
struct llama_sampler * llama_sampler_chain_get(struct llama_sampler * chain, int32_t i) {
    (void) chain;
    (void) i;
    return NULL;
}
#endif

#ifndef WITHOUT_llama_vocab_n_tokens
int32_t llama_vocab_n_tokens(const void * vocab);
int32_t llama_vocab_n_tokens(const void * vocab) {
    (void) vocab;
    return N_VOCAB;
}
#endif

#ifndef WITHOUT_llama_vocab_is_eog
bool llama_vocab_is_eog(const void * vocab, int32_t token);
bool llama_vocab_is_eog(const void * vocab, int32_t token) {
    (void) vocab;
    return token == N_VOCAB - 1;
}
#endif

#ifndef WITHOUT_llama_vocab_eot
int32_t llama_vocab_eot(const void * vocab);
int32_t llama_vocab_eot(const void * vocab) {
    (void) vocab;
    return -1;
}
#endif

#ifndef WITHOUT_llama_vocab_eos
int32_t llama_vocab_eos(const void * vocab);
int32_t llama_vocab_eos(const void * vocab) {
    (void) vocab;
    return N_VOCAB - 1;
}
#endif

/* Writes the text of a token, which is one letter. */
static int32_t letter(int32_t token, char * buffer, int32_t room) {
    if (room < 1) {
        return -1;
    }
    buffer[0] = (char) ('a' + token);
    return 1;
}

#ifndef WITHOUT_llama_token_to_piece
int32_t llama_token_to_piece(const void * vocab, int32_t token, char * buffer, int32_t room,
                             int32_t lstrip, bool special);
int32_t llama_token_to_piece(const void * vocab, int32_t token, char * buffer, int32_t room,
                             int32_t lstrip, bool special) {
    (void) vocab;
    (void) lstrip;
    (void) special;
    return letter(token, buffer, room);
}
#endif

#ifndef WITHOUT_llama_detokenize
int32_t llama_detokenize(const void * vocab, const int32_t * tokens, int32_t n, char * buffer,
                         int32_t room, bool remove_special, bool unparse_special);
int32_t llama_detokenize(const void * vocab, const int32_t * tokens, int32_t n, char * buffer,
                         int32_t room, bool remove_special, bool unparse_special) {
    (void) vocab;
    (void) remove_special;
    (void) unparse_special;
    return n == 1 ? letter(tokens[0], buffer, room) : 0;
}
#endif

#ifndef WITHOUT_llama_tokenize
int32_t llama_tokenize(const void * vocab, const char * text, int32_t length, int32_t * tokens,
                       int32_t room, bool add_special, bool parse_special);
int32_t llama_tokenize(const void * vocab, const char * text, int32_t length, int32_t * tokens,
                       int32_t room, bool add_special, bool parse_special) {
    (void) vocab;
    (void) add_special;
    (void) parse_special;
    if (room < length) {
        return -length;
    }
    for (int32_t i = 0; i < length; i++) {
        tokens[i] = (text[i] - 'a') & (N_VOCAB - 1);
    }
    return length;
}
#endif

#ifndef WITHOUT_llama_get_logits_ith
float * llama_get_logits_ith(void * ctx, int32_t i);
float * llama_get_logits_ith(void * ctx, int32_t i) {
    static float logits[N_VOCAB] = {0, 1, 2, 9, 4};
    (void) ctx;
    (void) i;
    return logits;
}
#endif

#ifndef WITHOUT_llama_get_model
const void * llama_get_model(const void * ctx);
const void * llama_get_model(const void * ctx) {
    return ctx;
}
#endif

#ifndef WITHOUT_llama_model_get_vocab
const void * llama_model_get_vocab(const void * model);
const void * llama_model_get_vocab(const void * model) {
    return model;
}
#endif
