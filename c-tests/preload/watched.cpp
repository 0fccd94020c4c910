// Samples many times from one output, with one chain after another, and prints the tokens.
// tests/preload/watched.rs links it with builds of llama.cpp that sample differently.
//
//   watched MODEL N_CHAINS N_TOKENS [BUDGET]
//
// With BUDGET, reasoning starts at the likeliest token, and its end is forced after that many
// tokens.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#ifdef WITH_COMMON
#include "of_common.h"
#include "sampling.h"

#endif

#include "llama.h"

namespace {

[[noreturn]] void fail(const char * what) {
    std::fprintf(stderr, "watched: %s\n", what);
    std::exit(1);
}

#ifdef WITH_COMMON
struct chain {
    common_sampler * sampler;

    chain(const llama_model * model, uint32_t seed, int budget) {
        common_params_sampling params;
        params.seed = seed;
        params.temp = 1.5f;
        if (budget >= 0) {
            params.reasoning_budget_tokens = budget;
            params.reasoning_budget_start  = { 798 };
            params.reasoning_budget_end    = { { 7, 8 } };
            params.reasoning_budget_forced = { 400, 401, 7, 8 };
        }
        sampler     = common_sampler_init(model, params);
        if (sampler == nullptr) {
            fail("common_sampler_init returned NULL");
        }
    }
    ~chain() { common_sampler_free(sampler); }

    void sample(llama_context * context) const {
        const llama_token token = common_sampler_sample(sampler, context, -1, false);
        common_sampler_accept(sampler, token, true);
        // All remaining candidates, bit for bit.
        const llama_token_data_array * left = common_sampler_get_candidates(sampler, false);
        uint64_t                       sum  = left->size + 1000003u * left->sorted;
        for (size_t i = 0; i < left->size; i++) {
            uint32_t bits[3];
            std::memcpy(bits, &left->data[i], sizeof(bits));
            for (const uint32_t word : bits) {
                sum = (sum ^ word) * 1099511628211u;
            }
        }
        std::printf("%d %d %016llx\n", token, static_cast<int>(left->selected),
                    static_cast<unsigned long long>(sum));
    }
};
#else
struct chain {
    llama_sampler * sampler;

    chain(const llama_model *, uint32_t seed, int) {
        sampler = llama_sampler_chain_init(llama_sampler_chain_default_params());
        llama_sampler_chain_add(sampler, llama_sampler_init_top_k(40));
        llama_sampler_chain_add(sampler, llama_sampler_init_min_p(0.01f, 1));
        llama_sampler_chain_add(sampler, llama_sampler_init_temp(1.5f));
        llama_sampler_chain_add(sampler, llama_sampler_init_dist(seed));
    }
    ~chain() { llama_sampler_free(sampler); }

    void sample(llama_context * context) const {
        std::printf("%d\n", llama_sampler_sample(sampler, context, -1));
    }
};
#endif

} // namespace

int main(int argc, char ** argv) {
    if (argc != 4 && argc != 5) {
        fail("usage: watched MODEL N_CHAINS N_TOKENS [BUDGET]");
    }
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    llama_backend_init();
    llama_model_params model_params = llama_model_default_params();
    model_params.n_gpu_layers       = 0;
    llama_model * model             = llama_model_load_from_file(argv[1], model_params);
    if (model == nullptr) {
        fail("the model cannot be loaded");
    }
    llama_context_params context_params = llama_context_default_params();
    context_params.n_ctx                = 64;
    context_params.n_threads            = 1;
    context_params.n_threads_batch      = 1;
    llama_context * context             = llama_init_from_model(model, context_params);
    if (context == nullptr) {
        fail("no context");
    }
    llama_token first = 5;
    if (llama_decode(context, llama_batch_get_one(&first, 1)) != 0) {
        fail("llama_decode failed");
    }
    const int n_chains = std::atoi(argv[2]);
    const int n_tokens = std::atoi(argv[3]);
    const int budget   = argc == 5 ? std::atoi(argv[4]) : -1;
    for (int i = 0; i < n_chains; i++) {
        const chain one(model, static_cast<uint32_t>(i) + 1, budget);
        for (int j = 0; j < n_tokens; j++) {
            one.sample(context);
        }
    }
    llama_free(context);
    llama_model_free(model);
    return 0;
}
