/*
 * What the C test programs share about messages: the text of the last error, and a callback that
 * drops what is logged.
 */
#ifndef MESSAGES_H
#define MESSAGES_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "llama_sieve.h"

/* Whether the last error has these words; prints what it says if not. */
static inline bool says(const char * words) {
    const char * error = llama_sieve_last_error();
    if (strstr(error, words) != NULL) {
        return true;
    }
    fprintf(stderr, "\"%s\" is not in: %s\n", words, error);
    return false;
}

/* For llama_sieve_log_set. */
static inline void ignore_message(int level, const char * text, void * user) {
    (void) level;
    (void) text;
    (void) user;
}

#endif
