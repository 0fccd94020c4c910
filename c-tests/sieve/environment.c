/* Which instructions the library uses, and whether the process has more rights than who started it.
 * Uses no llama.cpp. */
#include <stdio.h>
#include <sys/auxv.h>

#include "llama_sieve.h"

int main(void) {
    (void)llama_sieve_simd();
    printf("%s %lu\n", llama_sieve_simd(), getauxval(AT_SECURE));
    return 0;
}
