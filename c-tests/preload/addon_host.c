// A program without llama.cpp that loads addons linked with it, each with RTLD_LOCAL.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int run(const char * path) {
    if (dlsym(RTLD_DEFAULT, "llama_sampler_chain_init") != NULL) {
        fprintf(stderr, "some libllama is loaded for all to see\n");
        return 1;
    }
    void * addon = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void * found = addon == NULL ? NULL : dlsym(addon, "addon_run");
    if (found == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int (*addon_run)(void);
    memcpy(&addon_run, &found, sizeof(addon_run));
    return addon_run();
}

int main(int argc, char ** argv) {
    for (int i = 1; i < argc; i++) {
        if (run(argv[i]) != 0) {
            return 1;
        }
    }
    return 0;
}
