/* Common parts of the C test programs: a check that reports its file and line, candidate arrays
 * between guards, and logits without ties. */
#ifndef CHECK_H
#define CHECK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llama.h"

#define CHECK(condition) check_that((condition), #condition, __FILE__, __LINE__)

/* The subject of the current check, for the message if it fails. */
static const char * check_subject = "";

static inline void check_that(bool holds, const char * condition, const char * file, int line) {
    if (holds) {
        return;
    }
    fprintf(stderr, "%s:%d: %s: failed: %s\n", file, line, check_subject, condition);
    exit(1);
}

static inline void * check_malloc(size_t size) {
    void * memory = malloc(size);
    CHECK(memory != NULL);
    return memory;
}

/* xorshift32: the tests need numbers that are the same everywhere, not good ones. */
typedef struct {
    uint32_t state;
} numbers;

static inline uint32_t next_number(numbers * from) {
    uint32_t x = from->state;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    from->state = x;
    return x;
}

static inline uint32_t number_below(numbers * from, uint32_t limit) {
    return (uint32_t) (((uint64_t) next_number(from) * limit) >> 32);
}

/* Candidates with a guard element on either side, to notice writes beyond the array. */
typedef struct {
    llama_token_data * memory;
    size_t             n;
    llama_token_data_array array;
} guarded;

static const unsigned char GUARD_BYTE = 0xA5;

static inline guarded guarded_new(size_t n) {
    guarded made = { .memory = check_malloc((n + 2) * sizeof(llama_token_data)), .n = n };
    memset(made.memory, GUARD_BYTE, (n + 2) * sizeof(llama_token_data));
    made.array = (llama_token_data_array) {
        .data = made.memory + 1, .size = n, .selected = -1, .sorted = false
    };
    for (size_t i = 0; i < n; i++) {
        made.array.data[i] = (llama_token_data) { .id = (llama_token) i, .logit = 0.0f, .p = 0.0f };
    }
    return made;
}

static inline bool is_guard(const llama_token_data * element) {
    unsigned char bytes[sizeof(*element)];
    memcpy(bytes, element, sizeof(bytes));
    for (size_t i = 0; i < sizeof(bytes); i++) {
        if (bytes[i] != GUARD_BYTE) {
            return false;
        }
    }
    return true;
}

static inline bool guards_are_intact(const guarded * g) {
    return g->array.data == g->memory + 1 && is_guard(g->memory) && is_guard(g->memory + g->n + 1);
}

static inline void guarded_free(guarded * g) {
    free(g->memory);
    g->memory = NULL;
}

/* Fills an array as a host does: ids in order, logits in random order. No two logits are equal,
 * because among equals the built-in samplers leave the order to an unstable sort. */
static inline void fill_candidates(llama_token_data * data, size_t n, numbers * from) {
    for (size_t i = 0; i < n; i++) {
        /* Like a language model's: a few large ones, and a long tail. */
        const float rank = (float) i / (float) n;
        data[i] = (llama_token_data) { .id = (llama_token) i,
                                       .logit = 12.0f / (1.0f + 40.0f * rank) - 6.0f * rank,
                                       .p = 0.0f };
    }
    for (size_t i = n; i > 1; i--) {
        const size_t j     = number_below(from, (uint32_t) i);
        const float  logit = data[i - 1].logit;
        data[i - 1].logit  = data[j].logit;
        data[j].logit      = logit;
    }
}

#endif
