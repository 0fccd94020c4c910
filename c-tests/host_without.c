/* A host that lacks a function. Every call that needs it must return its documented error and name
 * it; every other call must work.
 *
 * host_without <path of the host> <the function that it lacks, or "nothing"> */
#include "fake_host.h"
#include "messages.h"

static const char * lacking;

/* Returns true if a call that needs the functions of this list must fail. */
static bool lacks(const char * const * needed) {
    for (; *needed != NULL; needed++) {
        if (strcmp(*needed, lacking) == 0) {
            return true;
        }
    }
    return false;
}

/* Checks the last error: if the call has failed, it must name the missing function; otherwise it
 * must be empty. */
static void told(bool failed) {
    const char * text = llama_sieve_last_error();
    CHECK(failed ? strstr(text, lacking) != NULL : text[0] == '\0');
}

static void release(struct llama_sampler * smpl) {
    if (smpl != NULL) {
        smpl->iface->free(smpl);
        free(smpl);
    }
}

/* Its address stands for objects that are only passed back to the host. */
static char thing;
static const struct llama_vocab * vocab = (const struct llama_vocab *) (void *) &thing;

static void constructors(void) {
    static const char * const size[] = {"llama_vocab_n_tokens", NULL};
    static const char * const words[] = { "llama_vocab_n_tokens", "llama_vocab_is_eog",
                                          "llama_vocab_eot",      "llama_vocab_eos",
                                          "llama_detokenize",     "llama_token_to_piece",
                                          "llama_tokenize",       NULL };
    struct llama_sampler * smpl = llama_sieve_init_dist(42);
    CHECK(smpl != NULL);
    /* For our own samplers the host is not called. */
    CHECK(llama_sieve_get_seed(smpl) == 42);
    told(false);
    release(smpl);

    smpl = llama_sieve_init_trie_slot(vocab);
    CHECK((smpl == NULL) == lacks(size));
    told(lacks(size));
    release(smpl);

    const char * json =
        "{\"descriptors\":[{\"path\":\"p\",\"leaves\":[{\"name\":\"a\",\"tokens\":[1]}]}]}";
    smpl = llama_sampler_init_token_trie(vocab, json, 0);
    CHECK((smpl == NULL) == lacks(size));
    told(lacks(size));
    release(smpl);

    /* Without the texts of the vocabulary these samplers work less well, and warn about it. */
    smpl = llama_sieve_init_infill(vocab);
    CHECK(smpl != NULL);
    told(lacks(words));
    CHECK(strcmp(smpl->iface->name(smpl), lacks(words) ? "?infill" : "infill") == 0);
    release(smpl);

    const char * breakers[] = {"a"};
    smpl = llama_sieve_init_dry(vocab, 1.0f, 1.75f, 2, 64, breakers, 1);
    CHECK(smpl != NULL);
    told(lacks(words));
    release(smpl);
}

static void context(void) {
    static const char * const needed[] = { "llama_get_logits_ith", "llama_get_model",
                                           "llama_model_get_vocab", "llama_vocab_n_tokens", NULL };
    struct llama_sieve_params params = llama_sieve_default_params();
    params.temperature = 0.0f;
    struct llama_sieve * sieve = llama_sieve_new(&params);
    CHECK(sieve != NULL);
    int32_t token = llama_sieve_sample_ctx(sieve, (struct llama_context *) (void *) &thing, -1);
    CHECK(token == (lacks(needed) ? LLAMA_SIEVE_ERROR_NO_HOST : 3));
    told(lacks(needed));
    llama_sieve_free(sieve);
}

int main(int argc, char ** argv) {
    CHECK(argc == 3);
    lacking = argv[2];
    llama_sieve_log_set(ignore_message, NULL);
    void * host = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(host != NULL);
    int bound = llama_sieve_bind_host(host);
    if (strcmp(lacking, "llama_sampler_init") == 0) {
        CHECK(bound == LLAMA_SIEVE_ERROR_NO_HOST);
        told(true);
        CHECK(llama_sieve_init_dist(1) == NULL);
        told(true);
        puts("no host");
        return 0;
    }
    CHECK(bound == LLAMA_SIEVE_OK);
    told(false);
    constructors();
    context();
    puts("every call had its answer");
    return 0;
}
