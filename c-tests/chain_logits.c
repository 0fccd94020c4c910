/* Chains that sample directly from the logits, and batches of them: every mistake must have a
 * defined result. */
#include "check.h"

#include "llama_sieve.h"

static struct llama_sampler * new_chain(void) {
    struct llama_sampler * chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    CHECK(chain != NULL);
    return chain;
}

static void check_error(int code, int expected, const char * text) {
    if (code != expected || strstr(llama_sieve_last_error(), text) == NULL) {
        fprintf(stderr, "%d, not %d: \"%s\", not \"%s\"\n", code, expected,
                llama_sieve_last_error(), text);
        exit(1);
    }
}

static void check_bad_input(void) {
    float logits[3]       = { 1.0f, 3.0f, 2.0f };
    const uint16_t f16[3] = { 0x3C00, 0x4200, 0x4000 };
    struct llama_sampler * filter = llama_sieve_init_top_k(2);
    struct llama_sampler * greedy = llama_sieve_init_greedy();
    struct llama_sampler * empty  = new_chain();

    check_error(llama_sieve_chain_sample(NULL, NULL, 0), LLAMA_SIEVE_ERROR_NULL,
                "the chain is NULL");
    check_error(llama_sieve_chain_sample(greedy, NULL, 0), LLAMA_SIEVE_ERROR_NULL,
                "the context is NULL");
    check_error(llama_sieve_chain_sample_logits(NULL, logits, 3), LLAMA_SIEVE_ERROR_NULL,
                "the chain is NULL");
    check_error(llama_sieve_chain_sample_logits(greedy, NULL, 3), LLAMA_SIEVE_ERROR_NULL,
                "logits is NULL");
    check_error(llama_sieve_chain_sample_logits(greedy, logits, 0), LLAMA_SIEVE_ERROR_SIZE,
                "n_vocab is 0");
    check_error(llama_sieve_chain_sample_logits(greedy, logits, -5), LLAMA_SIEVE_ERROR_SIZE,
                "n_vocab is -5");
    check_error(llama_sieve_chain_sample_f16(greedy, NULL, 3), LLAMA_SIEVE_ERROR_NULL,
                "logits is NULL");
    check_error(llama_sieve_chain_sample_bf16(greedy, f16, 0), LLAMA_SIEVE_ERROR_SIZE,
                "n_vocab is 0");
    check_error(llama_sieve_chain_sample_logits(filter, logits, 3), LLAMA_SIEVE_ERROR_INVALID,
                "selected");
    check_error(llama_sieve_chain_sample_logits(empty, logits, 3), LLAMA_SIEVE_ERROR_INVALID,
                "selected");

    /* A single sampler is a chain. */
    CHECK(llama_sieve_chain_sample_logits(greedy, logits, 3) == 1);
    CHECK(llama_sieve_chain_sample_f16(greedy, f16, 3) == 1);
    CHECK(llama_sieve_chain_sample_bf16(greedy, f16, 3) == 1);
    CHECK(strcmp(llama_sieve_last_error(), "") == 0);

    CHECK(llama_sieve_chain_sample_logits(greedy, logits, 3) == 1);
    check_error(llama_sieve_chain_candidates(NULL, NULL, 0), LLAMA_SIEVE_ERROR_NULL,
                "the chain is NULL");
    check_error(llama_sieve_chain_candidates(greedy, NULL, 1), LLAMA_SIEVE_ERROR_NULL,
                "out is NULL");
    check_error(llama_sieve_chain_candidates(filter, NULL, 0), 0, "not this chain's");
    llama_token_data out[4];
    CHECK(llama_sieve_chain_candidates(greedy, out, 4) == 3 && out[1].logit == 3.0f);
    /* Writes as many candidates as fit, and returns the number of all. */
    out[1].logit = -7.0f;
    CHECK(llama_sieve_chain_candidates(greedy, out, 1) == 3 && out[1].logit == -7.0f);

    struct llama_sampler * chains[2] = { greedy, filter };
    const float * of[2]  = { logits, logits };
    llama_token   got[2] = { -77, -77 };
    CHECK(llama_sieve_chain_sample_batch(NULL, NULL, 3, 0, NULL, 1) == LLAMA_SIEVE_OK);
    check_error(llama_sieve_chain_sample_batch(NULL, of, 3, 2, got, 1), LLAMA_SIEVE_ERROR_NULL,
                "chains is NULL");
    check_error(llama_sieve_chain_sample_batch(chains, NULL, 3, 2, got, 1), LLAMA_SIEVE_ERROR_NULL,
                "logits is NULL");
    check_error(llama_sieve_chain_sample_batch(chains, of, 3, 2, NULL, 1), LLAMA_SIEVE_ERROR_NULL,
                "out is NULL");
    check_error(llama_sieve_chain_sample_batch(chains, of, 3, 2, got, -1), LLAMA_SIEVE_ERROR_SIZE,
                "n_threads is -1");
    check_error(llama_sieve_chain_sample_batch(chains, of, 0, 2, got, 1), LLAMA_SIEVE_ERROR_SIZE,
                "n_vocab is 0");
    chains[1] = greedy;
    check_error(llama_sieve_chain_sample_batch(chains, of, 3, 2, got, 1), LLAMA_SIEVE_ERROR_BUSY,
                "chains 0 and 1 are the same");
    chains[1] = NULL;
    check_error(llama_sieve_chain_sample_batch(chains, of, 3, 2, got, 1), LLAMA_SIEVE_ERROR_NULL,
                "chain 1: the chain is NULL");
    CHECK(got[0] == -77 && got[1] == -77);
    chains[1] = filter;
    check_error(llama_sieve_chain_sample_batch(chains, of, 3, 2, got, 2), LLAMA_SIEVE_ERROR_INVALID,
                "chain 1");
    CHECK(got[0] == 1 && got[1] == LLAMA_SIEVE_ERROR_INVALID);
    /* Chains with a member of the host's run last, but the first error is the first chain's. */
    struct llama_sampler * built_in = llama_sampler_init_top_k(2);
    chains[0] = built_in;
    check_error(llama_sieve_chain_sample_batch(chains, of, 3, 2, got, 2), LLAMA_SIEVE_ERROR_INVALID,
                "batch: chain 0: ");
    CHECK(got[0] == LLAMA_SIEVE_ERROR_INVALID && got[1] == LLAMA_SIEVE_ERROR_INVALID);
    llama_sampler_free(built_in);
    /* After a batch there is no last token whose candidates could be returned. */
    check_error(llama_sieve_chain_candidates(greedy, NULL, 0), 0, "not this chain's");

    llama_sampler_free(empty);
    llama_sampler_free(greedy);
    llama_sampler_free(filter);
}

int main(void) {
    check_bad_input();
    puts("every chain had an answer");
    return 0;
}
