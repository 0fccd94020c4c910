/* Numbers of elements that nobody can mean, in every function that takes one: each is an error that
 * names the argument and the limit, nothing is read beyond what is there, and nothing is written.
 *
 * Argument: the trained model. With a second one, N: the N-th case alone. */
#include <math.h>
#include <stdint.h>

#include "check.h"

#include "llama_sieve.h"
#include "messages.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

enum { N_VOCAB = 64, ROOM = 16 };

static const struct llama_vocab * vocab;
static const size_t ABSURD[] = {
    (size_t) 1 << 40, (size_t) 1 << 61, (size_t) 1 << 62, SIZE_MAX / 2, SIZE_MAX / 2 + 1,
    SIZE_MAX / 4 + 1, SIZE_MAX / 16 + 1, SIZE_MAX - 1, SIZE_MAX,
};
enum { N_ABSURD = sizeof(ABSURD) / sizeof(ABSURD[0]) };

static const char * const PAYLOAD =
    "{\"descriptors\":[{\"path\":\"p\",\"leaves\":[{\"name\":\"a\",\"tokens\":[1,2]}]}]}";

static void ignore_log(enum ggml_log_level level, const char * text, void * user) {
    ignore_message((int) level, text, user);
}

/* What is written to, between bytes that nobody may change. */
static unsigned char room[4096];

static void * fresh_room(void) {
    memset(room, 0xA5, sizeof(room));
    return room + 1024;
}

static bool is_untouched(void) {
    for (size_t i = 0; i < sizeof(room); i++) {
        if (room[i] != 0xA5) {
            return false;
        }
    }
    return true;
}

/* What is used. Made anew for each number, so that no case depends on another. */
static struct llama_sampler * trie;
static struct llama_sampler * grammar;
static struct llama_sampler * chain;
static llama_sieve *          sieve;
static float                  logits[N_VOCAB];
static llama_token_data       candidates[N_VOCAB];
static uint8_t                state[8192];
static size_t                 state_size;

static void make_all(void) {
    trie    = llama_sampler_init_token_trie(NULL, PAYLOAD, LLAMA_SIEVE_TRIE_SAMPLED);
    grammar = llama_sieve_init_grammar(vocab, "root ::= [a-z]+", "root");
    chain   = llama_sampler_chain_init(llama_sampler_chain_default_params());
    CHECK(trie != NULL && grammar != NULL && chain != NULL);
    llama_sampler_chain_add(chain, llama_sieve_init_greedy());
    llama_sieve_params params = llama_sieve_default_params();
    params.rng                = LLAMA_SIEVE_RNG_MT19937;
    sieve                     = llama_sieve_new(&params);
    CHECK(sieve != NULL);
    for (int i = 0; i < N_VOCAB; i++) {
        logits[i]     = 0.5f * (float) i;
        candidates[i] = (llama_token_data) { .id = i, .logit = logits[i], .p = 0.0f };
    }
    CHECK(llama_sieve_sample(sieve, logits, N_VOCAB) >= 0);
    llama_sieve_accept(sieve, 3);
    llama_sieve_stages stages = llama_sieve_default_stages();
    CHECK(llama_sieve_set_stages(sieve, &stages) == LLAMA_SIEVE_OK);
    state_size = llama_sieve_state_size(sieve);
    CHECK(state_size > 0 && state_size <= sizeof(state));
    CHECK(llama_sieve_state_save(sieve, state, state_size) == LLAMA_SIEVE_OK);
    CHECK(llama_sieve_chain_sample_logits(chain, logits, N_VOCAB) == N_VOCAB - 1);
}

static void free_all(void) {
    llama_sampler_free(trie);
    llama_sampler_free(grammar);
    llama_sampler_free(chain);
    llama_sieve_free(sieve);
}

/* The cases. Each says whether it was refused as its kind of function refuses. */

static const char * texts[] = { "\n", ":" };

static bool dry(size_t n) {
    return llama_sieve_init_dry(vocab, 0.8f, 1.75f, 2, 64, texts, n) == NULL;
}

static bool dry_without_vocabulary(size_t n) {
    return llama_sieve_init_dry(NULL, 0.8f, 1.75f, 2, 64, texts, n) == NULL;
}

