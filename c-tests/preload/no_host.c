// Calls a constructor that only the preloaded library has, in a process without llama.cpp.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    void * found = dlsym(RTLD_DEFAULT, "llama_sampler_init_top_k");
    if (found == NULL) {
        puts("no constructor");
        return 0;
    }
    struct llama_sampler * (*init_top_k)(int32_t);
    memcpy(&init_top_k, &found, sizeof(init_top_k));
    printf("made: %d\n", init_top_k(5) != NULL);
    return 0;
}
