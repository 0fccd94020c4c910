// Moves a member of one chain into the chain of another `common_sampler`, which has a different
// reasoning budget or none. Prints the tokens that are sampled after the move.
//
//   moved MODEL
#include <cstdio>
#include <memory>
#include <vector>

#include "of_common.h"
#include "opened.h"
#include "sampling.h"

namespace {

constexpr llama_token begin = 5;
constexpr llama_token end   = 7;

// Makes a sampler without a reasoning budget, or with a budget of zero tokens, after which `forced`
// is forced four times and then the end.
sampler_ptr sampler_of(const llama_model * model, bool has_budget, llama_token forced) {
    common_params_sampling params;
    params.seed     = 1;
    params.samplers = { COMMON_SAMPLER_TYPE_TOP_K, COMMON_SAMPLER_TYPE_TEMPERATURE };
    if (has_budget) {
        params.reasoning_budget_tokens = 0;
        params.reasoning_budget_start  = { begin };
        params.reasoning_budget_end    = { { end } };
        params.reasoning_budget_forced = { forced, forced, forced, forced, end };
    }
    return sampler_ptr(common_sampler_init(model, params));
}

// The first member of `from` takes the place of the first of `to`.
void move_first(llama_sampler * from, llama_sampler * to) {
    llama_sampler * moved = llama_sampler_chain_remove(from, 0);
    llama_sampler_free(llama_sampler_chain_remove(to, 0));
    std::vector<llama_sampler *> rest;
    while (llama_sampler_chain_n(to) > 0) {
        rest.push_back(llama_sampler_chain_remove(to, 0));
    }
    llama_sampler_chain_add(to, moved);
    for (llama_sampler * member : rest) {
        llama_sampler_chain_add(to, member);
    }
}

} // namespace

int main(int argc, char ** argv) {
    if (argc != 2) {
        fail("usage: moved MODEL");
    }
    const opened             model(argv[1], 128);
    llama_context *          context = model.context();
    std::vector<llama_token> prompt  = tokenize(model.vocab(), "And the LORD said unto");
    decode(context, prompt.data(), prompt.size());

    for (const auto & [first_has, second_has] :
         { std::pair{ true, true }, std::pair{ false, true }, std::pair{ true, false } }) {
        const sampler_ptr first  = sampler_of(llama_get_model(context), first_has, 100);
        const sampler_ptr second = sampler_of(llama_get_model(context), second_has, 200);
        for (int i = 0; i < 4; i++) {
            common_sampler_sample(first.get(), context, -1, false);
            common_sampler_sample(second.get(), context, -1, false);
        }
        move_first(common_sampler_get(first.get()), common_sampler_get(second.get()));
        // Starts reasoning in a sampler that has a budget, which ends it at once.
        common_sampler_accept((second_has ? second : first).get(), begin, true);
        for (int i = 0; i < 6; i++) {
            const llama_token token = common_sampler_sample(second.get(), context, -1, false);
            common_sampler_accept(second.get(), token, true);
            std::printf(" %d", token);
        }
        std::printf("\n");
    }
    return 0;
}
