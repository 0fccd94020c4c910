/* Shared by the tests of the sieve that do not use llama.h. */
#ifndef LLAMA_SIEVE_C_TESTS_SIEVE_ALONE_H
#define LLAMA_SIEVE_C_TESTS_SIEVE_ALONE_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "llama_sieve.h"

/* llama.h's struct, which our header only declares. */
typedef struct llama_token_data {
    int32_t id;
    float   logit;
    float   p;
} llama_token_data;

struct llama_logit_bias {
    int32_t token;
    float   bias;
};

#define CHECK(condition) check_that((condition), #condition, __FILE__, __LINE__)

static void check_that(bool holds, const char * condition, const char * file, int line) {
    if (!holds) {
        fprintf(stderr, "%s:%d: failed: %s (last error: %s)\n", file, line, condition,
                llama_sieve_last_error());
        exit(1);
    }
}

#endif
