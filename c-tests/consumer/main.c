/* Uses an installed llama-sieve: prints its version, and makes a sampler with the libllama whose
 * path it is given. */
#include <llama_sieve.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int fail(const char * why) {
    fprintf(stderr, "%s\n", why);
    return 1;
}

static void ignore_message(int level, const char * text, void * user) {
    (void) level;
    (void) text;
    (void) user;
}

int main(int argc, char ** argv) {
    if (argc != 2) {
        return fail("usage: consumer LIBLLAMA");
    }
    llama_sieve_log_set(ignore_message, NULL);
    if (llama_sieve_init_greedy() != NULL || llama_sieve_last_error()[0] == '\0') {
        return fail("without llama.cpp there must be an error");
    }
    llama_sieve_log_set(NULL, NULL);

    void * libllama = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (libllama == NULL) {
        return fail(dlerror());
    }
    if (llama_sieve_bind_host(libllama) != LLAMA_SIEVE_OK) {
        return fail(llama_sieve_last_error());
    }
    struct llama_sampler * smpl = llama_sieve_init_top_p(0.95f, 1);
    if (smpl == NULL) {
        return fail(llama_sieve_last_error());
    }
    /* ISO C has no cast from an object's address to a function's. */
    void (*free_sampler)(struct llama_sampler *);
    void * address = dlsym(libllama, "llama_sampler_free");
    if (address == NULL) {
        return fail(dlerror());
    }
    memcpy(&free_sampler, &address, sizeof(address));
    free_sampler(smpl);

    puts(llama_sieve_version());
    return 0;
}
