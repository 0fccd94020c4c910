// Attaches llama-sieve to itself while another thread loads, uses and unloads libraries that use
// llama.cpp. Two such libraries take turns at the same addresses; which of the pages there are
// writable differs between them.
//
//   attach_unloading LIBLLAMA_SIEVE LOADS DETACH LIBRARY LIBRARY
//
// LOADS is the number of times that a library is loaded. With DETACH 1 the program also detaches
// each time. With -DAS_LIBRARY=N this file is such a library instead, with N pages of data.
#include "llama.h"

#ifdef AS_LIBRARY

#    include <string.h>

// library_use writes to each page, so that it crashes if a page is no longer writable.
static volatile char data[AS_LIBRARY * 4096] = {1};

int library_use(void);
int library_use(void) {
    for (size_t at = 0; at < sizeof(data); at += 4096) {
        data[at] = (char) (data[at] + 1);
    }
    struct llama_sampler * top_k  = llama_sampler_init_top_k(5);
    struct llama_sampler * greedy = llama_sampler_init_greedy();
    int                    fine   = strcmp(llama_sampler_name(greedy), "greedy") == 0 &&
               strcmp(llama_sampler_name(top_k), "top-k") == 0;
    llama_sampler_free(top_k);
    llama_sampler_free(greedy);
    return fine;
}

#else

#    include <dlfcn.h>
#    include <pthread.h>
#    include <stdatomic.h>
#    include <stdint.h>
#    include <stdio.h>
#    include <stdlib.h>
#    include <sys/mman.h>

typedef int (*attach_function)(uint32_t flags);
typedef int (*function)(void);
typedef const char * (*error_function)(void);

struct loads {
    const char * const * libraries;
    long                 wanted;
};

static atomic_bool is_over;

static void fail(const char * what, const char * why) {
    fprintf(stderr, "attach_unloading: %s: %s\n", what, why == NULL ? "" : why);
    exit(1);
}

// Makes the kernel's list of memory long, which then takes longer to be read.
static void divide_memory(void) {
    const size_t page = 4096;
    const size_t n    = 2000;
    char *       all  = mmap(NULL, n * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) {
        fail("mmap", NULL);
    }
    for (size_t at = 0; at < n; at += 2) {
        if (mprotect(all + at * page, page, PROT_NONE) != 0) {
            fail("mprotect", NULL);
        }
    }
}

static void * symbol(void * library, const char * name) {
    void * found = dlsym(library, name);
    if (found == NULL) {
        fail(name, dlerror());
    }
    return found;
}

static void * load_all(void * argument) {
    const struct loads * loads = argument;
    for (long load = 0; load < loads->wanted; load++) {
        const char * path    = loads->libraries[load % 2];
        void *       library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
        if (library == NULL) {
            fail(path, dlerror());
        }
        function use;
        *(void **) &use = symbol(library, "library_use");
        if (!use()) {
            fail(path, "other samplers than those that were asked for");
        }
        if (dlclose(library) != 0) {
            fail(path, dlerror());
        }
    }
    atomic_store(&is_over, true);
    return NULL;
}

int main(int count, char ** arguments) {
    if (count != 6) {
        fail("usage", "LIBLLAMA_SIEVE LOADS DETACH LIBRARY LIBRARY");
    }
    divide_memory();
    // This program uses llama.cpp, which therefore stays loaded.
    llama_sampler_free(llama_sampler_init_greedy());
    void * sieve = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (sieve == NULL) {
        fail(arguments[1], dlerror());
    }
    attach_function attach;
    function        detach;
    error_function  error;
    *(void **) &attach = symbol(sieve, "llama_sieve_attach");
    *(void **) &detach = symbol(sieve, "llama_sieve_detach");
    *(void **) &error  = symbol(sieve, "llama_sieve_last_error");

    const char * const libraries[2] = {arguments[4], arguments[5]};
    struct loads       loads        = {libraries, strtol(arguments[2], NULL, 10)};
    const int          detaches     = strtol(arguments[3], NULL, 10) == 1;
    pthread_t          loader;
    if (pthread_create(&loader, NULL, load_all, &loads) != 0) {
        fail("pthread_create", NULL);
    }
    long imports = 0;
    while (!atomic_load(&is_over)) {
        int redirected = attach(0);
        if (redirected < 0 || (detaches && detach() < 0)) {
            fail("attach or detach", error());
        }
        imports += redirected;
    }
    pthread_join(loader, NULL);
    printf("imports: %ld\ndone\n", imports);
    return 0;
}

#endif
