/* The functions of sorts.cpp, carried out by sorts_of_windows.c in Wine. LLAMA_SIEVE_WINDOWS_SORTS
 * is the command that runs it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The kinds of requests, as in sorts_of_windows.c. */
enum { SORT, PARTIAL_SORT, SORT_NUMBERS };

static FILE * to, *from;

static void fail(const char * what) {
    fprintf(stderr, "sorts_by_wine: %s\n", what);
    abort();
}

/* Starts the command. It exits when this process does, because that closes its pipe. */
static void start(void) {
    const char * command = getenv("LLAMA_SIEVE_WINDOWS_SORTS");
    int          there[2], back[2];
    if (command == NULL) {
        fail("LLAMA_SIEVE_WINDOWS_SORTS is not set");
    }
    if (pipe(there) != 0 || pipe(back) != 0) {
        fail("no pipe");
    }
    const pid_t child = fork();
    if (child < 0) {
        fail("no process");
    }
    if (child == 0) {
        dup2(there[0], 0);
        dup2(back[1], 1);
        for (int i = 0; i < 2; i++) {
            close(there[i]);
            close(back[i]);
        }
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    close(there[0]);
    close(back[1]);
    to = fdopen(there[1], "wb");
    from = fdopen(back[0], "rb");
    if (to == NULL || from == NULL) {
        fail("no stream");
    }
}

static void ask(uint32_t what, const float * keys, size_t n, size_t k, uint32_t * out) {
    const uint32_t asked[] = { what, (uint32_t)n, (uint32_t)k };
    if (to == NULL) {
        start();
    }
    fwrite(asked, sizeof asked[0], 3, to);
    fwrite(keys, sizeof *keys, n, to);
    if (fflush(to) != 0 || fread(out, sizeof *out, n, from) != n) {
        fail("no answer");
    }
}

/* Returns -1: Microsoft's order. */
int sorts_version(void) {
    return -1;
}

void sorts_sort(const float * keys, size_t n, uint32_t * out) {
    ask(SORT, keys, n, n, out);
}

void sorts_partial_sort(const float * keys, size_t n, size_t k, uint32_t * out) {
    ask(PARTIAL_SORT, keys, n, k, out);
}

void sorts_sort_numbers(const float * keys, size_t n, uint32_t * out) {
    ask(SORT_NUMBERS, keys, n, n, out);
}
