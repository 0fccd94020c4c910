// Looks up constructors in libllama's own handle, as Python's ctypes does, which bypasses preloaded
// libraries. Then clones the samplers: llama.cpp calls its constructors for that, and these calls
// reach a preloaded library.
//
//   by_handle LIBLLAMA
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include "llama.h"

namespace {

void * libllama = nullptr;

template <typename F> F own(const char * name) {
    void * found = dlsym(libllama, name);
    if (found == nullptr) {
        std::fprintf(stderr, "by_handle: %s\n", dlerror());
        std::exit(1);
    }
    F function;
    static_assert(sizeof(function) == sizeof(found));
    std::memcpy(&function, &found, sizeof(function));
    return function;
}

// Prints a hash of the sampler's result for 100 candidates, and the selected one.
void step(llama_sampler * smpl, int round) {
    std::vector<llama_token_data> data;
    for (int i = 0; i < 100; i++) {
        data.push_back({ i, static_cast<float>((i * 37 + round * 11) % 100) * 0.1f, 0.0f });
    }
    llama_token_data_array array = { data.data(), data.size(), -1, false };
    llama_sampler_apply(smpl, &array);
    double sum = 0.0;
    for (size_t i = 0; i < array.size; i++) {
        sum += static_cast<double>(array.data[i].logit) * static_cast<double>(i + 1);
    }
    const llama_token token = array.selected >= 0 ? array.data[array.selected].id
                                                  : static_cast<llama_token>((round * 7) % 5);
    llama_sampler_accept(smpl, token);
    std::printf(" %zu/%g/%d", array.size, sum, token);
}

void through_clones(llama_sampler * smpl) {
    std::printf("%s:", llama_sampler_name(smpl));
    for (int round = 0; round < 12; round++) {
        step(smpl, round);
        llama_sampler * copy = llama_sampler_clone(smpl);
        llama_sampler_free(smpl);
        smpl = copy;
    }
    std::printf("\n");
    llama_sampler_free(smpl);
}

} // namespace

int main(int argc, char ** argv) {
    if (argc != 2) {
        return 1;
    }
    libllama = dlopen(argv[1], RTLD_NOW);
    if (libllama == nullptr) {
        std::fprintf(stderr, "by_handle: %s\n", dlerror());
        return 1;
    }
    // Calls the constructor by its name, and so any preloaded one.
    through_clones(llama_sampler_init_dist(1));
    through_clones(llama_sampler_init_temp(std::numeric_limits<float>::infinity()));
    through_clones(own<decltype(&llama_sampler_init_dist)>("llama_sampler_init_dist")(1));
    through_clones(own<decltype(&llama_sampler_init_greedy)>("llama_sampler_init_greedy")());
    through_clones(own<decltype(&llama_sampler_init_top_k)>("llama_sampler_init_top_k")(10));
    through_clones(
        own<decltype(&llama_sampler_init_xtc)>("llama_sampler_init_xtc")(0.5f, 0.01f, 1, 3));
    through_clones(own<decltype(&llama_sampler_init_mirostat)>(
        "llama_sampler_init_mirostat")(100, 4, 3.0f, 0.1f, 100));
    through_clones(own<decltype(&llama_sampler_init_mirostat_v2)>(
        "llama_sampler_init_mirostat_v2")(5, 3.0f, 0.1f));
    through_clones(own<decltype(&llama_sampler_init_adaptive_p)>(
        "llama_sampler_init_adaptive_p")(0.1f, 0.9f, 6));
    through_clones(own<decltype(&llama_sampler_init_penalties)>(
        "llama_sampler_init_penalties")(100, 8, 1.5f, 0.1f, 0.2f));
    through_clones(own<decltype(&llama_sampler_init_dry)>(
        "llama_sampler_init_dry")(nullptr, 2.0f, 1.75f, 1, 64, nullptr, 0));
    const llama_logit_bias bias = { 7, 3.0f };
    through_clones(own<decltype(&llama_sampler_init_logit_bias)>(
        "llama_sampler_init_logit_bias")(100, 1, &bias));
    std::printf("seed %u\n", llama_sampler_get_seed(own<decltype(&llama_sampler_init_dist)>(
                                 "llama_sampler_init_dist")(9)));
    return 0;
}
