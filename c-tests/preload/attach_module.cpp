// A library that is linked with libllama, as an addon or a plugin is: it makes chains, samples with
// them, and returns the address of the import through which it calls llama_sampler_init_top_k.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "opened.h"

namespace {

std::unique_ptr<opened> model;

}  // namespace

extern "C" {

llama_sampler * module_chain(uint32_t seed);

// Loads the model once and keeps it until the process ends, so that llama-sieve does not see it
// freed.
void module_open(const char * path) {
    model = std::make_unique<opened>(path, 512);
#ifdef _WIN32
    // Under MinGW the first call of a function that is looked up lazily loses floating-point
    // arguments.
    llama_sampler_free(module_chain(0));
#endif
}

// Returns a new context that has decoded the prompt, so that it has logits to sample from.
llama_context * module_context() {
    llama_context_params params = llama_context_default_params();
    params.n_ctx                = 64;
    params.n_threads            = 1;
    params.n_threads_batch      = 1;
    llama_context * context =
        llama_init_from_model(const_cast<llama_model *>(llama_get_model(model->context())), params);
    if (context == nullptr) {
        fail("no context");
    }
    std::vector<llama_token> tokens = tokenize(model->vocab(), "And the LORD said unto");
    decode(context, tokens.data(), tokens.size());
    return context;
}

void module_free_context(llama_context * context) { llama_free(context); }

llama_sampler * module_chain(uint32_t seed) {
    llama_sampler_chain_params params = llama_sampler_chain_default_params();
    llama_sampler *            chain  = llama_sampler_chain_init(params);
    const int32_t              n_vocab = llama_vocab_n_tokens(model->vocab());
    llama_sampler_chain_add(chain, llama_sampler_init_penalties(n_vocab, 64, 1.1f, 0.1f, 0.2f));
    llama_sampler_chain_add(chain, llama_sampler_init_top_k(40));
    llama_sampler_chain_add(chain, llama_sampler_init_top_p(0.95f, 1));
    llama_sampler_chain_add(chain, llama_sampler_init_min_p(0.01f, 1));
    llama_sampler_chain_add(chain, llama_sampler_init_temp(1.5f));
    llama_sampler_chain_add(chain, llama_sampler_init_dist(seed));
    return chain;
}

int module_members(llama_sampler * chain) { return llama_sampler_chain_n(chain); }

llama_sampler * module_member(llama_sampler * chain, int at) {
    return llama_sampler_chain_get(chain, at);
}

llama_token module_sample(llama_sampler * chain, llama_context * context) {
    return llama_sampler_sample(chain, context, -1);
}

uint32_t module_seed(llama_sampler * chain) { return llama_sampler_get_seed(chain); }

void module_copy(llama_sampler * from, llama_sampler * to) { llama_sampler_copy(from, to); }

void module_free(llama_sampler * chain) { llama_sampler_free(chain); }

#ifdef _WIN32

extern void * __imp_llama_sampler_init_top_k;

void ** module_slot() { return &__imp_llama_sampler_init_top_k; }

#else

void ** module_slot() {
    void ** slot;
#ifdef __x86_64__
    __asm__("leaq llama_sampler_init_top_k@GOTPCREL(%%rip), %0" : "=r"(slot));
#else
    __asm__("adrp %0, :got:llama_sampler_init_top_k\n"
            "add %0, %0, :got_lo12:llama_sampler_init_top_k"
            : "=r"(slot));
#endif
    return slot;
}

#endif
}
