// Measures a call of llama.cpp's functions, with and without the preload library in front of them:
//
//   g++ -O2 -std=c++17 hosts/programs/stand_ins.cpp -o stand_ins \
//       $(cargo run -q --release -p vendor-llama-cpp --bin llama_flags)
//   ./stand_ins models/kjv-tiny.gguf
//   LD_PRELOAD=libllama_sieve_preload.so LLAMA_SIEVE_PRELOAD=off ./stand_ins models/kjv-tiny.gguf
//
// Prints nanoseconds per call, the fastest of 40 rounds. To measure calls from a plugin, compile it
// with -DAS_ADDON -shared -fPIC, let addon_host of c-tests/preload load it, and set MODEL in the
// environment.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "llama.h"

namespace {

template <typename Call> double nanoseconds(int n, const Call & call) {
    double best = 1e9;
    for (int round = 0; round < 40; round++) {
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < n; i++) {
            call();
        }
        const std::chrono::duration<double, std::nano> took =
            std::chrono::steady_clock::now() - begin;
        best = std::min(best, took.count() / n);
    }
    return best;
}

int run(const char * path) {
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    llama_model *        model  = llama_model_load_from_file(path, llama_model_default_params());
    llama_context_params params = llama_context_default_params();
    params.n_ctx                = 64;
    params.n_threads            = 1;
    llama_context * context     = model == nullptr ? nullptr : llama_init_from_model(model, params);
    llama_token     token       = 1;
    if (context == nullptr || llama_decode(context, llama_batch_get_one(&token, 1)) != 0) {
        std::fprintf(stderr, "stand_ins: usage: stand_ins MODEL\n");
        return 1;
    }
    llama_sampler * temp  = llama_sampler_init_temp(0.8f);
    llama_sampler * chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    llama_sampler_chain_add(chain, llama_sampler_init_greedy());
    llama_token_data one = { 0, 1.0f, 0.0f };
    const double apply = nanoseconds(2000, [&] {
        llama_token_data_array array = { &one, 1, -1, false };
        llama_sampler_apply(temp, &array);
    });
    const double asked   = nanoseconds(2000, [&] { llama_get_sampled_token_ith(context, -1); });
    const double sampled = nanoseconds(500, [&] { llama_sampler_sample(chain, context, -1); });
    std::printf(
        "llama_sampler_apply %.1f, llama_get_sampled_token_ith %.1f, llama_sampler_sample %.0f\n",
        apply, asked, sampled);
    llama_sampler_free(chain);
    llama_sampler_free(temp);
    llama_free(context);
    llama_model_free(model);
    return 0;
}

} // namespace

#ifdef AS_ADDON
extern "C" int addon_run() {
    const char * model = std::getenv("MODEL");
    return run(model == nullptr ? "" : model);
}
#else
int main(int argc, char ** argv) { return run(argc == 2 ? argv[1] : ""); }
#endif
