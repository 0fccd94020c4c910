/* Tests the library alone, as `ctest` runs it: it reports its version, and without llama.cpp a
 * constructor returns NULL and says why. */
#include "llama_sieve.h"
#include "messages.h"

#include <stdio.h>
#include <string.h>

int main(void) {
    printf("llama-sieve %s, %s\n", llama_sieve_version(), llama_sieve_simd());
    llama_sieve_log_set(ignore_message, NULL);
    if (llama_sieve_init_top_k(40) != NULL) {
        puts("a sampler was made without llama.cpp");
        return 1;
    }
    if (strstr(llama_sieve_last_error(), "libllama") == NULL) {
        printf("the error does not say what is missing: \"%s\"\n", llama_sieve_last_error());
        return 1;
    }
    printf("as expected: %s\n", llama_sieve_last_error());
    return 0;
}
