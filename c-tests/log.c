/* Log callbacks that use the sampler that is logging, that cause messages themselves, and that are
 * replaced while they run. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "check.h"

#include "llama_sieve.h"

static const char PAYLOAD[] =
    "{\"modelId\":\"m\",\"descriptors\":[{\"path\":\"p\","
    "\"leaves\":[{\"name\":\"a\",\"tokens\":[1,2]}]}]}";

static double now(void) {
    struct timespec time;
    timespec_get(&time, TIME_UTC);
    return (double) time.tv_sec + 1e-9 * (double) time.tv_nsec;
}

static void pause_for(double seconds) {
    for (const double end = now() + seconds; now() < end;) {
    }
}

/* Returns how many of ten candidates a sampler keeps. */
static size_t left_by(struct llama_sampler * smpl) {
    guarded g = guarded_new(10);
    llama_sampler_apply(smpl, &g.array);
    size_t n = 0;
    for (size_t i = 0; i < g.array.size; i++) {
        n += g.array.data[i].logit == 0.0f;
    }
    guarded_free(&g);
    return n;
}

typedef struct {
    struct llama_sampler * at_work;
    struct llama_sampler * copy;
    int n;
    double seconds;
    char text[512];
} clones;

static void clone_it(int level, const char * text, void * user) {
    (void) level;
    clones * seen = user;
    seen->n++;
    CHECK(strstr(llama_sieve_last_error(), text) != NULL);
    snprintf(seen->text, sizeof(seen->text), "%s", text);
    const double start = now();
    seen->copy = llama_sampler_clone(seen->at_work);
    seen->seconds = now() - start;
}

/* A sampler's message is delivered at the end of its call, when the call no longer uses the
 * sampler, so that the callback may use it. */
static void a_callback_clones_the_sampler_that_warned(void) {
    check_subject = "clone";
    struct llama_sampler * trie =
        llama_sampler_init_token_trie(NULL, PAYLOAD, LLAMA_SIEVE_TRIE_SAMPLED);
    CHECK(trie != NULL);
    CHECK(left_by(trie) == 1);
    clones seen = { .at_work = trie };
    llama_sieve_log_set(clone_it, &seen);
    /* The token is no child of the root, so the constraint ends with a warning. */
    llama_sampler_accept(trie, 9);
    llama_sieve_log_set(NULL, NULL);
    CHECK(seen.n == 1);
    CHECK(seen.copy != NULL);
    CHECK(seen.seconds < 0.5);
    /* Calls inside the callback must not change the last error of the outer call. */
    CHECK(strstr(llama_sieve_last_error(), seen.text) != NULL);
    llama_sampler_reset(seen.copy);
    CHECK(left_by(seen.copy) == 1);
    llama_sampler_free(seen.copy);
    llama_sampler_free(trie);
}

static void say_more(int level, const char * text, void * user) {
    (void) level;
    (void) text;
    int * n = user;
    ++*n;
    llama_sampler_free(llama_sieve_init_min_p(NAN, 1));
}

static void a_callback_that_leads_to_a_message_does_not_get_it(void) {
    check_subject = "recursion";
    int n = 0;
    llama_sieve_log_set(say_more, &n);
    struct llama_sampler * top_p = llama_sieve_init_top_p(NAN, 1);
    CHECK(n == 1);
    CHECK(strstr(llama_sieve_last_error(), "top-p") != NULL);
    llama_sampler_free(top_p);
    llama_sampler_free(llama_sieve_init_top_p(NAN, 1));
    CHECK(n == 2);
    llama_sieve_log_set(NULL, NULL);
}

typedef struct {
    atomic_bool entered;
    atomic_bool left;
} slow;

static void be_slow(int level, const char * text, void * user) {
    (void) level;
    (void) text;
    slow * call = user;
    atomic_store(&call->entered, true);
    pause_for(0.2);
    atomic_store(&call->left, true);
}

static void * warn(void * nothing) {
    llama_sampler_free(llama_sieve_init_top_p(NAN, 1));
    return nothing;
}

static void a_callback_is_gone_when_it_has_been_replaced(void) {
    check_subject = "replaced";
    slow * call = check_malloc(sizeof(*call));
    atomic_init(&call->entered, false);
    atomic_init(&call->left, false);
    llama_sieve_log_set(be_slow, call);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, warn, NULL) == 0);
    while (!atomic_load(&call->entered)) {
    }
    llama_sieve_log_set(NULL, NULL);
    CHECK(atomic_load(&call->left));
    free(call);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void take_itself_out(int level, const char * text, void * user) {
    (void) level;
    (void) text;
    atomic_int * n = user;
    atomic_fetch_add(n, 1);
    pause_for(0.05);
    llama_sieve_log_set(take_itself_out, user);
}

static void callbacks_may_replace_themselves(void) {
    check_subject = "replaces itself";
    atomic_int n = 0;
    llama_sieve_log_set(take_itself_out, &n);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_create(&threads[i], NULL, warn, NULL) == 0);
    }
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    llama_sieve_log_set(NULL, NULL);
    CHECK(atomic_load(&n) == 4);
}

int main(void) {
    a_callback_clones_the_sampler_that_warned();
    a_callback_that_leads_to_a_message_does_not_get_it();
    a_callback_is_gone_when_it_has_been_replaced();
    callbacks_may_replace_themselves();
    puts("every message was delivered");
    return 0;
}