static bool set_dry_breakers(size_t n) {
    return llama_sieve_set_dry_breakers(sieve, vocab, texts, n) == LLAMA_SIEVE_ERROR_SIZE;
}

static bool mask(size_t n) {
    return llama_sieve_grammar_mask(grammar, fresh_room(), n) == 0;
}

static bool words(size_t n) {
    return llama_sieve_init_grammar_lazy(vocab, "root ::= [a-z]+", "root", texts, n, NULL, 0) ==
           NULL;
}

static bool patterns(size_t n) {
    return llama_sieve_init_grammar_lazy_patterns(vocab, "root ::= [a-z]+", "root", texts, n, NULL,
                                                  0) == NULL;
}

static const llama_token tokens[] = { 1, 2 };

static bool tokens_with_words(size_t n) {
    return llama_sieve_init_grammar_lazy(vocab, "root ::= [a-z]+", "root", texts, 2, tokens, n) ==
           NULL;
}

static bool tokens_with_patterns(size_t n) {
    return llama_sieve_init_grammar_lazy_patterns(vocab, "root ::= [a-z]+", "root", texts, 2,
                                                  tokens, n) == NULL;
}

static bool trie_set(size_t n) {
    return llama_sieve_trie_set(trie, PAYLOAD, n, LLAMA_SIEVE_TRIE_SAMPLED) ==
           LLAMA_SIEVE_ERROR_SIZE;
}

static bool trie_set_by_handle(size_t n) {
    int handle;
    CHECK(eliza_inference_bind_token_trie(&handle, trie) == LLAMA_SIEVE_OK);
    eliza_inference_set_token_trie(&handle, PAYLOAD, n, LLAMA_SIEVE_TRIE_SAMPLED);
    CHECK(eliza_inference_bind_token_trie(&handle, NULL) == LLAMA_SIEVE_OK);
    /* That has cleared the error of this case. */
    return !trie_set(n) ? false : llama_sieve_trie_is_active(trie);
}

static bool trie_strings(size_t n) {
    const char * const strings[] = { "a", "b" };
    return llama_sieve_init_trie_strings(vocab, strings, n, LLAMA_SIEVE_TRIE_SAMPLED) == NULL;
}

static bool trie_forced(size_t n) {
    return llama_sieve_trie_forced(trie, fresh_room(), n) == 0;
}

static bool trie_allowed(size_t n) {
    return llama_sieve_trie_allowed(trie, fresh_room(), n) == 0;
}

static bool chain_batch(size_t n) {
    struct llama_sampler * const chains[] = { chain };
    const float * const          rows[]   = { logits };
    return llama_sieve_chain_sample_batch(chains, rows, N_VOCAB, n, fresh_room(), 1) ==
           LLAMA_SIEVE_ERROR_SIZE;
}

static bool chain_candidates(size_t n) {
    return llama_sieve_chain_candidates(chain, fresh_room(), n) == LLAMA_SIEVE_ERROR_SIZE;
}

static bool sieve_batch(size_t n) {
    llama_sieve * const sieves[] = { sieve };
    const float * const rows[]   = { logits };
    return llama_sieve_sample_batch(sieves, rows, N_VOCAB, n, fresh_room(), 1) ==
           LLAMA_SIEVE_ERROR_SIZE;
}

static bool sieve_candidates(size_t n) {
    return llama_sieve_candidates(sieve, fresh_room(), n) == LLAMA_SIEVE_ERROR_SIZE;
}

static bool history_unique(size_t n) {
    return llama_sieve_history_unique(sieve, fresh_room(), n) == 0;
}

static bool get_stages(size_t n) {
    return llama_sieve_get_stages(sieve, fresh_room(), n) == LLAMA_SIEVE_ERROR_SIZE;
}

static bool set_stages(size_t n) {
    llama_sieve_stages stages = llama_sieve_default_stages();
    stages.n_stages           = n;
    return llama_sieve_set_stages(sieve, &stages) == LLAMA_SIEVE_ERROR_PARAMS;
}

static const llama_logit_bias biases[] = { { 1, 1.0f } };

