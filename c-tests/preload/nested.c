// Chains in chains, and samplers inside the program's own. State must be copied, and the seed
// found, at any depth.
#include <math.h>
#include <stdio.h>

#include "llama.h"

static struct llama_sampler * chain(void) {
    return llama_sampler_chain_init(llama_sampler_chain_default_params());
}

// Returns samplers with state, nested in `depth` chains.
static struct llama_sampler * nested(int depth) {
    struct llama_sampler * inner = chain();
    llama_sampler_chain_add(inner, llama_sampler_init_penalties(8, 64, 1.1f, 0.5f, 0.25f));
    llama_sampler_chain_add(inner, llama_sampler_init_mirostat_v2(7, 4.0f, 0.5f));
    for (int i = 1; i < depth; i++) {
        struct llama_sampler * outer = chain();
        llama_sampler_chain_add(outer, inner);
        inner = outer;
    }
    return inner;
}

// A sampler of the program's own, which forwards every call to an inner one.
static const char * holder_name(const struct llama_sampler * smpl) {
    (void) smpl;
    return "holder";
}

static void holder_accept(struct llama_sampler * smpl, llama_token token) {
    llama_sampler_accept(smpl->ctx, token);
}

static void holder_apply(struct llama_sampler * smpl, llama_token_data_array * array) {
    llama_sampler_apply(smpl->ctx, array);
}

static void holder_free(struct llama_sampler * smpl) {
    llama_sampler_free(smpl->ctx);
}

static void holder_copy(const struct llama_sampler * src, struct llama_sampler * dst) {
    llama_sampler_copy(src->ctx, dst->ctx);
}

static struct llama_sampler * holder_clone(const struct llama_sampler * smpl);

static struct llama_sampler_i holder_i = {
    .name       = holder_name,
    .accept     = holder_accept,
    .apply      = holder_apply,
    .clone      = holder_clone,
    .free       = holder_free,
    .copy_state = holder_copy,
};

static struct llama_sampler * holder_clone(const struct llama_sampler * smpl) {
    return llama_sampler_init(&holder_i, llama_sampler_clone(smpl->ctx));
}

// Returns samplers with state, nested in `depth` samplers of the program's own.
static struct llama_sampler * held(int depth) {
    struct llama_sampler * inner = nested(1);
    for (int i = 0; i < depth; i++) {
        inner = llama_sampler_init(&holder_i, inner);
    }
    return inner;
}

static void show(struct llama_sampler * smpl) {
    llama_token_data       data[8];
    llama_token_data_array array = { data, 8, -1, false };
    for (int i = 0; i < 8; i++) {
        data[i] = (llama_token_data) { i, (float) (i % 3), 0.0f };
    }
    llama_sampler_apply(smpl, &array);
    for (size_t i = 0; i < array.size; i++) {
        printf(" %d:%.9g", array.data[i].id, array.data[i].logit);
    }
    printf(", selected %d\n", (int) array.selected);
}

static void copied(struct llama_sampler * smpl, int depth) {
    struct llama_sampler * copy = llama_sampler_clone(smpl);
    for (int i = 0; i < 5; i++) {
        llama_sampler_accept(copy, i);
        show(copy);
    }
    llama_sampler_copy(copy, smpl);
    llama_sampler_free(copy);
    show(smpl);
    printf("depth %d, seed %u\n", depth, llama_sampler_get_seed(smpl));
    llama_sampler_free(smpl);
}

// Copies between two samplers, one of which may have a parameter that no sampler of ours accepts.
static void copied_between(float from, float to) {
    struct llama_sampler * src = llama_sampler_init_top_n_sigma(from);
    struct llama_sampler * dst = llama_sampler_init_top_n_sigma(to);
    llama_sampler_copy(src, dst);
    llama_sampler_free(src);
    show(dst);
    llama_sampler_free(dst);
}

int main(void) {
    copied_between(1.0f, INFINITY);
    copied_between(INFINITY, 1.0f);
    for (int depth = 1; depth <= 6; depth++) {
        copied(held(depth), depth);
        copied(nested(depth), depth);
    }
    return 0;
}
