// Unloads llama.cpp and loads it again, as happens with the llama.cpp of a plugin: two small
// stand-ins for it are loaded in turn, often at the same address. Each call must reach the stand-in
// that is loaded, from every thread and from a child process.
//
//   reloaded FIRST SECOND
//
// With -DAS_HOST=N it is such a stand-in instead: a library that samples the token N.
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct llama_sampler;
struct llama_context;
struct llama_model;

#ifdef AS_HOST

// Padding without functions, which lies where the other library has its functions: a call to one of
// the other's addresses crashes.
#define IN_THE_WAY __asm__(".text\n.fill 16384, 1, 0\n");

#    if AS_HOST == 2
IN_THE_WAY
#    endif

struct llama_sampler * llama_sampler_chain_init(void);
struct llama_sampler * llama_sampler_chain_init(void) { return NULL; }

int32_t llama_sampler_sample(struct llama_sampler * chain, struct llama_context * ctx, int32_t i);
int32_t llama_sampler_sample(struct llama_sampler * chain, struct llama_context * ctx, int32_t i) {
    (void) chain;
    (void) ctx;
    (void) i;
    return AS_HOST;
}

void llama_model_free(struct llama_model * model);
void llama_model_free(struct llama_model * model) {
    (void) model;
    puts("freed");
}

#    if AS_HOST == 1
IN_THE_WAY
#    endif

#else

static const char NAME[] = "llama_sampler_sample";

typedef int32_t (*sample_function)(struct llama_sampler *, struct llama_context *, int32_t);

static void fail(const char * what) {
    const char * error = dlerror();
    fprintf(stderr, "reloaded: %s: %s\n", what, error == NULL ? "" : error);
    exit(1);
}

static sample_function function(void * found) {
    sample_function sample;
    memcpy(&sample, &found, sizeof(sample));
    return sample;
}

static int to_other[2], from_other[2];

// Runs while libraries come and go: reads the address of a function, samples with it, and writes
// the token.
static void * other_thread(void * unused) {
    (void) unused;
    sample_function sample;
    while (read(to_other[0], &sample, sizeof(sample)) == sizeof(sample)) {
        const int32_t token = sample(NULL, NULL, 0);
        if (write(from_other[1], &token, sizeof(token)) != sizeof(token)) {
            fail("the other thread's pipe");
        }
    }
    return NULL;
}

static int32_t in_other_thread(sample_function sample) {
    int32_t token;
    if (write(to_other[1], &sample, sizeof(sample)) != sizeof(sample) ||
        read(from_other[0], &token, sizeof(token)) != sizeof(token)) {
        fail("the other thread");
    }
    return token;
}

static int in_child(sample_function sample) {
    const pid_t child = fork();
    if (child == 0) {
        _exit(sample(NULL, NULL, 0));
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) {
        fail("the child");
    }
    return WEXITSTATUS(status);
}

// Loads the library, samples with it and unloads it; returns its address. If `in_front` is not
// NULL, it is the preloaded function to call in place of the library's own.
static void * use(const char * path, int flags, void * in_front) {
    void * library = dlopen(path, RTLD_NOW | flags);
    if (library == NULL) {
        fail(path);
    }
    const sample_function sample = function(in_front == NULL ? dlsym(library, NAME) : in_front);
    for (int i = 0; i < 2; i++) {
        printf("%d %d %d\n", sample(NULL, NULL, 0), in_other_thread(sample), in_child(sample));
        fflush(stdout);
    }
    Dl_info info;
    if (dladdr(dlsym(library, "llama_sampler_chain_init"), &info) == 0) {
        fail("it lies nowhere");
    }
    if (dlclose(library) != 0 || dlopen(path, RTLD_NOW | RTLD_NOLOAD) != NULL) {
        fail("it does not go");
    }
    return info.dli_fbase;
}

int main(int argc, char ** argv) {
    pthread_t other;
    if (argc != 3 || pipe(to_other) != 0 || pipe(from_other) != 0 ||
        pthread_create(&other, NULL, other_thread, NULL) != 0) {
        fail("usage: reloaded FIRST SECOND");
    }
    // Looked up before any library is loaded: a library that is found in this way stays loaded.
    void * in_front = dlsym(RTLD_DEFAULT, NAME);
    int    same     = 0;
    for (int round = 0; round < 4; round++) {
        const int flags = round % 2 == 0 ? RTLD_GLOBAL : RTLD_LOCAL;
        void *    first = use(argv[1], flags, in_front);
        same += use(argv[2], flags, in_front) == first;
    }
    close(to_other[1]);
    pthread_join(other, NULL);
    fprintf(stderr, "at the same place: %d\n", same);
    return 0;
}

#endif
