// Samples as llama-server does, through llama.cpp's common library. The tests run it with the
// built-in samplers and with ours, and compare what it prints: the remaining candidates at every
// token, bit for bit, and the accepted tokens of drafts.
//
//   common MODEL FIRST_SEED N_SEEDS
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "of_common.h"
#include "opened.h"
#include "sampling.h"

namespace {

constexpr int n_tokens = 24;

struct option_set {
    const char *                                    name;
    bool                                            grammar_first;
    std::function<void(common_params_sampling & params)> set;
    // The token that the template has begun the answer with, if any.
    llama_token begun = LLAMA_TOKEN_NULL;
};

const char * letters = "root ::= [a-z ,.;]+";
const char * phrase  = "root ::= \" the\" [a-z ]* \" and\" [a-z ]* \".\"";

// A reasoning budget, and a grammar that begins after the reasoning.
void thoughts(common_params_sampling & p) {
    p.reasoning_budget_tokens = 4;
    p.reasoning_budget_start  = { 5 };
    p.reasoning_budget_end    = { { 7 } };
    p.reasoning_budget_forced = { 9, 400, 7 };
    p.grammar                 = { COMMON_GRAMMAR_TYPE_USER, "root ::= [^aeiou]*" };
    p.grammar_lazy            = true;
    p.grammar_triggers        = { { COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN, "", 7 } };
}

std::vector<option_set> option_sets() {
    using P = common_params_sampling &;
    return {
        { "defaults", false, [](P) {} },
        { "defaults, grammar first", true, [](P) {} },
        { "draft", true, [](P p) { p.top_k = 10; p.samplers = { COMMON_SAMPLER_TYPE_TOP_K }; } },
        { "penalties", false,
          [](P p) { p.penalty_repeat = 1.1f; p.penalty_freq = 0.1f; p.penalty_present = 0.2f; } },
        { "penalties and dry", false,
          [](P p) { p.penalty_repeat = 1.2f; p.dry_multiplier = 1.5f; p.dry_allowed_length = 1; } },
        { "top-p alone", false, [](P p) { p.top_k = 0; p.min_p = 0.0f; } },
        { "min-p alone", false, [](P p) { p.top_k = 0; p.top_p = 1.0f; } },
        { "typical alone", false,
          [](P p) { p.top_k = 0; p.top_p = 1.0f; p.min_p = 0.0f; p.typ_p = 0.8f; } },
        { "top-n-sigma", false, [](P p) { p.top_n_sigma = 1.0f; p.top_k = 0; } },
        { "xtc", false, [](P p) { p.xtc_probability = 0.5f; p.xtc_threshold = 0.05f; } },
        { "dynamic temperature", false, [](P p) { p.dynatemp_range = 0.5f; } },
        { "large top-k", false, [](P p) { p.top_k = 300; p.top_p = 0.99f; p.min_p = 0.0f; } },
        { "nothing but temperature", false,
          [](P p) { p.top_k = 0; p.top_p = 1.0f; p.min_p = 0.0f; p.temp = 0.7f; } },
        { "greedy", false, [](P p) { p.temp = 0.0f; } },
        { "greedy of all", false,
          [](P p) { p.temp = 0.0f; p.top_k = 0; p.top_p = 1.0f; p.min_p = 0.0f; } },
        { "mirostat", false, [](P p) { p.mirostat = 1; } },
        { "mirostat 2", false, [](P p) { p.mirostat = 2; p.mirostat_tau = 3.0f; } },
        { "adaptive-p", false,
          [](P p) {
              p.samplers.push_back(COMMON_SAMPLER_TYPE_ADAPTIVE_P);
              p.adaptive_target = 0.4f;
          } },
        { "infill", false,
          [](P p) { p.samplers = { COMMON_SAMPLER_TYPE_TOP_K, COMMON_SAMPLER_TYPE_INFILL }; } },
        { "temperature first", false,
          [](P p) {
              p.samplers = { COMMON_SAMPLER_TYPE_TEMPERATURE, COMMON_SAMPLER_TYPE_TOP_P,
                             COMMON_SAMPLER_TYPE_TOP_K };
          } },
        { "biases, some twice", false,
          [](P p) {
              for (llama_token token = 3; token < 400; token += 7) {
                  p.logit_bias.push_back({ token, token % 2 == 0 ? 1.5f : -2.5f });
                  p.logit_bias.push_back({ token + token % 3, 0.5f });
              }
          } },
        { "grammar", false, [](P p) { p.grammar = { COMMON_GRAMMAR_TYPE_USER, letters }; } },
        { "grammar, first", true, [](P p) { p.grammar = { COMMON_GRAMMAR_TYPE_USER, letters }; } },
        { "grammar of few words", false,
          [](P p) { p.grammar = { COMMON_GRAMMAR_TYPE_USER, phrase }; p.penalty_repeat = 1.1f; } },
        { "grammar of words that are likely", false,
          [](P p) {
              p.grammar    = { COMMON_GRAMMAR_TYPE_USER, "root ::= \" the the the\" [a-z ]*" };
              p.logit_bias = { { 260, 20.0f } };
          } },
        { "grammar of few words, first", true,
          [](P p) { p.grammar = { COMMON_GRAMMAR_TYPE_USER, phrase }; p.top_k = 0; } },
        { "lazy grammar", false,
          [](P p) {
              p.grammar          = { COMMON_GRAMMAR_TYPE_USER, "root ::= \"the\" [^A-Z]*" };
              p.grammar_lazy     = true;
              p.grammar_triggers = {
                  { COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN, "the", LLAMA_TOKEN_NULL },
              };
          } },
        { "lazy grammar, first", true,
          [](P p) {
              p.grammar          = { COMMON_GRAMMAR_TYPE_USER, "root ::= \" the\" [^A-Z]*" };
              p.grammar_lazy     = true;
              p.grammar_triggers = { { COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN, " the", 260 } };
          } },
        { "budget", false,
          [](P p) {
              p.reasoning_budget_tokens = 4;
              p.reasoning_budget_start  = { 5 };
              p.reasoning_budget_end    = { { 7, 8 } };
              p.reasoning_budget_forced = { 9, 10, 7, 8 };
              p.logit_bias              = { { 5, 20.0f } };
          } },
        { "budget and grammar", false,
          [](P p) {
              p.reasoning_budget_tokens = 2;
              p.reasoning_budget_start  = { 5 };
              p.reasoning_budget_end    = { { 7, 8 } };
              p.reasoning_budget_forced = { 9, 7, 8 };
              p.logit_bias              = { { 5, 20.0f } };
              p.grammar                 = { COMMON_GRAMMAR_TYPE_USER, "root ::= .*" };
          } },
        { "budget and grammar of letters", false,
          [](P p) {
              p.reasoning_budget_tokens = 1;
              p.reasoning_budget_start  = { 5 };
              p.reasoning_budget_end    = { { 7 } };
              p.reasoning_budget_forced = { 300, 7 };
              p.logit_bias              = { { 5, 20.0f } };
              p.grammar                 = { COMMON_GRAMMAR_TYPE_USER, "root ::= [^q]*" };
          } },
        { "thoughts that have begun, lazy grammar first", true, thoughts, 5 },
        { "thoughts that have begun, lazy grammar", false, thoughts, 5 },
        { "budget and lazy grammar", false,
          [](P p) {
              p.reasoning_budget_tokens = 3;
              p.reasoning_budget_start  = { 5 };
              p.reasoning_budget_end    = { { 400 }, { 7, 8 } };
              p.reasoning_budget_forced = { 9, 400 };
              p.logit_bias              = { { 5, 20.0f } };
              p.grammar                 = { COMMON_GRAMMAR_TYPE_USER, "root ::= [^q]*" };
              p.grammar_lazy            = true;
              p.grammar_triggers = { { COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN, "", 400 } };
          } },
    };
}

uint32_t bits(float value) {
    uint32_t word;
    std::memcpy(&word, &value, sizeof(word));
    return word;
}

// Returns a hash of the remaining candidates: their number, the selected index, and every id with
// its bits.
uint64_t digest(const llama_token_data_array * left) {
    uint64_t sum = 14695981039346656037u;
    auto     mix = [&](uint64_t value) { sum = (sum ^ value) * 1099511628211u; };
    mix(left->size);
    mix(static_cast<uint64_t>(left->selected));
    mix(left->sorted);
    for (size_t i = 0; i < left->size; i++) {
        mix(static_cast<uint64_t>(left->data[i].id));
        mix(bits(left->data[i].logit));
        mix(bits(left->data[i].p));
    }
    return sum;
}

sampler_ptr make(const llama_model * model, const option_set & options, uint32_t seed) {
    common_params_sampling params;
    params.seed = seed;
    options.set(params);
    sampler_ptr sampler(common_sampler_init(model, params));
    if (!sampler) {
        fail("common_sampler_init returned NULL");
    }
    if (options.begun != LLAMA_TOKEN_NULL) {
        common_sampler_accept(sampler.get(), options.begun, true);
    }
    return sampler;
}

// Removes all but the first `n_past` tokens from the context.
void rewind(llama_context * context, size_t n_past) {
    llama_memory_seq_rm(llama_get_memory(context), 0, static_cast<llama_pos>(n_past), -1);
}

std::string heading(const option_set & options, const char * way, uint32_t seed) {
    return std::string(options.name) + way + ", seed " + std::to_string(seed) + ":";
}

// Generates tokens one by one, and returns them.
std::vector<llama_token> generate(llama_context * context, const std::vector<llama_token> & prompt,
                                  const option_set & options, uint32_t seed) {
    const llama_model *      model   = llama_get_model(context);
    sampler_ptr              sampler = make(model, options, seed);
    sampler_ptr              other   = make(model, options, seed + 1000);
    llama_token              last    = prompt.back();
    std::vector<llama_token> tokens;

    rewind(context, prompt.size() - 1);
    std::string line = heading(options, "", seed);
    for (int i = 0; i < n_tokens; i++) {
        decode(context, &last, 1);
        if (i == n_tokens / 3) {
            // A clone must continue from the original's state.
            sampler.reset(common_sampler_clone(sampler.get()));
        }
        if (i == n_tokens / 2) {
            // So must another sampler to which the state is copied.
            common_sampler_sample(other.get(), context, -1, options.grammar_first);
            common_sampler_copy(sampler.get(), other.get());
            std::swap(sampler, other);
        }
        const llama_token token =
            common_sampler_sample(sampler.get(), context, -1, options.grammar_first);
        const uint64_t    before = digest(common_sampler_get_candidates(sampler.get(), false));
        const uint64_t    sorted = digest(common_sampler_get_candidates(sampler.get(), true));
        if (llama_get_sampled_logits_ith(context, -1) != nullptr ||
            llama_get_sampled_candidates_count_ith(context, -1) != 0) {
            fail("a backend is said to have sampled");
        }
        common_sampler_accept(sampler.get(), token, true);
        char text[64];
        std::snprintf(text, sizeof(text), " %d/%016llx/%016llx", token,
                      static_cast<unsigned long long>(before),
                      static_cast<unsigned long long>(sorted));
        line += text;
        last = token;
        tokens.push_back(token);
        if (llama_vocab_is_eog(llama_model_get_vocab(model), token)) {
            break;
        }
    }
    std::printf("%s\n", line.c_str());
    return tokens;
}

// Drafts a few of `tokens` per step, some of them wrong. They are accepted as far as they equal the
// sampled ones, or by rejection sampling, which reads the candidates' probabilities.
void draft(llama_context * context, const std::vector<llama_token> & prompt,
           const option_set & options, uint32_t seed, const std::vector<llama_token> & tokens,
           bool rejecting) {
    constexpr size_t    n_drafts = 3;
    const llama_model * model    = llama_get_model(context);
    sampler_ptr         sampler  = make(model, options, seed);
    llama_token         last     = prompt.back();
    size_t              n_past   = prompt.size() - 1;
    llama_batch         batch    = llama_batch_init(n_drafts + 1, 0, 1);

    rewind(context, n_past);
    std::string line = heading(options, rejecting ? ", rejecting drafts" : ", drafts", seed);
    for (size_t at = 0; at + n_drafts <= tokens.size();) {
        llama_tokens                               drafts;
        std::vector<std::vector<llama_token_data>> chances;
        for (size_t i = at; i < at + n_drafts; i++) {
            const llama_token token = tokens[i] + (i % 5 == 4 ? 1 : 0);
            drafts.push_back(token);
            chances.push_back({ { token, 0.0f, 0.5f }, { token + 1, 0.0f, 0.5f } });
        }
        batch.n_tokens = 0;
        for (size_t i = 0; i <= n_drafts; i++) {
            batch.token[i]     = i == 0 ? last : drafts[i - 1];
            batch.pos[i]       = static_cast<llama_pos>(n_past + i);
            batch.n_seq_id[i]  = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i]    = 1;
            batch.n_tokens++;
        }
        if (llama_decode(context, batch) != 0) {
            fail("llama_decode failed");
        }
        const std::vector<int> outputs = { 0, 1, 2, 3 };
        const llama_tokens     taken =
            rejecting ? common_sampler_sample_and_accept_n_rejection(
                            sampler.get(), context, outputs, drafts, chances, options.grammar_first)
                      : common_sampler_sample_and_accept_n(sampler.get(), context, outputs, drafts,
                                                           options.grammar_first);
        line += " |";
        for (const llama_token token : taken) {
            line += " " + std::to_string(token);
        }
        at += taken.size();
        n_past += taken.size();
        last = taken.back();
        rewind(context, n_past);
        if (llama_vocab_is_eog(llama_model_get_vocab(model), last)) {
            break;
        }
    }
    llama_batch_free(batch);
    std::printf("%s\n", line.c_str());
}

} // namespace

int main(int argc, char ** argv) {
    if (argc != 4) {
        fail("usage: common MODEL FIRST_SEED N_SEEDS");
    }
    const opened             model(argv[1], 128);
    llama_context *          context = model.context();
    std::vector<llama_token> prompt  = tokenize(model.vocab(), "And the LORD said unto");
    decode(context, prompt.data(), prompt.size());

    const uint32_t first_seed = static_cast<uint32_t>(std::strtoul(argv[2], nullptr, 10));
    const uint32_t n_seeds    = static_cast<uint32_t>(std::strtoul(argv[3], nullptr, 10));
    for (const option_set & options : option_sets()) {
        for (uint32_t seed = first_seed; seed < first_seed + n_seeds; seed++) {
            const auto sample = [&] {
                const std::vector<llama_token> tokens = generate(context, prompt, options, seed);
                for (const bool rejecting : { false, true }) {
                    draft(context, prompt, options, seed, tokens, rejecting);
                }
            };
            // Also samples on other threads, since a server's threads have not made their samplers.
            if (seed % 2 == 0) {
                std::thread(sample).join();
            } else {
                sample();
            }
        }
    }
    return 0;
}
