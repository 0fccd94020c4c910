/* Tests batches in a process that forbids threads, sets their number in the environment, or forks.
 * Uses no llama.cpp. */
#define _GNU_SOURCE /* setresuid, beside -std=c11 */
#include <dirent.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "llama_sieve.h"

#define CHECK(condition) check_that((condition), #condition, __LINE__)

static void check_that(bool holds, const char * condition, int line) {
    if (!holds) {
        fprintf(stderr, "process.c:%d: failed: %s (last error: %s)\n", line, condition,
                llama_sieve_last_error());
        _exit(1);
    }
}

enum { N_VOCAB = 2000, N = 16 };

static llama_sieve * sieves[N];
static const float * logits[N];
static float numbers[N_VOCAB];
static int32_t expected[N];

static void make_sieves(void) {
    for (int i = 0; i < N_VOCAB; i++) {
        numbers[i] = (float) ((i * 7919) % N_VOCAB) / 300.0f;
    }
    for (int i = 0; i < N; i++) {
        llama_sieve_params params = llama_sieve_default_params();
        params.seed = (uint64_t) i;
        params.rng = LLAMA_SIEVE_RNG_POSITION;
        sieves[i] = llama_sieve_new(&params);
        CHECK(sieves[i] != NULL);
        logits[i] = numbers;
        expected[i] = llama_sieve_sample(sieves[i], numbers, N_VOCAB);
        CHECK(expected[i] >= 0);
    }
}

/* Samples batches: the tokens do not depend on the round or the number of threads. */
static void sample_batches(int n_threads) {
    for (int round = 0; round < 3; round++) {
        int32_t tokens[N] = { 0 };
        CHECK(llama_sieve_sample_batch(sieves, logits, N_VOCAB, N, tokens, n_threads) == 0);
        CHECK(memcmp(tokens, expected, sizeof(tokens)) == 0);
    }
    for (int i = 0; i < N; i++) {
        CHECK(llama_sieve_sample(sieves[i], numbers, N_VOCAB) == expected[i]);
    }
}

static int count_threads(void) {
    DIR * tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    int n = 0;
    for (struct dirent * entry = readdir(tasks); entry != NULL; entry = readdir(tasks)) {
        n += entry->d_name[0] != '.';
    }
    closedir(tasks);
    return n;
}

static void * do_nothing(void * argument) {
    return argument;
}

/* Forbids new threads. The limit does not apply to root, which therefore becomes nobody. */
static void forbid_threads(void) {
    if (geteuid() == 0) {
        CHECK(setresuid(65534, 65534, 65534) == 0);
    }
    const struct rlimit none = { .rlim_cur = 0, .rlim_max = 0 };
    CHECK(setrlimit(RLIMIT_NPROC, &none) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, do_nothing, NULL) != 0);
}

static void wait_for(pid_t child) {
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void in_children(void) {
    sample_batches(4);
    for (int i = 0; i < 3; i++) {
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(300);
            sample_batches(4);
            _exit(0);
        }
        wait_for(child);
        sample_batches(4);
    }
}

/* Samples in forked children, each of which makes its own pool if the parent has none. */
static void in_prefork_children(void) {
    pid_t children[3];
    for (int i = 0; i < 3; i++) {
        children[i] = fork();
        CHECK(children[i] >= 0);
        if (children[i] == 0) {
            alarm(300);
            sample_batches(4);
            CHECK(count_threads() > 1);
            _exit(0);
        }
    }
    for (int i = 0; i < 3; i++) {
        wait_for(children[i]);
    }
}

int main(int argc, char ** argv) {
    CHECK(argc == 2);
    make_sieves();
    if (strcmp(argv[1], "limit") == 0) {
        forbid_threads();
        sample_batches(4);
        CHECK(count_threads() == 1);
    } else if (strcmp(argv[1], "environment") == 0) {
        CHECK(getenv("RAYON_NUM_THREADS") != NULL);
        sample_batches(2);
        CHECK(count_threads() == 2);
        sample_batches(1000000);
        CHECK(count_threads() <= 2 + sysconf(_SC_NPROCESSORS_ONLN));
    } else if (strcmp(argv[1], "fork") == 0) {
        in_children();
    } else {
        in_prefork_children();
    }
    for (int i = 0; i < N; i++) {
        llama_sieve_free(sieves[i]);
    }
    puts("every batch gave its tokens");
    return 0;
}
