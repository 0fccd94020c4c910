// Times each path through `common_sampler_sample`. Needs llama.cpp's own CMake build in
// $LLAMA/build, and a model with a large vocabulary (hosts/vocabulary.py makes one):
//
//   g++ -O2 -std=c++17 hosts/programs/paths.cpp -o paths \
//       -I$LLAMA/common -I$LLAMA/include -I$LLAMA/ggml/include \
//       -L$LLAMA/build/bin -lllama-common -lllama -Wl,-rpath,$LLAMA/build/bin
//   ./paths MODEL
//   LD_PRELOAD=libllama_sieve_preload.so ./paths MODEL
//
// Prints for each path the microseconds per token, the fastest and the median of 300, and a hash of
// the tokens. All tokens are sampled from the same logits, those of one prompt.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <vector>

#include "common.h"
#include "llama.h"
#include "sampling.h"

namespace {

constexpr int n_tokens = 300;

// Returns a sampler of the program's own that changes nothing.
llama_sampler * own_sampler() {
    static llama_sampler_i iface = {};
    iface.name  = [](const llama_sampler *) { return "own"; };
    iface.apply = [](llama_sampler *, llama_token_data_array *) {};
    return llama_sampler_init(&iface, nullptr);
}

void set_budget(common_params_sampling & params) {
    params.reasoning_budget_tokens = 2 * n_tokens;
    params.reasoning_budget_start  = { 444 };
    params.reasoning_budget_end    = { { 28 } };
    params.reasoning_budget_forced = { 28 };
}

void set_grammar(common_params_sampling & params, const char * text) {
    params.grammar = { COMMON_GRAMMAR_TYPE_USER, text };
}

struct path {
    const char *                                         name;
    bool                                                 grammar_first;
    std::function<void(common_params_sampling & params)> set;
    bool                                                 with_own = false;
};

const char * anything = "root ::= [^\\x00]*";
const char * letters  = "root ::= [a-z]*";

std::vector<path> paths() {
    using P = common_params_sampling &;
    return {
        { "nothing before the chain", false, [](P) {} },
        { "grammar_first, without a grammar", true, [](P) {} },
        { "a grammar that allows most", false, [](P p) { set_grammar(p, anything); } },
        { "a grammar that refuses most", false, [](P p) { set_grammar(p, letters); } },
        { "a grammar, grammar_first", true, [](P p) { set_grammar(p, anything); } },
        { "a budget", false, [](P p) { set_budget(p); } },
        { "a budget, grammar_first", true,
          [](P p) { set_budget(p); set_grammar(p, anything); } },
        { "a sampler of the program's own", false, [](P) {}, true },
    };
}

void time_path(const llama_model * model, llama_context * context, const path & path) {
    common_params_sampling params;
    params.seed = 1;
    path.set(params);
    common_sampler * sampler = common_sampler_init(model, params);
    if (path.with_own) {
        llama_sampler * chain = common_sampler_get(sampler);
        llama_sampler * last  = llama_sampler_chain_remove(chain, llama_sampler_chain_n(chain) - 1);
        llama_sampler_chain_add(chain, own_sampler());
        llama_sampler_chain_add(chain, last);
    }
    std::vector<double> took;
    uint64_t            sum = 0;
    for (int i = 0; i < n_tokens; i++) {
        const auto        begin = std::chrono::steady_clock::now();
        const llama_token token = common_sampler_sample(sampler, context, -1, path.grammar_first);
        const std::chrono::duration<double, std::micro> time =
            std::chrono::steady_clock::now() - begin;
        took.push_back(time.count());
        sum = sum * 31 + static_cast<uint64_t>(token);
        common_sampler_accept(sampler, token, true);
    }
    std::sort(took.begin(), took.end());
    std::printf("%-34s %9.1f %9.1f  %016llx\n", path.name, took.front(), took[took.size() / 2],
                static_cast<unsigned long long>(sum));
    common_sampler_free(sampler);
}

} // namespace

int main(int argc, char ** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: paths MODEL\n");
        return 1;
    }
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    llama_model * model = llama_model_load_from_file(argv[1], llama_model_default_params());
    if (model == nullptr) {
        std::fprintf(stderr, "the model cannot be loaded\n");
        return 1;
    }
    llama_context_params context_params = llama_context_default_params();
    context_params.n_ctx                = 64;
    llama_context * context = llama_init_from_model(model, context_params);
    llama_token     prompt[] = { 5, 60, 7, 9 };
    if (context == nullptr || llama_decode(context, llama_batch_get_one(prompt, 4)) != 0) {
        std::fprintf(stderr, "the prompt cannot be decoded\n");
        return 1;
    }
    for (const path & path : paths()) {
        time_path(model, context, path);
    }
    llama_free(context);
    llama_model_free(model);
    return 0;
}
