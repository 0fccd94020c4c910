/* Tests token tries by opaque handle, for a host that has only a stream's handle where it sets a
 * constraint. */
#define _POSIX_C_SOURCE 200809L /* pthread barriers, beside -std=c11 */

#include <pthread.h>
#include <stdatomic.h>

#include "llama_sieve.h"
#include "../messages.h"

#include "../check.h"
#include "../vocabulary.h"

/* Two constraints without a common token, and one that is a sequence of three. */
static const char LOW[] = "{\"descriptors\": [{\"path\": \"a\", \"leaves\": [{\"name\": \"ten\", "
                          "\"tokens\": [10]}, {\"name\": \"eleven\", \"tokens\": [11, 13]}, "
                          "{\"name\": \"twelve\", \"tokens\": [12]}]}]}";
static const char HIGH[] =
    "{\"descriptors\": [{\"path\": \"a\", \"leaves\": [{\"name\": \"fifty\", \"tokens\": [50]}, "
    "{\"name\": \"sixty\", \"tokens\": [60, 61, 62]}]}]}";
static const char LONG[] = "{\"descriptors\": [{\"path\": \"a\", \"leaves\": [{\"name\": \"long\", "
                           "\"tokens\": [20, 21, 22]}]}]}";

/* Returns a handle that points to nothing: handles are only compared. */
static void * handle(uintptr_t number) {
    return (void *) number;
}

static atomic_int n_errors_logged;

static void count_errors(int level, const char * text, void * user) {
    (void) text;
    (void) user;
    if (level == LLAMA_SIEVE_LOG_ERROR) {
        atomic_fetch_add(&n_errors_logged, 1);
    }
}

static void set(void * to, const char * json, int mode) {
    eliza_inference_set_token_trie(to, json, strlen(json), mode);
}

/* Applies the sampler to tokens 0 to 99, as a chain of the host does. Returns how many are left. */
static size_t left_by(struct llama_sampler * smpl, llama_token * tokens) {
    guarded g = guarded_new(100);
    for (size_t i = 0; i < g.n; i++) {
        g.array.data[i].logit = 1.0f + (float) i;
    }
    llama_sampler_apply(smpl, &g.array);
    CHECK(guards_are_intact(&g));
    size_t n = 0;
    for (size_t i = 0; i < g.array.size; i++) {
        if (g.array.data[i].logit > -1e30f) {
            tokens[n++] = g.array.data[i].id;
        }
    }
    guarded_free(&g);
    return n;
}

static bool is_low(const llama_token * tokens, size_t n) {
    return n == 3 && tokens[0] == 10 && tokens[1] == 11 && tokens[2] == 12;
}

static bool is_high(const llama_token * tokens, size_t n) {
    return n == 2 && tokens[0] == 50 && tokens[1] == 60;
}

static struct llama_sampler * new_slot(void) {
    struct llama_sampler * slot = llama_sieve_init_trie_slot(NULL);
    CHECK(slot != NULL);
    return slot;
}

static void wrong_handles_are_answered(void) {
    check_subject = "wrong handles";
    struct llama_sampler * slot = new_slot();
    const int before = atomic_load(&n_errors_logged);

    CHECK(eliza_inference_bind_token_trie(NULL, slot) == LLAMA_SIEVE_ERROR_NULL);
    CHECK(says("eliza_inference_bind_token_trie: the handle is NULL"));
    set(NULL, LOW, LLAMA_SIEVE_TRIE_SAMPLED);
    CHECK(says("eliza_inference_set_token_trie: the handle is NULL"));
    eliza_inference_clear_token_trie(NULL);
    CHECK(says("eliza_inference_clear_token_trie: the handle is NULL"));

    CHECK(eliza_inference_bind_token_trie(handle(1), NULL) == LLAMA_SIEVE_ERROR_NOT_FOUND);
    CHECK(says("eliza_inference_bind_token_trie"));
    set(handle(1), LOW, LLAMA_SIEVE_TRIE_SAMPLED);
    CHECK(says("eliza_inference_set_token_trie"));
    eliza_inference_clear_token_trie(handle(1));
    CHECK(says("eliza_inference_clear_token_trie"));
    /* Functions without a result log their errors. */
    CHECK(atomic_load(&n_errors_logged) == before + 4);

    llama_token tokens[100];
    CHECK(!llama_sieve_trie_is_active(slot) && left_by(slot, tokens) == 100);
    llama_sampler_free(slot);
}

