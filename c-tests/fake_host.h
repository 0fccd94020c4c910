/* Common parts of the programs that load fake_host.c: the first fields of the host's types. */
#ifndef FAKE_HOST_H
#define FAKE_HOST_H

#include <dlfcn.h>
#include <string.h>

#include "sieve/alone.h"

struct array {
    llama_token_data * data;
    size_t             size;
    int64_t            selected;
    bool               sorted;
};

struct vtable {
    const char * (*name)(const struct llama_sampler *);
    void (*accept)(struct llama_sampler *, int32_t);
    void (*apply)(struct llama_sampler *, struct array *);
    void (*reset)(struct llama_sampler *);
    struct llama_sampler * (*clone)(const struct llama_sampler *);
    void (*free)(struct llama_sampler *);
};

struct llama_sampler {
    const struct vtable * iface;
    void *                ctx;
};

#endif
