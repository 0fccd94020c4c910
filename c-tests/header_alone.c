/* The header needs nothing before it, and may be included twice. */
#include "llama_sieve.h"
#include "llama_sieve.h"

#include <stdio.h>
#include <string.h>

int main(void) {
    /* Without llama.h a sampler is an opaque pointer, and that is enough to take one. */
    struct llama_sampler * (*make)(uint32_t) = llama_sieve_init_dist;
    if (make == NULL || strlen(llama_sieve_version()) == 0) {
        return 1;
    }
    puts(llama_sieve_version());
    return 0;
}
