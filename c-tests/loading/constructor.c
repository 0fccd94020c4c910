// Turns a program into a library: a constructor runs the main function on another thread and waits
// for it. Meanwhile the dynamic linker holds its lock, so that any call into the dynamic linker on
// the other thread would wait forever.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

// The main function in this library, not the one of the program that loads it, since the library is
// linked with -Bsymbolic.
int main(int argc, char ** argv);

static int     count;
static char ** arguments;
static int     status;

static void * run(void * unused) {
    (void) unused;
    status = main(count, arguments);
    return NULL;
}

__attribute__((constructor)) static void begin(int argc, char ** argv) {
    pthread_t thread;
    count     = argc - 1;
    arguments = argv + 1;
    if (pthread_create(&thread, NULL, run, NULL) != 0 || pthread_join(thread, NULL) != 0) {
        fputs("constructor: no thread\n", stderr);
        exit(1);
    }
    if (status != 0) {
        exit(status);
    }
}
