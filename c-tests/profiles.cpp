// Compares our samplers bit for bit with the built-in ones of a separately compiled llama.cpp.
//
//   profiles LLAMA_SAMPLER LLAMA_SIEVE CASES PROFILE
//
// LLAMA_SAMPLER is llama-sampler.cpp as a library, with the rest of llama.cpp unresolved. Prints
// the chosen profile, and a row for each sampler: the certificate's verdict, and how many of CASES
// cases differ for each kind of arrays. Exits with 1 if a sampler differs or is not ours, or if the
// profile is not PROFILE. If PROFILE has libm=other, samplers that are not ours may differ.

#include <dlfcn.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "llama.h"
#include "llama_sieve.h"

// Constructor and destructor of a vocabulary, which a clone of DRY makes but does not use.
extern "C" {
void made(void *) __asm__("_ZN11llama_vocabC1Ev");
void unmade(void *) __asm__("_ZN11llama_vocabD1Ev");
void made(void *) {}
void unmade(void *) {}
}

template <typename F> static F found(void * library, const std::string & name) {
    void * address = dlsym(library, name.c_str());
    if (address == nullptr) {
        std::fprintf(stderr, "%s\n", dlerror());
        std::exit(2);
    }
    return reinterpret_cast<F>(address);
}

struct both {
    llama_sampler * theirs;
    llama_sampler * ours;
};

struct kind {
    const char *          name;
    std::function<both()> make;
};

using candidates = std::vector<llama_token_data>;

enum { DISTINCT, BF16, QUARTERS, KINDS };

static float logit(int kind, float spread, std::mt19937 & random) {
    std::normal_distribution<float> normal(-1.5f, spread);
    const float                     x = normal(random);
    if (kind == QUARTERS) {
        return std::round(4.0f * x) / 4.0f;
    }
    if (kind == BF16) {
        uint32_t bits;
        std::memcpy(&bits, &x, sizeof bits);
        bits &= 0xFFFF0000u;
        float rounded;
        std::memcpy(&rounded, &bits, sizeof bits);
        return rounded;
    }
    return x;
}

// Everything that a host can see of an array after a sampler.
struct left {
    candidates data;
    int64_t    selected;
    bool       sorted;
};

static left applied(llama_sampler * sampler, candidates data) {
    llama_token_data_array array = { data.data(), data.size(), -1, false };
    sampler->iface->apply(sampler, &array);
    return { candidates(array.data, array.data + array.size), array.selected, array.sorted };
}

static bool equal(const left & a, const left & b) {
    return a.selected == b.selected && a.sorted == b.sorted && a.data.size() == b.data.size() &&
        (a.data.empty() ||
         std::memcmp(a.data.data(), b.data.data(), a.data.size() * sizeof a.data[0]) == 0);
}

// Applies both samplers to three arrays of 40 to 9,000 candidates, with accepted tokens in between.
// Returns true if their results differ.
static bool differs(const kind & kind, int arrays, uint32_t seed) {
    std::mt19937 random(seed);
    const both   made    = kind.make();
    bool         differs = false;
    for (int i = 0; i < 3; i++) {
        const size_t n = 40 + random() % (random() % 4 == 0 ? 8961 : 1000);
        const float  spread = random() % 2 == 0 ? 1.0f : 3.0f;
        candidates   data;
        for (size_t id = 0; id < n; id++) {
            data.push_back({ llama_token(id), logit(arrays, spread, random), 0.0f });
        }
        for (int j = 0; j < 12; j++) {
            const llama_token token = llama_token(random() % 9);
            for (llama_sampler * sampler : { made.theirs, made.ours }) {
                if (sampler->iface->accept != nullptr) {
                    sampler->iface->accept(sampler, token);
                }
            }
        }
        const left theirs = applied(made.theirs, data);
        differs |= !equal(theirs, applied(made.ours, data));
        if (theirs.selected >= 0) {
            const llama_token token = theirs.data[theirs.selected].id;
            for (llama_sampler * sampler : { made.theirs, made.ours }) {
                if (sampler->iface->accept != nullptr) {
                    sampler->iface->accept(sampler, token);
                }
            }
        }
    }
    for (llama_sampler * sampler : { made.theirs, made.ours }) {
        sampler->iface->free(sampler);
    }
    return differs;
}

