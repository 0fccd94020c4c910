// A library that uses llama.cpp, and that holds up the dynamic linker while it is filling in what
// the library imports: it reports this, and waits for an answer. At that point it can call no
// function of other libraries.
#include <sys/syscall.h>

#include "llama.h"

#define SAYS  200
#define HEARS 201

static void call(long number, long file, char * byte) {
#ifdef __x86_64__
    long result = number;
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"(file), "S"(byte), "d"(1L)
                     : "rcx", "r11", "memory");
#else
    register long   x8 __asm__("x8") = number;
    register long   x0 __asm__("x0") = file;
    register char * x1 __asm__("x1") = byte;
    register long   x2 __asm__("x2") = 1;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
#endif
}

static int one(void) {
    return 1;
}

static int (*resolve(void))(void) {
    char byte = 0;
    call(SYS_write, SAYS, &byte);
    call(SYS_read, HEARS, &byte);
    return one;
}

__attribute__((visibility("hidden"))) int chosen(void) __attribute__((ifunc("resolve")));

const struct llama_sampler_i * slow_vtable(void) {
    struct llama_sampler *         sampler = llama_sampler_init_greedy();
    const struct llama_sampler_i * vtable  = sampler->iface;
    llama_sampler_free(sampler);
    return chosen() == 1 ? vtable : NULL;
}
