/* Makes every constraint, and every sampler that remembers tokens or draws, and samples with each,
 * under a filter that ends the process at any unneeded system call, such as getrandom. The first
 * argument is a model. */
#include "check.h"
#include "filter.h"
#include "vocabulary.h"

#include "llama_sieve.h"

static const struct llama_vocab * vocab;

/* Samples two tokens with a chain of `sampler` and a dist with a random seed. */
static void sample(const char * name, struct llama_sampler * sampler) {
    check_subject = name;
    CHECK(sampler != NULL && strcmp(llama_sieve_last_error(), "") == 0);
    struct llama_sampler * chain =
        llama_sampler_chain_init(llama_sampler_chain_default_params());
    llama_sampler_chain_add(chain, sampler);
    llama_sampler_chain_add(chain, llama_sieve_init_dist(LLAMA_DEFAULT_SEED));
    const size_t       n    = (size_t) llama_vocab_n_tokens(vocab);
    llama_token_data * data = check_malloc(n * sizeof(*data));
    numbers            from = { .state = 1 };
    for (int i = 0; i < 2; i++) {
        fill_candidates(data, n, &from);
        llama_token_data_array all = { .data = data, .size = n, .selected = -1, .sorted = false };
        llama_sampler_apply(chain, &all);
        CHECK(all.selected >= 0 && all.selected < (int64_t) all.size);
        llama_sampler_accept(chain, all.data[all.selected].id);
    }
    free(data);
    llama_sampler_free(chain);
}

static void sample_constraints(void) {
    const char * const values[] = { " Moses", " Aaron" };
    sample("trie of strings",
           llama_sieve_init_trie_strings(vocab, values, 2, LLAMA_SIEVE_TRIE_SAMPLED));
    sample("token trie", llama_sampler_init_token_trie(
                             vocab,
                             "{\"descriptors\":[{\"path\":\"\",\"leaves\":["
                             "{\"name\":\"a\",\"tokens\":[5,6]},"
                             "{\"name\":\"b\",\"tokens\":[7,8]}]}]}",
                             LLAMA_SIEVE_TRIE_SAMPLED));
    sample("grammar", llama_sieve_init_grammar(vocab, "root ::= word*\nword ::= [a-z ]", "root"));
    const char * words[]    = { "Moses" };
    const char * patterns[] = { "Mo(s|z)es" };
    sample("lazy grammar", llama_sieve_init_grammar_lazy(vocab, "root ::= \"Moses\"", "root", words,
                                                         1, NULL, 0));
    sample("lazy grammar of patterns",
           llama_sieve_init_grammar_lazy_patterns(vocab, "root ::= \"Moses\"", "root", patterns, 1,
                                                  NULL, 0));
    sample("regular expression", llama_sieve_init_regex(vocab, "[a-z]+ [a-z]+", 0));
    sample("choice", llama_sieve_init_choice(vocab, values, 2));
    sample("schema", llama_sieve_init_json_schema(
                         vocab,
                         "{\"$defs\":{\"a\":{\"type\":\"string\",\"pattern\":\"^[a-z]+$\"}},"
                         "\"properties\":{\"b\":{\"$ref\":\"#/$defs/a\"}},\"required\":[\"b\"]}",
                         0));
    sample("tags", llama_sieve_init_tags(
                       vocab,
                       "{\"tags\":[{\"begin\":\"<f>\",\"regex\":\"[0-9]+\",\"end\":\"</f>\"}]}",
                       0));
}

static void sample_others(void) {
    const int n = llama_vocab_n_tokens(vocab);
    sample("penalties", llama_sieve_init_penalties(n, 64, 1.1f, 0.1f, 0.2f));
    const char * breakers[] = { "\n", ".", " the" };
    sample("dry", llama_sieve_init_dry(vocab, 0.8f, 1.75f, 2, 512, breakers, 3));
    sample("infill", llama_sieve_init_infill(vocab));
    sample("xtc", llama_sieve_init_xtc(0.5f, 0.1f, 1, LLAMA_DEFAULT_SEED));
    sample("mirostat", llama_sieve_init_mirostat(n, LLAMA_DEFAULT_SEED, 5.0f, 0.1f, 100));
    sample("adaptive-p", llama_sieve_init_adaptive_p(0.5f, 0.9f, LLAMA_DEFAULT_SEED));
    const llama_sieve_params params = llama_sieve_default_params();
    sample("sieve", llama_sieve_init_sampler(&params));
}

int main(int argc, char ** argv) {
    CHECK(argc == 2);
    llama_backend_init();
    struct llama_model * model = load_vocabulary(argv[1]);
    CHECK(model != NULL);
    vocab = llama_model_get_vocab(model);
    end_at_other_system_calls();
    sample_constraints();
    sample_others();
    llama_model_free(model);
    printf("no other system call\n");
    return 0;
}
