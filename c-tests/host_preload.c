/* A program that is linked with libllama alone. Run with LD_PRELOAD=libllama_sieve.so it finds our
 * samplers among its own symbols. */
#define _GNU_SOURCE
#include "load.h"

int main(void) {
    struct llama_sampler * (*init_greedy)(void);
    struct llama_sampler * (*init_top_k)(int32_t);
    struct llama_sampler * (*init_dist)(uint32_t);
    find_function(RTLD_DEFAULT, "llama_sieve_init_greedy", &init_greedy);
    find_function(RTLD_DEFAULT, "llama_sieve_init_top_k", &init_top_k);
    find_function(RTLD_DEFAULT, "llama_sieve_init_dist", &init_dist);

    /* Called by its name, so that the linker keeps libllama although nothing else here needs it. */
    struct llama_sampler * greedy = init_greedy();
    CHECK(greedy != NULL && strcmp(llama_sampler_name(greedy), "greedy") == 0);
    llama_sampler_free(greedy);

    const host_functions host = find_host_functions(RTLD_DEFAULT);
    check_against_built_ins(&host, init_top_k(20), init_dist(42));
    puts("found the host under LD_PRELOAD");
    return 0;
}
