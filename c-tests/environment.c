// Prints the instruction set in use, which LLAMA_SIEVE_SIMD names, and whether the environment of
// the process is to be trusted.
#include <stdio.h>
#include <sys/auxv.h>

#include "llama_sieve.h"

int main(void) {
    printf("%s, %s\n", llama_sieve_simd(), getauxval(AT_SECURE) != 0 ? "not trusted" : "trusted");
    return 0;
}
