// Looks up every function in libllama's own handle, as Python's ctypes does, which bypasses any
// preloaded library. Forks once, as many hosts do.
//
//   only_by_handle LIBLLAMA
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct llama_sampler;

int main(int argc, char ** argv) {
    void * libllama = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (libllama == NULL) {
        fprintf(stderr, "only_by_handle: no library\n");
        return 1;
    }
    void * init_found = dlsym(libllama, "llama_sampler_init_greedy");
    void * free_found = dlsym(libllama, "llama_sampler_free");
    if (init_found == NULL || free_found == NULL) {
        return 1;
    }
    struct llama_sampler * (*init_greedy)(void);
    void (*sampler_free)(struct llama_sampler *);
    memcpy(&init_greedy, &init_found, sizeof(init_greedy));
    memcpy(&sampler_free, &free_found, sizeof(sampler_free));
    struct llama_sampler * sampler = init_greedy();
    printf("made: %d\n", sampler != NULL);
    sampler_free(sampler);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        exit(0);
    }
    int status = 1;
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
