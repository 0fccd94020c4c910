/* A program with our library and, at first, no llama.cpp. Functions that need none must work, the
 * error of a constructor must explain the remedy, and once libllama is loaded samplers can be made.
 *
 * Usage: host_late found|bound LIBLLAMA */
#define _GNU_SOURCE
#include "load.h"

#include "llama_sieve.h"

static int n_messages = 0;

static void count_message(int level, const char * text, void * user) {
    (void) user;
    CHECK(level == LLAMA_SIEVE_LOG_ERROR);
    CHECK(strcmp(text, llama_sieve_last_error()) == 0);
    n_messages++;
}

/* Calls nine constructors, each of which must look for the host. */
static void check_that_none_is_made(void) {
    CHECK(llama_sieve_init_greedy() == NULL);
    CHECK(llama_sieve_init_dist(42) == NULL);
    CHECK(llama_sieve_init_top_k(40) == NULL);
    CHECK(llama_sieve_init_top_p(0.9f, 1) == NULL);
    CHECK(llama_sieve_init_min_p(0.1f, 1) == NULL);
    CHECK(llama_sieve_init_typical(0.9f, 1) == NULL);
    CHECK(llama_sieve_init_temp(0.8f) == NULL);
    CHECK(llama_sieve_init_top_n_sigma(1.0f) == NULL);
    CHECK(llama_sieve_init_penalties(1000, 64, 1.1f, 0.0f, 0.0f) == NULL);
    CHECK(n_messages == 9);
    /* A disabled sampler needs a host as well. */
    CHECK(llama_sieve_init_temp(1.0f) == NULL);
}

static void check_that_the_error_tells_what_to_do(void) {
    const char * text = llama_sieve_last_error();
    CHECK(strstr(text, "libllama") != NULL);
    CHECK(strstr(text, "llama_sampler_init") != NULL);
    CHECK(strstr(text, "llama_sieve_bind_host") != NULL);
}

static void check_that_a_wrong_library_is_refused(void) {
    void * libm = open_library("libm.so.6");
    CHECK(llama_sieve_bind_host(libm) == LLAMA_SIEVE_ERROR_NO_HOST);
    CHECK(strstr(llama_sieve_last_error(), "llama_sampler_init") != NULL);
    CHECK(llama_sieve_bind_host(NULL) == LLAMA_SIEVE_ERROR_NULL);
    CHECK(strstr(llama_sieve_last_error(), "NULL") != NULL);
    dlclose(libm);
}

int main(int argc, char ** argv) {
    CHECK(argc == 3);
    CHECK(dlsym(RTLD_DEFAULT, "llama_sampler_init") == NULL);
    CHECK(strlen(llama_sieve_version()) > 0);
    CHECK(strlen(llama_sieve_simd()) > 0);
    CHECK(strcmp(llama_sieve_last_error(), "") == 0);

    llama_sieve_log_set(count_message, NULL);
    check_that_none_is_made();
    check_that_the_error_tells_what_to_do();
    llama_sieve_log_set(NULL, NULL);
    check_that_a_wrong_library_is_refused();

    void * libllama = open_library(argv[2]);
    if (strcmp(argv[1], "bound") == 0) {
        CHECK(llama_sieve_bind_host(libllama) == LLAMA_SIEVE_OK);
        CHECK(strcmp(llama_sieve_last_error(), "") == 0);
    } else {
        CHECK(strcmp(argv[1], "found") == 0);
    }
    const host_functions host = find_host_functions(libllama);
    check_against_built_ins(&host, llama_sieve_init_top_k(20), llama_sieve_init_dist(42));
    CHECK(strcmp(llama_sieve_last_error(), "") == 0);

    /* The old host stays bound if a new one is rejected, and a host may be bound again. */
    check_that_a_wrong_library_is_refused();
    check_against_built_ins(&host, llama_sieve_init_top_k(20), llama_sieve_init_dist(42));
    CHECK(llama_sieve_bind_host(libllama) == LLAMA_SIEVE_OK);
    check_against_built_ins(&host, llama_sieve_init_top_k(20), llama_sieve_init_dist(42));
    puts("found a late host");
    return 0;
}
