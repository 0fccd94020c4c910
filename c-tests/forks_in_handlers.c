/* Fork handlers that call the library, registered before or after it was loaded.
 *
 * forks_in_handlers MODEL LIBRARY prepare|parent|child before|after */
#define _GNU_SOURCE /* fork and alarm, beside -std=c11 */
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "load.h"
#include "vocabulary.h"

enum { N_CHILDREN = 5 };

static const char * handler;
static const struct llama_vocab * vocab;
static struct llama_sampler * (*init_grammar)(const struct llama_vocab *, const char *,
                                              const char *);
static unsigned calls;

static void make_a_grammar(void) {
    char text[50];
    snprintf(text, sizeof(text), "root ::= \"a%u\"", calls++);
    struct llama_sampler * grammar = init_grammar(vocab, text, "root");
    CHECK(grammar != NULL);
    llama_sampler_free(grammar);
}

static void call_in(const char * name) {
    if (vocab != NULL && strcmp(handler, name) == 0) {
        make_a_grammar();
    }
}

static void prepare(void) {
    call_in("prepare");
}

static void in_parent(void) {
    call_in("parent");
}

static void in_child(void) {
    call_in("child");
}

static double seconds(void) {
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (double) now.tv_sec + 1e-9 * (double) now.tv_nsec;
}

static void make_a_child(void) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        /* If the handler makes the child wait, this line is not reached: the parent's alarm ends
         * the test. */
        alarm(300);
        make_a_grammar();
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

int main(int argc, char ** argv) {
    CHECK(argc == 5);
    alarm(600);
    handler = argv[3];
    const bool is_before = strcmp(argv[4], "before") == 0;
    if (is_before) {
        CHECK(pthread_atfork(prepare, in_parent, in_child) == 0);
    }
    void * library = open_library(argv[2]);
    find_function(library, "llama_sieve_init_grammar", &init_grammar);
    if (!is_before) {
        CHECK(pthread_atfork(prepare, in_parent, in_child) == 0);
    }
    struct llama_model * model = load_vocabulary(argv[1]);
    CHECK(model != NULL);
    vocab = llama_model_get_vocab(model);
    make_a_grammar();
    double quickest = 1e9;
    for (int i = 0; i < N_CHILDREN; i++) {
        const double started = seconds();
        make_a_child();
        const double took = seconds() - started;
        quickest = took < quickest ? took : quickest;
    }
    /* A thread that waits for its own fork waits a second, in every round. On a busy machine at
     * least one round is quick. */
    CHECK(quickest < 1);
    make_a_grammar();
    llama_model_free(model);
    puts("no handler waited");
    return 0;
}
