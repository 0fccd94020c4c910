/* The host of fake_host.c, with the functions that grammars call. Its tokens are 'a' to 'p'. */
#include "../fake_host.c"

int32_t llama_vocab_bos(const void * vocab);
int32_t llama_vocab_bos(const void * vocab) {
    (void) vocab;
    return -1;
}

int32_t llama_vocab_nl(const void * vocab);
int32_t llama_vocab_nl(const void * vocab) {
    (void) vocab;
    return -1;
}

int32_t llama_vocab_pad(const void * vocab);
int32_t llama_vocab_pad(const void * vocab) {
    (void) vocab;
    return -1;
}

/* Every token is a normal one. */
int llama_vocab_get_attr(const void * vocab, int32_t token);
int llama_vocab_get_attr(const void * vocab, int32_t token) {
    (void) vocab;
    (void) token;
    return 1 << 2;
}
