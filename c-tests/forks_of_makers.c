/* Forks a process while its other threads make constraints, compute masks, set tries and log. The
 * children must be able to do the same. */
#define _GNU_SOURCE /* fork and alarm, beside -std=c11 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "messages.h"
#include "vocabulary.h"

#include "llama_sieve.h"

enum { N_CHILDREN = 300 };

static const struct llama_vocab * vocab;
static struct llama_sampler * slot;
static const float * logits;
static int32_t n_vocab;

static atomic_bool at_work = true;

/* In the functions below, the texts vary with `number`, so that caches contain them only
 * sometimes. */

static void sample_with(struct llama_sampler * constraint) {
    CHECK(constraint != NULL);
    struct llama_sampler * chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    llama_sampler_chain_add(chain, constraint);
    llama_sampler_chain_add(chain, llama_sieve_init_greedy());
    CHECK(llama_sieve_chain_sample_logits(chain, logits, n_vocab) >= 0);
    llama_sampler_free(chain);
}

static void make_a_grammar(uint32_t number) {
    char text[100];
    snprintf(text, sizeof(text), "root ::= \"a%u\" | [a-z]{%u}", number % 7, 1 + number % 5);
    sample_with(llama_sieve_init_grammar(vocab, text, "root"));
}

static void make_a_schema(uint32_t number) {
    char text[100];
    snprintf(text, sizeof(text), "{\"enum\":[%u,\"b\"],\"format\":\"date\"}", number % 7);
    sample_with(llama_sieve_init_json_schema(vocab, text, 0));
}

static void make_a_lazy_grammar(uint32_t number) {
    char pattern[100];
    snprintf(pattern, sizeof(pattern), "[^x]*x{%u}", 1 + number % 7);
    const char * patterns[] = { pattern };
    sample_with(llama_sieve_init_grammar_lazy_patterns(vocab, "root ::= \"x\"+", "root", patterns,
                                                       1, NULL, 0));
}

static void set_a_trie(uint32_t number) {
    char text[150];
    const int length = snprintf(text, sizeof(text),
                                "{\"descriptors\":[{\"path\":\"p\",\"leaves\":[{\"name\":\"a\","
                                "\"tokens\":[%u,%u]}]}]}",
                                300 + number % 7, 310 + number % 5);
    CHECK(llama_sieve_trie_set(slot, text, (size_t) length, LLAMA_SIEVE_TRIE_SAMPLED) ==
          LLAMA_SIEVE_OK);
    const char * names[] = { "one", "two" };
    sample_with(llama_sieve_init_trie_strings(vocab, names, 2, LLAMA_SIEVE_TRIE_SAMPLED));
}

static void log_a_warning(uint32_t number) {
    if (number % 5 == 0) {
        llama_sieve_log_set(ignore_message, NULL);
    }
    CHECK(llama_sieve_init_grammar(vocab, "root ::= (", "root") == NULL);
}

static void (*const all[])(uint32_t) = { make_a_grammar, make_a_schema, make_a_lazy_grammar,
                                         set_a_trie, log_a_warning };

enum { N_ALL = sizeof(all) / sizeof(all[0]) };

static void * work(void * argument) {
    void (*const * call)(uint32_t) = argument;
    for (uint32_t number = 0; atomic_load(&at_work); number++) {
        (*call)(number);
    }
    return NULL;
}

static void fork_beside(void (*const * call)(uint32_t)) {
    pthread_t threads[2];
    atomic_store(&at_work, true);
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&threads[i], NULL, work, (void *) (uintptr_t) call) == 0);
    }
    for (uint32_t i = 0; i < N_CHILDREN; i++) {
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(300);
            for (int one = 0; one < N_ALL; one++) {
                all[one](i);
            }
            _exit(0);
        }
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(status == 0);
    }
    atomic_store(&at_work, false);
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

int main(int argc, char ** argv) {
    struct llama_model * model = argc == 2 ? load_vocabulary(argv[1]) : NULL;
    CHECK(model != NULL);
    vocab = llama_model_get_vocab(model);
    n_vocab = llama_vocab_n_tokens(vocab);
    slot = llama_sieve_init_trie_slot(vocab);
    CHECK(slot != NULL);
    float * made = check_malloc((size_t) n_vocab * sizeof(float));
    for (int32_t i = 0; i < n_vocab; i++) {
        made[i] = (float) (i % 97);
    }
    logits = made;
    llama_sieve_log_set(ignore_message, NULL);
    for (int one = 0; one < N_ALL; one++) {
        fork_beside(&all[one]);
    }
    llama_sampler_free(slot);
    free(made);
    llama_model_free(model);
    puts("every child made all of them");
    return 0;
}
