/* Prints the instruction set that the library uses, and whether the process runs with elevated
 * privileges (AT_SECURE). Uses no llama.cpp. */
#include <stdio.h>
#include <sys/auxv.h>

#include "llama_sieve.h"

int main(void) {
    (void)llama_sieve_simd();
    printf("%s %lu\n", llama_sieve_simd(), getauxval(AT_SECURE));
    return 0;
}