static bool biases_of_a_sieve(size_t n) {
    llama_sieve_params params = llama_sieve_default_params();
    params.bias               = biases;
    params.n_bias             = n;
    return llama_sieve_set_params(sieve, &params) == LLAMA_SIEVE_ERROR_SIZE &&
           llama_sieve_new(&params) == NULL;
}

static bool biases_of_a_sampler(size_t n) {
    llama_sieve_params params = llama_sieve_default_params();
    params.bias               = biases;
    params.n_bias             = n;
    return llama_sieve_init_sampler(&params) == NULL;
}

static bool state_save(size_t n) {
    return llama_sieve_state_save(sieve, fresh_room(), n) == LLAMA_SIEVE_ERROR_STATE;
}

static bool state_load(size_t n) {
    return llama_sieve_state_load(sieve, state, n) == LLAMA_SIEVE_ERROR_STATE;
}

static bool state_load_with(size_t n) {
    return llama_sieve_state_load_with(sieve, state, n, LLAMA_SIEVE_STATE_PARAMS) ==
           LLAMA_SIEVE_ERROR_STATE;
}

static bool entropy_of_candidates(size_t n) {
    return isnan(llama_sieve_candidates_entropy(candidates, n, 0));
}

static bool surprisal_of_candidates(size_t n) {
    return isnan(llama_sieve_candidates_surprisal(candidates, n, 3, 0));
}

/* What is refused, how it is called, and the limit's name. */
static const struct {
    bool (*is_refused)(size_t n);
    const char * argument;
    size_t       most;
    const char * limit;
} CASES[] = {
#define LIMIT(name) name, #name
    { dry, "n_breakers", LIMIT(LLAMA_SIEVE_DRY_MAX_BREAKERS) },
    { dry_without_vocabulary, "n_breakers", LIMIT(LLAMA_SIEVE_DRY_MAX_BREAKERS) },
    { set_dry_breakers, "n_breakers", LIMIT(LLAMA_SIEVE_DRY_MAX_BREAKERS) },
    { mask, "n_words", LIMIT(LLAMA_SIEVE_GRAMMAR_MAX_MASK_WORDS) },
    { words, "num_trigger_words", LIMIT(LLAMA_SIEVE_GRAMMAR_MAX_TRIGGER_STATES) },
    { patterns, "num_trigger_patterns", LIMIT(LLAMA_SIEVE_GRAMMAR_MAX_TRIGGER_STATES) },
    { tokens_with_words, "num_trigger_tokens", LIMIT(LLAMA_SIEVE_GRAMMAR_MAX_TRIGGER_TOKENS) },
    { tokens_with_patterns, "num_trigger_tokens", LIMIT(LLAMA_SIEVE_GRAMMAR_MAX_TRIGGER_TOKENS) },
    { trie_set, "len", LIMIT(LLAMA_SIEVE_TRIE_MAX_PAYLOAD) },
    { trie_set_by_handle, "len", LIMIT(LLAMA_SIEVE_TRIE_MAX_PAYLOAD) },
    { trie_strings, "n", LIMIT(LLAMA_SIEVE_TRIE_MAX_STRINGS) },
    { trie_forced, "cap", LIMIT(LLAMA_SIEVE_MAX_ELEMENTS) },
    { trie_allowed, "cap", LIMIT(LLAMA_SIEVE_MAX_ELEMENTS) },
    { chain_batch, "n", LIMIT(LLAMA_SIEVE_MAX_BATCH) },
    { chain_candidates, "cap", LIMIT(LLAMA_SIEVE_MAX_ELEMENTS) },
    { sieve_batch, "n", LIMIT(LLAMA_SIEVE_MAX_BATCH) },
    { sieve_candidates, "cap", LIMIT(LLAMA_SIEVE_MAX_ELEMENTS) },
    { history_unique, "cap", LIMIT(LLAMA_SIEVE_MAX_ELEMENTS) },
    { get_stages, "cap", LIMIT(LLAMA_SIEVE_MAX_ELEMENTS) },
    { set_stages, "n_stages", 13, "each at most once" },
    { biases_of_a_sieve, "n_bias", LIMIT(LLAMA_SIEVE_MAX_ELEMENTS) },
    { biases_of_a_sampler, "n_bias", LIMIT(LLAMA_SIEVE_MAX_ELEMENTS) },
    { state_save, "size", LIMIT(LLAMA_SIEVE_STATE_MAX_BYTES) },
    { state_load, "size", LIMIT(LLAMA_SIEVE_STATE_MAX_BYTES) },
    { state_load_with, "size", LIMIT(LLAMA_SIEVE_STATE_MAX_BYTES) },
    { entropy_of_candidates, "n", LIMIT(LLAMA_SIEVE_MAX_ELEMENTS) },
    { surprisal_of_candidates, "n", LIMIT(LLAMA_SIEVE_MAX_ELEMENTS) },
};
enum { N_CASES = sizeof(CASES) / sizeof(CASES[0]) };

