/* The uses on the first page of the header, which a test writes to header_uses.inc, run on a
 * model. */
#include <stdio.h>
#include <string.h>

#include "llama.h"
#include "llama_sieve.h"

static void use(struct llama_context * ctx, const struct llama_vocab * vocab) {
    const int32_t n_vocab = llama_vocab_n_tokens(vocab);
    const float * logits = llama_get_logits_ith(ctx, -1);
    int32_t first;
#include "header_uses.inc"
    first = llama_sieve_chain_sample_logits(chain, logits, n_vocab);
    printf("tokens %d %d, trie and grammar %d %d\n", token >= 0, first >= 0,
           llama_sieve_trie_is_active(trie), llama_sieve_grammar_error(grammar) == 0);
    llama_sampler_free(trie);
    llama_sampler_free(grammar);
    llama_sampler_free(chain);
}

int main(int argc, char ** argv) {
    struct llama_model_params of_model = llama_model_default_params();
    struct llama_context_params of_context = llama_context_default_params();
    of_context.n_ctx = 64;
    of_context.n_threads = of_context.n_threads_batch = 1;
    struct llama_model * model = argc == 2 ? llama_model_load_from_file(argv[1], of_model) : NULL;
    struct llama_context * ctx = model ? llama_init_from_model(model, of_context) : NULL;
    if (ctx == NULL) {
        return 1;
    }
    const struct llama_vocab * vocab = llama_model_get_vocab(model);
    llama_token tokens[32];
    const char * prompt = "And the LORD said unto";
    const int32_t n =
        llama_tokenize(vocab, prompt, (int32_t) strlen(prompt), tokens, 32, true, false);
    if (n < 1 || llama_decode(ctx, llama_batch_get_one(tokens, n)) != 0) {
        return 1;
    }
    use(ctx, vocab);
    llama_free(ctx);
    llama_model_free(model);
    return 0;
}
