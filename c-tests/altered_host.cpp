// A libllama in which a macro replaces one sampler by one that differs from today's: either as in
// some other build, or as little as possible. All other functions are those of the libllama that it
// is linked with.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "llama.h"

namespace {

struct state {
    uint32_t     seed;
    std::mt19937 rng;
};

[[maybe_unused]] const char * dist_name(const llama_sampler *) {
    return "dist";
}

[[maybe_unused]] void dist_free(llama_sampler * smpl) {
    delete static_cast<state *>(smpl->ctx);
}

[[maybe_unused]] void dist_reset(llama_sampler * smpl) {
    state & of_it = *static_cast<state *>(smpl->ctx);
    of_it.rng.seed(of_it.seed);
}

[[maybe_unused]] llama_sampler * dist_clone(const llama_sampler * smpl) {
    return llama_sampler_init(smpl->iface, new state(*static_cast<const state *>(smpl->ctx)));
}

// Draws as the definition says. Macros select the differences of an older build.
[[maybe_unused]] void dist_apply(llama_sampler * smpl, llama_token_data_array * array) {
    auto &                                 rng = static_cast<state *>(smpl->ctx)->rng;
    std::uniform_real_distribution<double> uniform(0.0, 1.0);
    llama_token_data *                     begin = array->data;
    llama_token_data *                     end   = begin + array->size;
#ifdef SORTS
    std::stable_sort(begin, end, [](const auto & a, const auto & b) { return a.logit > b.logit; });
    array->sorted = true;
#endif
    array->selected = 0;
    if (array->size == 1) {
#ifndef DRAWS_NOTHING_FOR_ONE
        uniform(rng);
#endif
        begin->p = 1.0f;
        return;
    }
    float largest = begin->logit;
    for (const llama_token_data * at = begin; at != end; at++) {
        largest = std::max(largest, at->logit);
    }
#ifdef SUMS_FLOATS
    float sum = 0.0f;
#else
    double sum = 0.0;
#endif
    for (llama_token_data * at = begin; at != end; at++) {
        at->p = expf(at->logit - largest);
        sum += at->p;
    }
    const double target  = static_cast<double>(sum) * uniform(rng);
    double       running = 0.0;
    array->selected      = static_cast<int64_t>(array->size) - 1;
    for (size_t i = 0; i < array->size; i++) {
        running += static_cast<double>(array->data[i].p);
        if (running >= target) {
            array->selected = static_cast<int64_t>(i);
            break;
        }
    }
    for (llama_token_data * at = begin; at != end; at++) {
        at->p = static_cast<float>(at->p / sum);
    }
#ifdef DRAWS_TWICE
    uniform(rng);
#endif
}

[[maybe_unused]] const char * top_k_name(const llama_sampler *) {
    return "top-k";
}

// Leaves equal candidates in the order of the input.
[[maybe_unused]] void top_k_apply(llama_sampler * smpl, llama_token_data_array * array) {
    const auto k = reinterpret_cast<intptr_t>(smpl->ctx);
    if (k <= 0) {
        return;
    }
    std::stable_sort(array->data, array->data + array->size,
                     [](const auto & a, const auto & b) { return a.logit > b.logit; });
    array->size   = std::min(array->size, static_cast<size_t>(k));
    array->sorted = true;
}

[[maybe_unused]] llama_sampler_i iface = {};

} // namespace

#ifdef STABLE_TOP_K
llama_sampler * llama_sampler_init_top_k(int32_t k) {
    iface.name  = top_k_name;
    iface.apply = top_k_apply;
    return llama_sampler_init(&iface, reinterpret_cast<void *>(static_cast<intptr_t>(k)));
}
#elif defined(NULL_GREEDY)
// A reference to libllama, without which the linker would omit it.
extern decltype(&llama_sampler_init) const keeps_libllama;
decltype(&llama_sampler_init) const keeps_libllama = llama_sampler_init;

llama_sampler * llama_sampler_init_greedy() {
    return nullptr;
}
#elif defined(BARE_GREEDY)
// Makes a greedy sampler without a clone function and without a state, as in some builds.
llama_sampler * llama_sampler_init_greedy() {
    iface.name  = [](const llama_sampler *) { return "greedy"; };
    iface.apply = [](llama_sampler *, llama_token_data_array * array) {
        array->selected = 0;
        for (size_t i = 1; i < array->size; i++) {
            if (array->data[i].logit > array->data[array->selected].logit) {
                array->selected = static_cast<int64_t>(i);
            }
        }
    };
    return llama_sampler_init(&iface, nullptr);
}
#else
llama_sampler * llama_sampler_init_dist(uint32_t seed) {
    iface.name  = dist_name;
    iface.apply = dist_apply;
    iface.reset = dist_reset;
    iface.clone = dist_clone;
    iface.free  = dist_free;
    return llama_sampler_init(&iface, new state{ seed, std::mt19937(seed) });
}
#endif