static void only_token_tries_are_bound(void) {
    check_subject = "other samplers";
    struct llama_sampler * ours     = llama_sieve_init_greedy();
    struct llama_sampler * built_in = llama_sampler_init_greedy();
    struct llama_sampler * chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    struct llama_sampler * wrong[]  = { ours, built_in, chain };
    for (size_t i = 0; i < 3; i++) {
        CHECK(wrong[i] != NULL);
        CHECK(eliza_inference_bind_token_trie(handle(2), wrong[i]) == LLAMA_SIEVE_ERROR_INVALID);
        CHECK(says("no token trie"));
        llama_sampler_free(wrong[i]);
    }
    set(handle(2), LOW, LLAMA_SIEVE_TRIE_SAMPLED);
    CHECK(says("eliza_inference_set_token_trie"));
}

static void a_bound_slot_is_set_and_cleared(void) {
    check_subject = "set and clear";
    struct llama_sampler * slot = new_slot();
    llama_token tokens[100];
    CHECK(eliza_inference_bind_token_trie(handle(3), slot) == LLAMA_SIEVE_OK);
    CHECK(strcmp(llama_sieve_last_error(), "") == 0);

    set(handle(3), LOW, LLAMA_SIEVE_TRIE_SAMPLED);
    CHECK(strcmp(llama_sieve_last_error(), "") == 0);
    CHECK(llama_sieve_trie_is_active(slot));
    CHECK(is_low(tokens, left_by(slot, tokens)));

    /* After an error the constraint and its position are unchanged. */
    llama_sampler_accept(slot, 11);
    const struct {
        const char * json;
        int          mode;
        const char * words;
    } wrong[] = {
        { NULL, LLAMA_SIEVE_TRIE_SAMPLED, "NULL" },
        { "", LLAMA_SIEVE_TRIE_SAMPLED, "line 1" },
        { "{\"descriptors\": [", LLAMA_SIEVE_TRIE_SAMPLED, "line 1 column" },
        { "{\"descriptors\": []}", LLAMA_SIEVE_TRIE_SAMPLED, "no leaf" },
        { HIGH, 2, "mode 2" },
        { HIGH, -1, "mode -1" },
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        eliza_inference_set_token_trie(handle(3), wrong[i].json,
                                       wrong[i].json == NULL ? 5 : strlen(wrong[i].json),
                                       wrong[i].mode);
        CHECK(says(wrong[i].words));
        CHECK(left_by(slot, tokens) == 1 && tokens[0] == 13);
    }
    /* The length decides, not a NUL. */
    eliza_inference_set_token_trie(handle(3), HIGH, sizeof(HIGH), LLAMA_SIEVE_TRIE_SAMPLED);
    CHECK(says("line 1"));
    eliza_inference_set_token_trie(handle(3), HIGH, strlen(HIGH) - 1, LLAMA_SIEVE_TRIE_SAMPLED);
    CHECK(says("line 1"));
    CHECK(left_by(slot, tokens) == 1 && tokens[0] == 13);

    llama_sampler_accept(slot, 13);
    CHECK(!llama_sieve_trie_is_active(slot));
    CHECK(strcmp(llama_sieve_trie_leaf(slot), "eleven") == 0);
    CHECK(left_by(slot, tokens) == 100);

    set(handle(3), HIGH, LLAMA_SIEVE_TRIE_SAMPLED | LLAMA_SIEVE_TRIE_COMPACT);
    CHECK(llama_sieve_trie_leaf(slot) == NULL);
    CHECK(is_high(tokens, left_by(slot, tokens)));
    eliza_inference_clear_token_trie(handle(3));
    CHECK(strcmp(llama_sieve_last_error(), "") == 0);
    CHECK(!llama_sieve_trie_is_active(slot) && left_by(slot, tokens) == 100);
    eliza_inference_clear_token_trie(handle(3));
    CHECK(strcmp(llama_sieve_last_error(), "") == 0);
    llama_sampler_free(slot);
}