int main(int argc, char ** argv) {
    if (argc != 5) {
        std::fprintf(stderr, "profiles LLAMA_SAMPLER LLAMA_SIEVE CASES PROFILE\n");
        return 2;
    }
    void * host  = dlopen(argv[1], RTLD_LAZY | RTLD_LOCAL);
    void * sieve = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
    if (host == nullptr || sieve == nullptr) {
        std::fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    const int cases = std::atoi(argv[3]);
    found<decltype(&llama_sieve_bind_host)>(sieve, "llama_sieve_bind_host")(host);
    const std::string profile =
        found<decltype(&llama_sieve_host_profile)>(sieve, "llama_sieve_host_profile")();
    std::printf("%s\n", profile.c_str());
    int        status  = profile != argv[4];
    const auto certify = found<decltype(&llama_sieve_certify)>(sieve, "llama_sieve_certify");

#define BOTH(name, ...)                                                                           \
    [=] {                                                                                         \
        const auto theirs = found<decltype(&llama_sampler_init_##name)>(                          \
            host, "llama_sampler_init_" #name);                                                   \
        const auto ours =                                                                         \
            found<decltype(&llama_sieve_init_##name)>(sieve, "llama_sieve_init_" #name);          \
        return both{ theirs(__VA_ARGS__), ours(__VA_ARGS__) };                                    \
    }
    static const llama_logit_bias biases[] = { { 3, 1.7f }, { 0, -2.3f }, { 15, -INFINITY } };
    const kind kinds[] = {
        { "greedy", BOTH(greedy) },
        { "dist", BOTH(dist, 42) },
        { "top-k", BOTH(top_k, 200) },
        { "top-p", BOTH(top_p, 0.95f, 1) },
        { "min-p", BOTH(min_p, 0.02f, 300) },
        { "typical", BOTH(typical, 0.9f, 1) },
        { "temp-ext", BOTH(temp_ext, 0.8f, 0.3f, 1.5f) },
        { "xtc", BOTH(xtc, 0.7f, 0.02f, 1, 3) },
        { "top-n-sigma", BOTH(top_n_sigma, 1.3f) },
        { "mirostat", BOTH(mirostat, 9000, 42, 4.0f, 0.1f, 100) },
        { "mirostat-v2", BOTH(mirostat_v2, 42, 4.0f, 0.1f) },
        { "adaptive-p", BOTH(adaptive_p, 0.4f, 0.9f, 42) },
        { "penalties", BOTH(penalties, 9000, 64, 1.3f, 0.17f, 0.2f) },
        { "logit-bias", BOTH(logit_bias, 9000, 3, biases) },
        { "dry",
          [=] {
              const auto theirs =
                  found<decltype(&llama_sampler_init_dry)>(host, "llama_sampler_init_dry");
              const auto ours =
                  found<decltype(&llama_sieve_init_dry)>(sieve, "llama_sieve_init_dry");
              return both{ theirs(nullptr, 0.8f, 1.75f, 1, 64, nullptr, 0),
                           ours(nullptr, 0.8f, 1.75f, 1, 64, nullptr, 0) };
          } },
    };
    const bool other_libm = std::strstr(argv[4], "libm=other") != nullptr;
    for (const kind & kind : kinds) {
        const int said                   = certify(kind.name);
        int       different[KINDS]       = {};
        for (int arrays = DISTINCT; arrays < KINDS; arrays++) {
            for (int i = 0; i < cases; i++) {
                different[arrays] += differs(kind, arrays, uint32_t(1000 * i + arrays));
            }
        }
        const int  all   = different[DISTINCT] + different[BF16] + different[QUARTERS];
        const bool wrong = other_libm ? said == 0 && all > 0 : said != 0 || all > 0;
        std::printf("%-12s %-8s %4d %4d %4d%s\n", kind.name, said == 0 ? "ours" : "aside",
                    different[DISTINCT], different[BF16], different[QUARTERS],
                    wrong ? "  wrong" : "");
        status |= wrong;
    }
    return status;
}
