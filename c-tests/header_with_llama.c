/* Both headers in one file, in either order. Also compiled as C++. */
#ifdef LLAMA_H_FIRST
#include "llama.h"
#include "llama_sieve.h"
#else
#include "llama_sieve.h"
#include "llama.h"
#endif

int main(void) {
    /* Both headers declare the same sampler type, and use the same values for log levels. */
    struct llama_sampler * smpl = llama_sieve_init_top_k(40);
    if (smpl == 0) {
        return 1;
    }
    llama_sampler_free(smpl);
    const int levels[3] = { GGML_LOG_LEVEL_INFO, GGML_LOG_LEVEL_WARN, GGML_LOG_LEVEL_ERROR };
    if (levels[0] != LLAMA_SIEVE_LOG_INFO || levels[1] != LLAMA_SIEVE_LOG_WARN ||
        levels[2] != LLAMA_SIEVE_LOG_ERROR) {
        return 2;
    }
    return 0;
}
