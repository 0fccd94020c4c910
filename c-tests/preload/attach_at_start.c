// Preloaded or linked into a program, this attaches llama-sieve before the program starts. If FLIPS
// is set, a thread detaches and attaches it all the time. LLAMA_SIEVE is the path of the library.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int (*attach)(uint32_t flags);
static int (*detach)(void);
static const char * (*last_error)(void);
static pthread_t  thread;
static atomic_int is_over;

static void find(void * library, const char * name, void * function) {
    void * found = dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        abort();
    }
    memcpy(function, &found, sizeof(found));
}

static void check(int number) {
    if (number <= 0) {
        fprintf(stderr, "%d: %s\n", number, last_error());
        abort();
    }
}

static void * flip(void * nothing) {
    while (!is_over) {
        check(detach());
        usleep(500);
        check(attach(0));
        usleep(2000);
    }
    return nothing;
}

__attribute__((constructor)) static void start(void) {
#ifndef _WIN32
    unsetenv("LD_PRELOAD");
#endif
    void * library = dlopen(getenv("LLAMA_SIEVE"), RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        abort();
    }
    find(library, "llama_sieve_attach", &attach);
    find(library, "llama_sieve_detach", &detach);
    find(library, "llama_sieve_last_error", &last_error);
    check(attach(0));
    if (getenv("FLIPS") != NULL && pthread_create(&thread, NULL, flip, NULL) != 0) {
        abort();
    }
}

__attribute__((destructor)) static void end(void) {
    is_over = 1;
    if (getenv("FLIPS") != NULL) {
        pthread_join(thread, NULL);
    }
}
