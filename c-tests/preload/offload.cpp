// Samples in the graph (llama_set_sampler) with plain llama.h, on the CPU's backend. The tests run
// it with the built-in samplers and with ours, and compare what it prints.
//
//   offload MODEL
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "llama.h"

namespace {

[[noreturn]] void fail(const char * what) {
    std::fprintf(stderr, "offload: %s\n", what);
    std::exit(1);
}

struct model_free {
    void operator()(llama_model * model) const { llama_model_free(model); }
};
struct context_free {
    void operator()(llama_context * context) const { llama_free(context); }
};
struct sampler_free {
    void operator()(llama_sampler * sampler) const { llama_sampler_free(sampler); }
};
using sampler_ptr = std::unique_ptr<llama_sampler, sampler_free>;
using context_ptr = std::unique_ptr<llama_context, context_free>;
using members     = std::vector<llama_sampler *>;

llama_model *       model   = nullptr;
const llama_vocab * vocab   = nullptr;
int32_t             n_vocab = 0;

std::vector<llama_token> prompt;

llama_pos prompt_end() {
    return static_cast<llama_pos>(prompt.size());
}

sampler_ptr chain_of(const members & samplers) {
    sampler_ptr chain(llama_sampler_chain_init(llama_sampler_chain_default_params()));
    for (llama_sampler * sampler : samplers) {
        llama_sampler_chain_add(chain.get(), sampler);
    }
    return chain;
}

void show_names(llama_sampler * chain) {
    for (int i = 0; i < llama_sampler_chain_n(chain); i++) {
        std::printf(" [%s]", llama_sampler_name(llama_sampler_chain_get(chain, i)));
    }
}

context_ptr context_for(uint32_t n_seqs, uint32_t outputs_per_seq) {
    llama_context_params params   = llama_context_default_params();
    params.n_ctx                  = 256;
    params.n_batch                = 64;
    params.n_seq_max              = n_seqs;
    params.n_outputs_max_per_seq  = outputs_per_seq;
    params.n_threads              = 1;
    params.n_threads_batch        = 1;
    context_ptr context(llama_init_from_model(model, params));
    if (!context) {
        fail("no context");
    }
    return context;
}

struct position {
    llama_token  token;
    llama_pos    pos;
    llama_seq_id seq;
    bool         output;
};

void decode(llama_context * context, const std::vector<position> & positions) {
    llama_batch batch = llama_batch_init(static_cast<int32_t>(positions.size()), 0, 1);
    for (const position & at : positions) {
        const int32_t i    = batch.n_tokens++;
        batch.token[i]     = at.token;
        batch.pos[i]       = at.pos;
        batch.n_seq_id[i]  = 1;
        batch.seq_id[i][0] = at.seq;
        batch.logits[i]    = at.output;
    }
    const int32_t result = llama_decode(context, batch);
    llama_batch_free(batch);
    if (result != 0) {
        fail("llama_decode failed");
    }
}

std::vector<position> prompt_of(llama_seq_id seq) {
    std::vector<position> positions;
    for (size_t i = 0; i < prompt.size(); i++) {
        positions.push_back({ prompt[i], static_cast<llama_pos>(i), seq, i + 1 == prompt.size() });
    }
    return positions;
}

// Returns what the graph left for this output: "T" for a chosen token, "P" for probabilities, "L"
// for logits, or "" for nothing.
const char * where(llama_context * context, int32_t index) {
    if (llama_get_sampled_token_ith(context, index) != LLAMA_TOKEN_NULL) {
        return "T";
    }
    if (llama_get_sampled_probs_ith(context, index) != nullptr) {
        return "P";
    }
    return llama_get_sampled_logits_ith(context, index) != nullptr ? "L" : "";
}

// Samples `n` more tokens of sequence 0, from the output of the last decoded position. `then` runs
// before the last of them is decoded: that is when a host exchanges the sampler of a sequence.
llama_pos sample(llama_sampler * chain, llama_context * context, llama_pos pos, int n,
                 const std::function<void()> & then = nullptr) {
    for (int i = 0; i < n; i++) {
        std::printf(" %s", where(context, -1));
        const llama_token token = llama_sampler_sample(chain, context, -1);
        std::printf("%d", token);
        if (i + 1 == n && then) {
            then();
        }
        decode(context, { { token, pos++, 0, true } });
    }
    return pos;
}

struct option_set {
    const char *              name;
    std::function<members()> samplers;
};

std::vector<option_set> option_sets() {
    return {
        { "greedy", [] { return members{ llama_sampler_init_greedy() }; } },
        { "dist", [] { return members{ llama_sampler_init_dist(18) }; } },
        { "logit bias",
          [] {
              const llama_logit_bias biases[] = { { 5, 2.0f }, { 9, -1.5f }, { 40, 4.0f } };
              return members{ llama_sampler_init_logit_bias(n_vocab, 3, biases),
                              llama_sampler_init_dist(19) };
          } },
        { "penalties",
          [] {
              return members{ llama_sampler_init_penalties(n_vocab, 6, 1.5f, 0.3f, 0.4f),
                              llama_sampler_init_greedy() };
          } },
        { "penalties behind top-k",
          [] {
              return members{ llama_sampler_init_top_k(12),
                              llama_sampler_init_penalties(n_vocab, 16, 1.3f, 0.1f, 0.2f),
                              llama_sampler_init_dist(20) };
          } },
        { "temp",
          [] {
              return members{ llama_sampler_init_temp(0.6f),
                              llama_sampler_init_dist(21) };
          } },
        { "temp 0",
          [] {
              return members{ llama_sampler_init_temp(0.0f),
                              llama_sampler_init_dist(21) };
          } },
        { "temp-ext",
          [] {
              return members{ llama_sampler_init_temp_ext(0.8f, 0.3f, 1.2f),
                              llama_sampler_init_dist(22) };
          } },
        { "top-k",
          [] {
              return members{ llama_sampler_init_top_k(8),
                              llama_sampler_init_dist(23) };
          } },
        { "top-p",
          [] {
              return members{ llama_sampler_init_top_p(0.8f, 2),
                              llama_sampler_init_dist(24) };
          } },
        { "min-p",
          [] {
              return members{ llama_sampler_init_min_p(0.1f, 1),
                              llama_sampler_init_dist(25) };
          } },
        { "disabled in front",
          [] {
              return members{ llama_sampler_init_typical(1.0f, 1),
                              llama_sampler_init_top_n_sigma(-1.0f),
                              llama_sampler_init_top_k(0), llama_sampler_init_min_p(0.05f, 1),
                              llama_sampler_init_dist(26) };
          } },
        { "the rest on the CPU",
          [] {
              return members{ llama_sampler_init_top_k(20), llama_sampler_init_typical(0.7f, 1),
                              llama_sampler_init_temp(0.9f), llama_sampler_init_dist(27) };
          } },
        { "all on the CPU",
          [] {
              return members{ llama_sampler_init_xtc(0.5f, 0.1f, 1, 3),
                              llama_sampler_init_top_k(20),
                              llama_sampler_init_dist(28) };
          } },
        { "everything",
          [] {
              return members{ llama_sampler_init_penalties(n_vocab, 8, 1.2f, 0.0f, 0.1f),
                              llama_sampler_init_top_k(30), llama_sampler_init_top_p(0.9f, 1),
                              llama_sampler_init_min_p(0.02f, 1), llama_sampler_init_temp(0.8f),
                              llama_sampler_init_dist(29) };
          } },
    };
}

// Samples with a chain in the graph from the first token on. Then samples with a second chain on
// the CPU, offloads it, detaches it from its context again, and at last samples with a clone of it
// on the CPU.
void one_sequence(const option_set & options) {
    context_ptr context = context_for(1, 1);
    sampler_ptr chain   = chain_of(options.samplers());
    std::printf("%s:", options.name);
    if (!llama_set_sampler(context.get(), 0, chain.get())) {
        fail("the chain is refused");
    }
    decode(context.get(), prompt_of(0));
    llama_pos pos = sample(chain.get(), context.get(), prompt_end(), 12);
    show_names(chain.get());

    std::printf("\n  after the CPU:");
    context = context_for(1, 1);
    chain   = chain_of(options.samplers());
    decode(context.get(), prompt_of(0));
    const auto offload = [&] {
        std::vector<llama_sampler *> before;
        for (int i = 0; i < llama_sampler_chain_n(chain.get()); i++) {
            before.push_back(llama_sampler_chain_get(chain.get(), i));
        }
        const uint32_t seed = llama_sampler_get_seed(chain.get());
        llama_set_sampler(context.get(), 0, chain.get());
        for (int i = 0; i < llama_sampler_chain_n(chain.get()); i++) {
            if (before[static_cast<size_t>(i)] != llama_sampler_chain_get(chain.get(), i)) {
                fail("a member has another address");
            }
        }
        if (seed != llama_sampler_get_seed(chain.get())) {
            fail("another seed");
        }
    };
    pos = sample(chain.get(), context.get(), prompt_end(), 7, offload);
    const auto back = [&] { llama_set_sampler(context.get(), 0, nullptr); };
    pos = sample(chain.get(), context.get(), pos, 8, back);
    // Once detached, the chain still skips the members that ran in the graph, and selects nothing
    // unless its last member ran on the CPU.
    if (std::string(options.name).find("on the CPU") != std::string::npos) {
        std::printf(" | detached:");
        pos = sample(chain.get(), context.get(), pos, 16);
    }
    sampler_ptr copy(llama_sampler_clone(chain.get()));
    std::printf(" | clone:");
    pos = sample(copy.get(), context.get(), pos, 4);
    llama_sampler_reset(copy.get());
    std::printf(" | reset:");
    sample(copy.get(), context.get(), pos, 4);
    std::printf("\n");
}

// Copies between a chain in the graph and one that was cloned from it before.
void copies() {
    for (const option_set & options : option_sets()) {
        context_ptr context = context_for(1, 1);
        sampler_ptr chain   = chain_of(options.samplers());
        sampler_ptr spare(llama_sampler_clone(chain.get()));
        llama_set_sampler(context.get(), 0, chain.get());
        decode(context.get(), prompt_of(0));
        std::printf("copies, %s:", options.name);
        llama_pos pos = sample(chain.get(), context.get(), prompt_end(), 3);
        llama_sampler_accept(spare.get(), 7);
        // Restores the state that the spare has kept, samples on, and saves the state there again.
        llama_sampler_copy(spare.get(), chain.get());
        pos = sample(chain.get(), context.get(), pos, 4, [&] {
            llama_sampler_copy(chain.get(), spare.get());
            llama_set_sampler(context.get(), 0, nullptr);
        });
        std::printf(" | spare:");
        sample(spare.get(), context.get(), pos, 4);
        std::printf("\n");
    }
}

// One sequence in the graph, one mixed, one on the CPU, in one batch.
void several_sequences() {
    context_ptr context = context_for(3, 1);
    sampler_ptr chains[3] = {
        chain_of({ llama_sampler_init_top_k(10), llama_sampler_init_dist(1) }),
        chain_of({ llama_sampler_init_min_p(0.02f, 1), llama_sampler_init_typical(0.9f, 1),
                   llama_sampler_init_dist(2) }),
        chain_of({ llama_sampler_init_temp(0.7f), llama_sampler_init_dist(3) }),
    };
    llama_set_sampler(context.get(), 0, chains[0].get());
    llama_set_sampler(context.get(), 1, chains[1].get());
    std::vector<position> batch;
    std::vector<int32_t>  outputs;
    for (llama_seq_id seq = 0; seq < 3; seq++) {
        for (const position & at : prompt_of(seq)) {
            batch.push_back(at);
        }
        outputs.push_back(static_cast<int32_t>(batch.size()) - 1);
    }
    decode(context.get(), batch);
    std::printf("several sequences:");
    for (llama_pos pos = static_cast<llama_pos>(prompt.size()); pos < 24; pos++) {
        batch.clear();
        std::vector<int32_t> next;
        for (llama_seq_id seq = 0; seq < 3; seq++) {
            const auto    index = static_cast<size_t>(seq);
            llama_sampler * chain = chains[index].get();
            std::printf(" %s", where(context.get(), outputs[index]));
            const llama_token token = llama_sampler_sample(chain, context.get(), outputs[index]);
            std::printf("%d", token);
            batch.push_back({ token, pos, seq, true });
            next.push_back(seq);
        }
        outputs = next;
        decode(context.get(), batch);
    }
    std::printf("\n");
}

// Several outputs of one sequence, of which only some are accepted, as in speculative decoding.
void transactions() {
    const option_set sets[] = {
        { "dist", [] { return members{ llama_sampler_init_dist(31) }; } },
        { "chain",
          [] {
              return members{ llama_sampler_init_top_k(15), llama_sampler_init_temp(0.8f),
                              llama_sampler_init_dist(32) };
          } },
        { "penalties, which end the part in the graph",
          [] {
              return members{ llama_sampler_init_min_p(0.01f, 1),
                              llama_sampler_init_penalties(n_vocab, 8, 1.4f, 0.1f, 0.1f),
                              llama_sampler_init_dist(33) };
          } },
    };
    for (const option_set & options : sets) {
        context_ptr context = context_for(1, 4);
        sampler_ptr chain   = chain_of(options.samplers());
        llama_set_sampler(context.get(), 0, chain.get());
        decode(context.get(), prompt_of(0));
        std::printf("transactions, %s:", options.name);
        llama_token token = llama_sampler_sample(chain.get(), context.get(), -1);
        llama_pos   pos   = static_cast<llama_pos>(prompt.size());
        for (int round = 0; round < 6; round++) {
            // A draft of the same token three times; the first `kept` outputs are taken.
            decode(context.get(), { { token, pos, 0, true },
                                    { token, pos + 1, 0, true },
                                    { token, pos + 2, 0, true } });
            const int kept = 1 + round % 3;
            for (int i = 0; i < kept; i++) {
                std::printf(" %s", where(context.get(), i));
                token = llama_sampler_sample(chain.get(), context.get(), i);
                std::printf("%d", token);
            }
            llama_memory_seq_rm(llama_get_memory(context.get()), 0, pos + kept, -1);
            pos += kept;
        }
        show_names(chain.get());
        std::printf("\n");
    }
}

} // namespace

int main(int argc, char ** argv) {
    // A second argument leaves out the tests that copy the state of chains. Where built-ins have
    // replaced samplers of the library, the host's own function can copy only between chains with
    // the same replacements.
    if (argc != 2 && argc != 3) {
        return 1;
    }
    const bool copying = argc == 2;
    setvbuf(stdout, nullptr, _IONBF, 0);
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    llama_model_params params = llama_model_default_params();
    std::unique_ptr<llama_model, model_free> owner(llama_model_load_from_file(argv[1], params));
    if (!owner) {
        fail("no model");
    }
    model   = owner.get();
    vocab   = llama_model_get_vocab(model);
    n_vocab = llama_vocab_n_tokens(vocab);
    prompt.resize(16);
    const std::string text = "In the beg";
    const auto length = static_cast<int32_t>(text.size());
    const int  n      = llama_tokenize(vocab, text.data(), length, prompt.data(), 16, true, false);
    prompt.resize(static_cast<size_t>(n));
    for (const option_set & options : option_sets()) {
        one_sequence(options);
    }
    if (copying) {
        copies();
    }
    several_sequences();
    if (copying) {
        transactions();
    }
    return 0;
}
