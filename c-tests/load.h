/* For programs that are linked with neither library: functions found by name at run time. Needs
 * _GNU_SOURCE before any header. */
#ifndef LOAD_H
#define LOAD_H

#include <dlfcn.h>

#include "check.h"

static inline void * open_library(const char * path) {
    void * library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return library;
}

/* Writes the address into the function pointer after `function`: ISO C has no cast from an
 * object's address to a function's. */
static inline void find_function(void * library, const char * name, void * function) {
    void * address = dlsym(library, name);
    if (address == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    memcpy(function, &address, sizeof(address));
}

/* The functions of llama.cpp that drive a sampler. */
typedef struct {
    struct llama_sampler_chain_params (*chain_default_params)(void);
    struct llama_sampler * (*chain_init)(struct llama_sampler_chain_params);
    void                   (*chain_add)(struct llama_sampler *, struct llama_sampler *);
    const char *           (*name)(const struct llama_sampler *);
    void                   (*accept)(struct llama_sampler *, llama_token);
    void                   (*apply)(struct llama_sampler *, llama_token_data_array *);
    void                   (*reset)(struct llama_sampler *);
    struct llama_sampler * (*clone)(const struct llama_sampler *);
    void                   (*free)(struct llama_sampler *);
    struct llama_sampler * (*init_top_k)(int32_t);
    struct llama_sampler * (*init_dist)(uint32_t);
} host_functions;

static inline host_functions find_host_functions(void * libllama) {
    host_functions host;
    find_function(libllama, "llama_sampler_chain_default_params", &host.chain_default_params);
    find_function(libllama, "llama_sampler_chain_init", &host.chain_init);
    find_function(libllama, "llama_sampler_chain_add", &host.chain_add);
    find_function(libllama, "llama_sampler_name", &host.name);
    find_function(libllama, "llama_sampler_accept", &host.accept);
    find_function(libllama, "llama_sampler_apply", &host.apply);
    find_function(libllama, "llama_sampler_reset", &host.reset);
    find_function(libllama, "llama_sampler_clone", &host.clone);
    find_function(libllama, "llama_sampler_free", &host.free);
    find_function(libllama, "llama_sampler_init_top_k", &host.init_top_k);
    find_function(libllama, "llama_sampler_init_dist", &host.init_dist);
    return host;
}

static inline struct llama_sampler * chain_of_two(const host_functions * host,
                                                  struct llama_sampler * a,
                                                  struct llama_sampler * b) {
    CHECK(a != NULL && b != NULL);
    struct llama_sampler * chain = host->chain_init(host->chain_default_params());
    CHECK(chain != NULL);
    host->chain_add(chain, a);
    host->chain_add(chain, b);
    return chain;
}

static inline llama_token sample_with(const host_functions * host, struct llama_sampler * chain,
                                      guarded * g) {
    g->array.data     = g->memory + 1;
    g->array.size     = g->n;
    g->array.selected = -1;
    g->array.sorted   = false;
    host->apply(chain, &g->array);
    CHECK(guards_are_intact(g));
    CHECK(g->array.selected >= 0 && (size_t) g->array.selected < g->array.size);
    const llama_token token = g->array.data[g->array.selected].id;
    host->accept(chain, token);
    return token;
}

/* Checks that a chain of our top-k and dist samples the same tokens as one of the built-ins, also
 * after clone and reset. Takes ownership of both samplers. */
static inline void check_against_built_ins(const host_functions * host,
                                           struct llama_sampler * top_k_20,
                                           struct llama_sampler * dist_42) {
    CHECK(strcmp(host->name(top_k_20), "top-k") == 0);
    struct llama_sampler * ours     = chain_of_two(host, top_k_20, dist_42);
    struct llama_sampler * built_in = chain_of_two(host, host->init_top_k(20), host->init_dist(42));
    guarded a = guarded_new(1000);
    guarded b = guarded_new(1000);
    numbers from = { 1 };
    for (int step = 0; step < 50; step++) {
        fill_candidates(a.memory + 1, a.n, &from);
        memcpy(b.memory, a.memory, (a.n + 2) * sizeof(*a.memory));
        CHECK(sample_with(host, ours, &a) == sample_with(host, built_in, &b));
        if (step == 20) {
            struct llama_sampler * clone = host->clone(ours);
            CHECK(clone != NULL);
            host->free(ours);
            ours = clone;
        }
        if (step == 30) {
            host->reset(ours);
            host->reset(built_in);
        }
    }
    guarded_free(&b);
    guarded_free(&a);
    host->free(built_in);
    host->free(ours);
}

#endif
