// The functions of glibc that musl lacks, and that a llama.cpp and a llama-sieve compiled for glibc
// call. `ci/musl` runs such builds with musl; this library replaces glibc's dynamic linker, which
// they need.
#define _GNU_SOURCE
#include <stddef.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

char __libc_single_threaded = 0;

int pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void));

int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                      void * library) {
    (void) library;
    return pthread_atfork(prepare, parent, child);
}

// Called by gcc's atomic operations on aarch64, to find out which instructions the processor has.
unsigned long __getauxval(unsigned long type) {
    return getauxval(type);
}

int getcpu(unsigned * cpu, unsigned * node) {
    return (int) syscall(SYS_getcpu, cpu, node, NULL);
}

void * __sched_cpualloc(size_t count) {
    return calloc((count + 63) / 64, sizeof(unsigned long));
}

void __sched_cpufree(void * set) {
    free(set);
}

// Called only when the process aborts with a message.
int backtrace(void ** addresses, int size) {
    (void) addresses;
    (void) size;
    return 0;
}

void backtrace_symbols_fd(void * const * addresses, int size, int file) {
    (void) addresses;
    (void) size;
    (void) file;
}
