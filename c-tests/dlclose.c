// Makes a sampler on a thread that then ends, closes the library whose constructor made the
// sampler, and samples with the sampler.
//
//   dlclose LIBLLAMA LIBRARY CONSTRUCTOR (CONSTRUCTOR takes a seed)
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct candidate {
    int32_t id;
    float   logit;
    float   p;
};

struct array {
    struct candidate * data;
    size_t             size;
    int64_t            selected;
    bool               sorted;
};

static void find(void * library, const char * name, void * function) {
    void * found = library == NULL ? NULL : dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    memcpy(function, &found, sizeof(found));
}

struct job {
    const char * library;
    const char * constructor;
    void *       handle;
    void *       sampler;
};

static void * make(void * argument) {
    struct job * job = argument;
    job->handle      = dlopen(job->library, RTLD_NOW | RTLD_LOCAL);
    void * (*constructor)(uint32_t);
    find(job->handle, job->constructor, &constructor);
    job->sampler = constructor(42);
    return NULL;
}

int main(int argc, char ** argv) {
    if (argc != 4) {
        return 1;
    }
    void * llama = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    void (*apply)(void *, struct array *);
    void (*free_sampler)(void *);
    find(llama, "llama_sampler_apply", &apply);
    find(llama, "llama_sampler_free", &free_sampler);

    struct job job = { argv[2], argv[3], NULL, NULL };
    pthread_t  thread;
    if (pthread_create(&thread, NULL, make, &job) != 0 || pthread_join(thread, NULL) != 0) {
        return 1;
    }
    if (job.sampler == NULL) {
        fprintf(stderr, "no sampler\n");
        return 1;
    }
    dlclose(job.handle);

    struct candidate candidates[3] = { { 0, 1.0f, 0.0f }, { 1, 2.0f, 0.0f }, { 2, 0.5f, 0.0f } };
    struct array     array         = { candidates, 3, -1, false };
    apply(job.sampler, &array);
    free_sampler(job.sampler);
    if (array.selected < 0 || array.selected > 2) {
        return 1;
    }
    puts("sampled");
    return 0;
}