static void refused(int i, size_t n) {
    char subject[96], argument[96], limit[96];
    snprintf(subject, sizeof(subject), "case %d, %s %zu", i, CASES[i].argument, n);
    snprintf(argument, sizeof(argument), "%s is %zu;", CASES[i].argument, n);
    snprintf(limit, sizeof(limit), "%zu at most (%s)", CASES[i].most, CASES[i].limit);
    check_subject = subject;
    make_all();
    fresh_room();
    CHECK(CASES[i].is_refused(n));
    CHECK(strstr(llama_sieve_last_error(), argument) != NULL);
    CHECK(strstr(llama_sieve_last_error(), limit) != NULL);
    CHECK(is_untouched());
    /* Nothing else has changed. */
    CHECK(llama_sieve_trie_allowed(trie, NULL, 0) == 1);
    CHECK(llama_sieve_history_size(sieve) == 1);
    uint8_t again[sizeof(state)];
    CHECK(llama_sieve_state_size(sieve) == state_size);
    CHECK(llama_sieve_state_save(sieve, again, state_size) == LLAMA_SIEVE_OK);
    CHECK(memcmp(again, state, state_size) == 0);
    free_all();
    check_subject = "";
}

/* Where nothing is to be written, a number says nothing. */
static void without_room(void) {
    make_all();
    CHECK(llama_sieve_grammar_mask(grammar, NULL, SIZE_MAX) > 0);
    CHECK(llama_sieve_trie_allowed(trie, NULL, SIZE_MAX) == 1);
    CHECK(llama_sieve_trie_forced(trie, NULL, SIZE_MAX) == 2);
    CHECK(llama_sieve_history_unique(sieve, NULL, SIZE_MAX) == 1);
    struct llama_sampler * none = llama_sieve_init_dry(vocab, 0.8f, 1.75f, 2, 64, NULL, SIZE_MAX);
    CHECK(none != NULL && strcmp(llama_sampler_name(none), "dry") == 0);
    llama_sampler_free(none);
    free_all();
}

/* A vocabulary that there is not: no memory is taken for it. */
static void reserved(void) {
    make_all();
    CHECK(llama_sieve_reserve(sieve, LLAMA_SIEVE_MAX_RESERVED + 1) == LLAMA_SIEVE_ERROR_SIZE);
    CHECK(strstr(llama_sieve_last_error(), "LLAMA_SIEVE_MAX_RESERVED") != NULL);
    CHECK(llama_sieve_reserve(sieve, INT32_MAX) == LLAMA_SIEVE_ERROR_SIZE);
    free_all();
}

int main(int argc, char ** argv) {
    CHECK(argc == 2 || argc == 3);
    llama_log_set(ignore_log, NULL);
    llama_sieve_log_set(ignore_message, NULL);
    struct llama_model_params params = llama_model_default_params();
    params.vocab_only                = true;
    struct llama_model * model       = llama_model_load_from_file(argv[1], params);
    CHECK(model != NULL);
    vocab = llama_model_get_vocab(model);
    for (int i = 0; i < N_CASES; i++) {
        if (argc == 3 && atoi(argv[2]) != i) {
            continue;
        }
        refused(i, CASES[i].most + 1);
        for (int h = 0; h < N_ABSURD; h++) {
            refused(i, ABSURD[h]);
        }
    }
    if (argc == 2) {
        without_room();
        reserved();
    }
    llama_sieve_vocab_forget(vocab);
    llama_model_free(model);
    puts("no number was followed");
    return 0;
}
