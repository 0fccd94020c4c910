// With AS_HOST, a libllama whose constructors throw; otherwise, a program that catches what they
// throw.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>

struct llama_sampler;

extern "C" {
llama_sampler * llama_sampler_chain_init(bool no_perf);
llama_sampler * llama_sampler_init(void * iface, void * ctx);
void            llama_sampler_free(llama_sampler * smpl);
uint32_t        llama_sampler_get_seed(const llama_sampler * smpl);
llama_sampler * llama_sampler_init_greedy();
llama_sampler * llama_sampler_init_top_k(int32_t k);
llama_sampler * llama_sampler_init_penalties(int32_t n_vocab, int32_t last_n, float repeat,
                                             float freq, float present);
llama_sampler * llama_sampler_init_dry(const void * vocab, float multiplier, float base,
                                       int32_t allowed_length, int32_t last_n,
                                       const char ** breakers, size_t n_breakers);
}

#ifdef AS_HOST

extern "C" {
llama_sampler * llama_sampler_chain_init(bool) { return nullptr; }
void            llama_sampler_free(llama_sampler *) {}
llama_sampler * llama_sampler_init(void *, void *) { throw std::runtime_error("init"); }
uint32_t        llama_sampler_get_seed(const llama_sampler *) { throw std::runtime_error("seed"); }
llama_sampler * llama_sampler_init_greedy() { throw std::runtime_error("greedy"); }
llama_sampler * llama_sampler_init_top_k(int32_t) { throw std::runtime_error("top-k"); }
llama_sampler * llama_sampler_init_penalties(int32_t, int32_t, float, float, float) {
    throw std::runtime_error("penalties");
}
llama_sampler * llama_sampler_init_dry(const void *, float, float, int32_t, int32_t, const char **,
                                       size_t) {
    throw std::runtime_error("dry");
}
}

#else

template <typename F> static void attempt(F call) {
    // Runs twice, since everything must still work after the first exception.
    try {
        call();
        std::puts("nothing thrown");
    } catch (const std::exception &) {
    }
    try {
        call();
        std::puts("nothing thrown");
    } catch (const std::exception & thrown) {
        std::printf("caught: %s\n", thrown.what());
    }
}

int main() {
    attempt([] { llama_sampler_init_greedy(); });
    attempt([] { llama_sampler_init_top_k(5); });
    attempt([] { llama_sampler_init_penalties(100, 5, 2.0f, 0.0f, 0.0f); });
    attempt([] { llama_sampler_init_dry(nullptr, 1.0f, 2.0f, 1, 64, nullptr, 0); });
    // llama.cpp's own function does not throw: an exception and this result count as the same.
    attempt([] {
        if (llama_sampler_get_seed(nullptr) == UINT32_MAX) {
            throw std::runtime_error("seed");
        }
    });
    return 0;
}

#endif
