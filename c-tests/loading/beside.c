// Linked into a program, this keeps another of its threads inside dlopen from before the main
// function starts until the program ends.
//
// With -DAS_LIBRARY it is the library that takes that long to load.
#include <stddef.h>

// Called by the library's constructor: returns when the program ends.
void while_loading(void);

#ifdef AS_LIBRARY

__attribute__((constructor)) static void begin(void) { while_loading(); }

#else

#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static sem_t     inside, ends;
static pthread_t thread;

static void wait_for(sem_t * semaphore) {
    while (sem_wait(semaphore) != 0) {
    }
}

void while_loading(void) {
    sem_post(&inside);
    wait_for(&ends);
}

static void * load(void * path) {
    if (dlopen(path, RTLD_NOW | RTLD_LOCAL) == NULL) {
        fprintf(stderr, "beside: %s\n", dlerror());
        _exit(1);
    }
    return NULL;
}

// Runs at exit, before the dynamic linker calls the destructors of the loaded libraries.
static void end(void) {
    sem_post(&ends);
    pthread_join(thread, NULL);
}

__attribute__((constructor)) static void begin(void) {
    // Many times longer than any of these programs takes.
    alarm(600);
    char * path = getenv("LOADING_LIBRARY");
    if (sem_init(&inside, 0, 0) != 0 || sem_init(&ends, 0, 0) != 0 || path == NULL ||
        pthread_create(&thread, NULL, load, path) != 0 || atexit(end) != 0) {
        fputs("beside: no thread\n", stderr);
        exit(1);
    }
    wait_for(&inside);
}

#endif
