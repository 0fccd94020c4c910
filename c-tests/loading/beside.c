// What is linked into a program that is to run while another of its threads is inside dlopen, from
// before its main function until it ends.
//
// With -DAS_LIBRARY, the library that takes so long to load.
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

// Before the dynamic linker ends what it has loaded.
static void end(void) {
    sem_post(&ends);
    pthread_join(thread, NULL);
}

__attribute__((constructor)) static void begin(void) {
    // Many times what any of these programs takes.
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
