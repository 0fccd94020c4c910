/*
 * Common parts of the C test programs for messages: the text of the last error, and a callback that
 * drops what is logged.
 */
#ifndef MESSAGES_H
#define MESSAGES_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "llama_sieve.h"

/* Returns true if the last error contains `words`; otherwise prints it, and returns false. */
static inline bool says(const char * words) {
    const char * error = llama_sieve_last_error();
    if (strstr(error, words) != NULL) {
        return true;
    }
    fprintf(stderr, "\"%s\" is not in: %s\n", words, error);
    return false;
}

/* A callback for llama_sieve_log_set that ignores messages. */
static inline void ignore_message(int level, const char * text, void * user) {
    (void) level;
    (void) text;
    (void) user;
}

#endif
