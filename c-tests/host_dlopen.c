/* A program that is linked with neither library and opens both with RTLD_LOCAL, as Python, Node and
 * Bun do.
 *
 * Usage: host_dlopen ours-first|llama-first LLAMA_SIEVE LIBLLAMA */
#define _GNU_SOURCE
#include "load.h"

int main(int argc, char ** argv) {
    CHECK(argc == 4);
    void * ours;
    void * libllama;
    if (strcmp(argv[1], "ours-first") == 0) {
        ours     = open_library(argv[2]);
        libllama = open_library(argv[3]);
    } else {
        CHECK(strcmp(argv[1], "llama-first") == 0);
        libllama = open_library(argv[3]);
        ours     = open_library(argv[2]);
    }
    const char * (*last_error)(void);
    struct llama_sampler * (*init_top_k)(int32_t);
    struct llama_sampler * (*init_dist)(uint32_t);
    find_function(ours, "llama_sieve_last_error", &last_error);
    find_function(ours, "llama_sieve_init_top_k", &init_top_k);
    find_function(ours, "llama_sieve_init_dist", &init_dist);
    const host_functions host = find_host_functions(libllama);

    check_against_built_ins(&host, init_top_k(20), init_dist(42));
    CHECK(strcmp(last_error(), "") == 0);
    puts("found a local host");
    return 0;
}
