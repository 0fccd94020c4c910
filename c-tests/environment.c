// Prints the instruction set in use, which LLAMA_SIEVE_SIMD names, and whether the process may
// trust its environment.
#include <stdio.h>
#include <sys/auxv.h>

#include "llama_sieve.h"

int main(void) {
    printf("%s, %s\n", llama_sieve_simd(), getauxval(AT_SECURE) != 0 ? "not trusted" : "trusted");
    return 0;
}
