/* One thread frees or clones a sampler or a sieve while another thread is in a call with it, which
 * is a mistake of the host. No memory that is in use may be freed, and the error must report the
 * mistake. */
#define _DEFAULT_SOURCE /* sigaction, mprotect, beside -std=c11 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

#include "llama_sieve.h"

enum { MANY = 1 << 20, TRIES = 50 };

static int  n_errors;
static char last_message[512];

static void keep(int level, const char * text, void * user) {
    (void) user;
    n_errors += level == LLAMA_SIEVE_LOG_ERROR;
    snprintf(last_message, sizeof(last_message), "%s", text);
}

static atomic_int at_work;

struct job {
    struct llama_sampler * smpl;
    llama_sieve *          sieve;
    guarded                g;
    const float *          logits;
    int32_t                answer;
};

/* A page of the candidates. A thread that accesses it is held in a signal handler until it is
 * released. */
static char * page;
static size_t page_size;

enum { NOT_YET, INSIDE, GO_ON };

static atomic_int where;

static void stay(int signal_number, siginfo_t * info, void * context) {
    (void) context;
    const char * address = info->si_addr;
    if (address < page || address >= page + page_size) {
        /* Any other fault occurs again after this, and ends the program. */
        signal(signal_number, SIG_DFL);
        return;
    }
    atomic_store(&where, INSIDE);
    while (atomic_load(&where) == INSIDE) {
    }
    mprotect(page, page_size, PROT_READ | PROT_WRITE);
}

/* Applies the sampler to a million candidates. */
static void * apply(void * argument) {
    struct job * job = argument;
    job->smpl->iface->apply(job->smpl, &job->g.array);
    return NULL;
}

static void * sample(void * argument) {
    struct job * job = argument;
    /* The main thread may be in a call with the sieve at this moment. */
    do {
        job->answer = llama_sieve_sample(job->sieve, job->logits, MANY);
    } while (job->answer == LLAMA_SIEVE_ERROR_BUSY);
    atomic_store(&at_work, 0);
    return NULL;
}

static bool says_in_use(void) {
    return strstr(llama_sieve_last_error(), "in use by another thread") != NULL;
}

/* Returns true once the main thread's call has found the other thread inside the sieve, where that
 * thread stays for a long time. Returns false if the other thread has finished first. */
static bool is_inside(const struct job * job) {
    while (atomic_load(&at_work) != 0) {
        llama_sieve_reset(job->sieve);
        if (says_in_use()) {
            return true;
        }
    }
    return false;
}

/* Begins `call` on another thread. */
static pthread_t begin(void * (*call)(void *), struct job * job) {
    pthread_t thread;
    atomic_store(&at_work, 1);
    CHECK(pthread_create(&thread, NULL, call, job) == 0);
    return thread;
}

/* Leaked objects stay reachable from here, so that leak checkers do not report them. */
static void * volatile leaked[2];

static void a_sampler_in_use_is_not_freed(void) {
    check_subject = "a sampler";
    const struct sigaction staying = { .sa_sigaction = stay, .sa_flags = SA_SIGINFO };
    /* Some systems raise SIGSEGV, others SIGBUS. */
    CHECK(sigaction(SIGSEGV, &staying, NULL) == 0 && sigaction(SIGBUS, &staying, NULL) == 0);

    numbers    from = { 7 };
    struct job job  = { .smpl = llama_sieve_init_xtc(1.0f, 0.0f, 1, 42), .g = guarded_new(MANY) };
    CHECK(job.smpl != NULL);
    fill_candidates(job.g.array.data, MANY, &from);
    page_size = (size_t) sysconf(_SC_PAGESIZE);
    page      = (char *) (job.g.array.data + MANY / 2);
    page -= (uintptr_t) page % page_size;
    CHECK(mprotect(page, page_size, PROT_NONE) == 0);

    const pthread_t thread = begin(apply, &job);
    while (atomic_load(&where) != INSIDE) {
    }
    leaked[0]        = job.smpl->ctx;
    const int before = n_errors;
    llama_sampler_free(job.smpl);
    CHECK(n_errors == before + 1 &&
          strstr(last_message, "free: the sampler is in use by another thread") != NULL);
    atomic_store(&where, GO_ON);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(job.g.array.size >= 1 && job.g.array.size < MANY);
    CHECK(is_guard(job.g.memory) && is_guard(job.g.memory + MANY + 1));
    guarded_free(&job.g);
    CHECK(signal(SIGSEGV, SIG_DFL) != SIG_ERR && signal(SIGBUS, SIG_DFL) != SIG_ERR);
}

static void a_sieve_in_use_is_not_freed_nor_cloned(void) {
    check_subject = "a sieve";
    float * logits = check_malloc(MANY * sizeof(float));
    for (size_t i = 0; i < MANY; i++) {
        logits[i] = (float) ((i * 7919) % MANY) / (float) MANY;
    }
    llama_sieve_params params = llama_sieve_default_params();
    params.top_k     = 0;
    params.typical_p = 0.9f;
    for (int tried = 0;; tried++) {
        CHECK(tried < TRIES);
        struct job job = { .sieve = llama_sieve_new(&params), .logits = logits, .answer = -99 };
        CHECK(job.sieve != NULL);
        const pthread_t thread = begin(sample, &job);
        const bool      inside = is_inside(&job);
        bool            kept   = false;
        if (inside) {
            llama_sieve * copy = llama_sieve_clone(job.sieve);
            CHECK(copy != NULL || says_in_use());
            llama_sieve_free(copy);
            leaked[1]        = job.sieve;
            const int before = n_errors;
            llama_sieve_free(job.sieve);
            kept = n_errors > before;
            CHECK(!kept || strstr(last_message, "llama_sieve_free: the sieve is in use") != NULL);
        }
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(job.answer >= 0 && job.answer < MANY);
        if (kept) {
            break;
        }
        if (!inside) {
            llama_sieve_free(job.sieve);
        }
    }
    free(logits);
}

int main(void) {
    llama_sieve_log_set(keep, NULL);
    a_sampler_in_use_is_not_freed();
    a_sieve_in_use_is_not_freed_nor_cloned();
    puts("nothing was pulled away");
    return EXIT_SUCCESS;
}
