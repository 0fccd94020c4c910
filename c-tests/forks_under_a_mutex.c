/* A program whose mutex guards all its calls of the library. Its fork handlers lock the mutex
 * before a fork and unlock it afterwards, so that a child can use the library, too. With
 * BEFORE_LIBRARIES they are registered before any library is initialised, and run last before a
 * fork. With BUILT_IN the program calls llama.cpp, as under the preload library. */
#define _GNU_SOURCE /* fork, alarm and usleep, beside -std=c11 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "vocabulary.h"

#ifdef BUILT_IN
#define INIT_GRAMMAR llama_sampler_init_grammar
#else
#include "llama_sieve.h"
#define INIT_GRAMMAR llama_sieve_init_grammar
#endif

static const struct llama_vocab * vocab;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static atomic_bool at_work = true;
static atomic_uint rounds;

static void take(void) {
    CHECK(pthread_mutex_lock(&mutex) == 0);
}

static void release(void) {
    CHECK(pthread_mutex_unlock(&mutex) == 0);
}

static void register_handlers(void) {
    CHECK(pthread_atfork(take, release, release) == 0);
}

#ifdef BEFORE_LIBRARIES
/* Few children, since a fork that waits for the mutex takes a second. */
enum { N_CHILDREN = 3 };

__attribute__((section(".preinit_array"), used)) static void (*const at_start)(void) =
    register_handlers;
#else
enum { N_CHILDREN = 200 };
#endif

static void make_a_grammar(unsigned number) {
    char text[100];
    snprintf(text, sizeof(text), "root ::= \"a%u\" | [a-z]{%u}", number % 1000, 1 + number % 5);
    take();
    struct llama_sampler * grammar = INIT_GRAMMAR(vocab, text, "root");
    CHECK(grammar != NULL);
    llama_sampler_free(grammar);
    release();
}

static void * work(void * argument) {
    while (atomic_load(&at_work)) {
        make_a_grammar(atomic_fetch_add(&rounds, 1));
        usleep(1);
    }
    return argument;
}

static void fork_beside_work(void) {
    const unsigned before = atomic_load(&rounds);
    while (atomic_load(&rounds) < before + 3) {
        usleep(100);
    }
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(300);
        make_a_grammar(0);
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

int main(int argc, char ** argv) {
#ifndef BEFORE_LIBRARIES
    register_handlers();
#endif
    alarm(600);
    struct llama_model * model = argc == 2 ? load_vocabulary(argv[1]) : NULL;
    CHECK(model != NULL);
    vocab = llama_model_get_vocab(model);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
    for (int i = 0; i < N_CHILDREN; i++) {
        fork_beside_work();
    }
    atomic_store(&at_work, false);
    CHECK(pthread_join(thread, NULL) == 0);
    llama_model_free(model);
    puts("every fork came to its end");
    return 0;
}
