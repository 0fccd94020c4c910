/* The tokens of llama.cpp's default chain with seed 42, from the raw logits of a made-up model.
 * cc examples/minimal.c -Iinclude -Ltarget/release -Wl,-rpath,$PWD/target/release -lllama_sieve
 * Prints: 739 240 529 330 589 405 499 450 */
#include <stdio.h>
#include "llama_sieve.h"

int main(void) {
    float logits[1000];
    llama_sieve_params params = llama_sieve_default_params();
    params.seed = 42;
    llama_sieve * sieve = llama_sieve_new(&params);
    for (int n = 0, token = 0; n < 8; n++) {
        for (int i = 0; i < 1000; i++) { /* This is the model. */
            logits[i] = (float) ((i + token) * 7919 % 1024) / 16;
        }
        token = llama_sieve_sample(sieve, logits, 1000);
        if (token < 0) {
            fprintf(stderr, "%s\n", llama_sieve_last_error());
            return 1;
        }
        llama_sieve_accept(sieve, token);
        printf("%d ", token);
    }
    llama_sieve_free(sieve);
}
