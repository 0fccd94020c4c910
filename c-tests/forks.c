/* Forks a process while its other threads are sampling. The children must be able to sample. */
#define _GNU_SOURCE /* fork and alarm, beside -std=c11 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#include "llama_sieve.h"

enum { N_VOCAB = 8, N_THREADS = 3, N_CHILDREN = 1000 };

static const float logits[N_VOCAB] = { 1, 2, 3, 4, 5, 4, 3, 2 };

static atomic_bool at_work = true;

static struct llama_sampler * new_chain(void) {
    struct llama_sampler * chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    llama_sampler_chain_add(chain, llama_sieve_init_top_k(3));
    llama_sampler_chain_add(chain, llama_sieve_init_dist(1));
    return chain;
}

static void sample(struct llama_sampler * chain) {
    CHECK(llama_sieve_chain_sample_logits(chain, logits, N_VOCAB) >= 0);
}

static void * work(void * argument) {
    struct llama_sampler * chain = new_chain();
    while (atomic_load(&at_work)) {
        sample(chain);
    }
    llama_sampler_free(chain);
    return argument;
}

int main(void) {
    struct llama_sampler * chain = new_chain();
    sample(chain);
    pthread_t threads[N_THREADS];
    for (int i = 0; i < N_THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, work, NULL) == 0);
    }
    for (int i = 0; i < N_CHILDREN; i++) {
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(300);
            sample(chain);
            _exit(0);
        }
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(status == 0);
    }
    atomic_store(&at_work, false);
    for (int i = 0; i < N_THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    llama_sampler_free(chain);
    puts("every child gave a token");
    return 0;
}