static void a_handle_is_bound_anew_and_taken_out(void) {
    check_subject = "binding anew";
    struct llama_sampler * first  = new_slot();
    struct llama_sampler * second = new_slot();
    CHECK(eliza_inference_bind_token_trie(handle(4), first) == LLAMA_SIEVE_OK);
    CHECK(eliza_inference_bind_token_trie(handle(4), second) == LLAMA_SIEVE_OK);
    set(handle(4), LOW, LLAMA_SIEVE_TRIE_GREEDY);
    CHECK(!llama_sieve_trie_is_active(first) && llama_sieve_trie_is_active(second));
    /* One sampler under two handles. */
    CHECK(eliza_inference_bind_token_trie(handle(5), second) == LLAMA_SIEVE_OK);
    eliza_inference_clear_token_trie(handle(5));
    CHECK(!llama_sieve_trie_is_active(second));
    CHECK(eliza_inference_bind_token_trie(handle(4), NULL) == LLAMA_SIEVE_OK);
    CHECK(eliza_inference_bind_token_trie(handle(4), NULL) == LLAMA_SIEVE_ERROR_NOT_FOUND);
    set(handle(4), LOW, LLAMA_SIEVE_TRIE_GREEDY);
    CHECK(says("eliza_inference_set_token_trie"));
    CHECK(!llama_sieve_trie_is_active(second));
    set(handle(5), LOW, LLAMA_SIEVE_TRIE_GREEDY);
    CHECK(llama_sieve_trie_is_active(second));
    llama_sampler_free(first);
    llama_sampler_free(second);
}

static void a_freed_slot_leaves_an_error(void) {
    check_subject = "a freed slot";
    struct llama_sampler * chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    struct llama_sampler * slot  = new_slot();
    llama_sampler_chain_add(chain, slot);
    llama_sampler_chain_add(chain, llama_sieve_init_greedy());
    CHECK(eliza_inference_bind_token_trie(handle(6), slot) == LLAMA_SIEVE_OK);
    set(handle(6), LOW, LLAMA_SIEVE_TRIE_GREEDY);
    CHECK(llama_sieve_trie_is_active(slot));
    /* A clone is another sampler: the handle stays bound to the original. */
    struct llama_sampler * clone = llama_sampler_clone(chain);
    CHECK(clone != NULL);
    llama_sampler_free(chain);
    set(handle(6), HIGH, LLAMA_SIEVE_TRIE_GREEDY);
    CHECK(says("eliza_inference_set_token_trie"));
    eliza_inference_clear_token_trie(handle(6));
    CHECK(says("eliza_inference_clear_token_trie"));
    llama_token tokens[100];
    CHECK(is_low(tokens, left_by(llama_sampler_chain_get(clone, 0), tokens)));
    llama_sampler_free(clone);
    /* The handle can be used again. */
    slot = new_slot();
    CHECK(eliza_inference_bind_token_trie(handle(6), slot) == LLAMA_SIEVE_OK);
    set(handle(6), LOW, LLAMA_SIEVE_TRIE_GREEDY);
    CHECK(llama_sieve_trie_is_active(slot));
    llama_sampler_free(slot);
}

/* One thread starts and ends streams while another sets constraints by their handles. */

typedef struct {
    pthread_barrier_t begin;
    atomic_bool       end;
} shared;

static void * streams_come_and_go(void * argument) {
    shared * s = argument;
    llama_token tokens[100];
    pthread_barrier_wait(&s->begin);
    for (int i = 0; i < 2000; i++) {
        struct llama_sampler * slot = new_slot();
        CHECK(eliza_inference_bind_token_trie(handle(8), slot) == LLAMA_SIEVE_OK);
        const size_t n = left_by(slot, tokens);
        CHECK(n == 100 || (n == 1 && tokens[0] == 20));
        if (i % 3 == 0) {
            CHECK(eliza_inference_bind_token_trie(handle(8), NULL) == LLAMA_SIEVE_OK);
        }
        llama_sampler_free(slot);
    }
    atomic_store(&s->end, true);
    return NULL;
}

static void set_while_another_thread_frees(void) {
    check_subject = "set while freeing";
    shared s = { 0 };
    CHECK(pthread_barrier_init(&s.begin, NULL, 2) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, streams_come_and_go, &s) == 0);
    pthread_barrier_wait(&s.begin);
    while (!atomic_load(&s.end)) {
        set(handle(8), LONG, LLAMA_SIEVE_TRIE_GREEDY);
        const char * error = llama_sieve_last_error();
        CHECK(*error == '\0' || strstr(error, "eliza_inference_set_token_trie") != NULL);
        eliza_inference_clear_token_trie(handle(8));
    }
    CHECK(pthread_join(thread, NULL) == 0);
    pthread_barrier_destroy(&s.begin);
}

int main(void) {
    llama_sieve_log_set(count_errors, NULL);
    llama_log_set(ignore_log, NULL);
    wrong_handles_are_answered();
    only_token_tries_are_bound();
    a_bound_slot_is_set_and_cleared();
    a_handle_is_bound_anew_and_taken_out();
    a_freed_slot_leaves_an_error();
    set_while_another_thread_frees();
    puts("every handle had an answer");
    return EXIT_SUCCESS;
}
