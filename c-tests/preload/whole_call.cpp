// With AS_HOST, a libllama whose penalties take more arguments than there are registers, and print
// them; otherwise, a program that passes them.
#include <cstdint>
#include <cstdio>
#include <stdexcept>

struct llama_sampler;

extern "C" {
llama_sampler * llama_sampler_chain_init(bool no_perf);
llama_sampler * llama_sampler_init(void * iface, void * ctx);
void            llama_sampler_free(llama_sampler * smpl);
llama_sampler * llama_sampler_init_penalties(int64_t a, float x, int32_t b, double y, int64_t c,
                                             float z, const char * d, float p, int16_t e, double q,
                                             int64_t f, float r, int64_t g, float s, int64_t h,
                                             float t, int64_t i, float u, double v, int64_t j,
                                             int64_t k);
}

#ifdef AS_HOST

extern "C" {
llama_sampler * llama_sampler_chain_init(bool) { return nullptr; }
void            llama_sampler_free(llama_sampler *) {}
llama_sampler * llama_sampler_init(void *, void *) { return nullptr; }
llama_sampler * llama_sampler_init_penalties(int64_t a, float x, int32_t b, double y, int64_t c,
                                             float z, const char * d, float p, int16_t e, double q,
                                             int64_t f, float r, int64_t g, float s, int64_t h,
                                             float t, int64_t i, float u, double v, int64_t j,
                                             int64_t k) {
    std::printf("%lld %g %d %g %lld %g %s %g %d %g %lld %g %lld %g %lld %g %lld %g %g %lld %lld\n",
                static_cast<long long>(a), static_cast<double>(x), b, y, static_cast<long long>(c),
                static_cast<double>(z), d, static_cast<double>(p), e, q, static_cast<long long>(f),
                static_cast<double>(r), static_cast<long long>(g), static_cast<double>(s),
                static_cast<long long>(h), static_cast<double>(t), static_cast<long long>(i),
                static_cast<double>(u), v, static_cast<long long>(j), static_cast<long long>(k));
    if (k < 0) {
        throw std::runtime_error("below 0");
    }
    return nullptr;
}
}

#else

static void call(int64_t last) {
    try {
        llama_sampler * made = llama_sampler_init_penalties(
            1LL << 40, 1.5f, -2, 1e300, -3, 2.5f, "four", 3.5f, 5, -1e-300, 6, 4.5f, 1LL << 50,
            5.5f, 8, 6.5f, 9, 7.5f, 8.25, 10, last);
        std::puts(made == nullptr ? "made nothing" : "made something");
    } catch (const std::exception & thrown) {
        std::puts(thrown.what());
    }
}

int main() {
    for (int i = 0; i < 3; i++) {
        call(11);
        call(-11);
    }
    return 0;
}

#endif
