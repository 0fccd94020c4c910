/* Sorts with a llama.cpp for Windows, for a test on Linux. Compiled with mingw-w64 and run in Wine:
 * `sorts_of_windows LLAMA.DLL`.
 *
 * Reads requests: the kind of sort, the number of keys, how many are wanted, and the keys. Answers
 * with the positions of the keys in the order of the library's sort, larger keys first. The library
 * sorts either the candidates of top-k or the numbers of typical. */
#include <fcntl.h>
#include <io.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <windows.h>

#include "llama.h"

/* The kinds of requests, as in sorts_by_wine.c. */
enum { SORT, PARTIAL_SORT, SORT_NUMBERS };

/* Additional candidates, so that top-k keeps more than 128. It then distributes them to buckets,
 * sorts all buckets but the last, and sorts the last one partially. */
enum { OTHERS = 200, OTHERS_WANTED = 150 };

typedef struct llama_sampler * (*of_top_k)(int32_t k);
typedef struct llama_sampler * (*of_typical)(float p, size_t min_keep);
typedef void (*of_free)(struct llama_sampler * sampler);

static of_top_k   make_top_k;
static of_typical make_typical;
static of_free    free_sampler;

static void fail(const char * what) {
    fprintf(stderr, "sorts_of_windows: %s (error %lu)\n", what, GetLastError());
    exit(2);
}

static void * found(HMODULE library, const char * name) {
    void * address = (void *)GetProcAddress(library, name);
    if (address == NULL) {
        fail(name);
    }
    return address;
}

static void * room(size_t n, size_t size) {
    void * start = calloc(n + 1, size);
    if (start == NULL) {
        fail("out of memory");
    }
    return start;
}

static int descending(const void * a, const void * b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* Writes for each key the number of distinct larger keys. Returns the largest such number. */
static uint32_t rank(const float * keys, uint32_t n, uint32_t * ranks) {
    float *  sorted = room(n, sizeof *sorted);
    uint32_t different = 0;
    for (uint32_t i = 0; i < n; i++) {
        sorted[i] = keys[i];
    }
    qsort(sorted, n, sizeof *sorted, descending);
    for (uint32_t i = 0; i < n; i++) {
        if (different == 0 || sorted[i] != sorted[different - 1]) {
            sorted[different++] = sorted[i];
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        const float * at = bsearch(&keys[i], sorted, different, sizeof *sorted, descending);
        ranks[i] = (uint32_t)(at - sorted);
    }
    free(sorted);
    return different == 0 ? 0 : different - 1;
}

/* Applies a sampler, and writes the ids that it leaves from `first` on. */
static void apply(struct llama_sampler * sampler, llama_token_data * data, uint32_t n, bool sorted,
                  uint32_t first, uint32_t wanted, uint32_t * out) {
    llama_token_data_array array = { data, n, -1, sorted };
    if (sampler == NULL) {
        fail("a sampler is not made");
    }
    sampler->iface->apply(sampler, &array);
    if (array.size < first + wanted) {
        fail("too few candidates are left");
    }
    for (uint32_t i = 0; i < wanted; i++) {
        out[i] = (uint32_t)array.data[first + i].id;
    }
    free_sampler(sampler);
}

/* Sorts candidates with top-k. All keys fall into one bucket, in which 20,480 distinct keys fit. */
static void sort_candidates(int what, const uint32_t * ranks, uint32_t n, uint32_t k,
                            uint32_t * out) {
    const bool         in_front = what == SORT;
    llama_token_data * data = room(n + OTHERS, sizeof *data);
    for (uint32_t i = 0; i < n; i++) {
        data[i] = (llama_token_data){ (int32_t)i, (float)(20479 - ranks[i]) / 131072.0f, 0.0f };
    }
    const uint32_t others = in_front ? OTHERS : OTHERS_WANTED;
    for (uint32_t i = 0; i < others; i++) {
        data[n + i] = (llama_token_data){ (int32_t)(n + i), in_front ? -5.0f : 5.0f, 0.0f };
    }
    const uint32_t first = in_front ? 0 : OTHERS_WANTED;
    apply(make_top_k((int32_t)(k + OTHERS_WANTED)), data, n + others, false, first, k, out);
    free(data);
}

/* Sorts numbers with typical, which sorts distances. The largest keys have nearly all of the
 * probability; the others follow by descending logit. */
static void sort_numbers(const uint32_t * ranks, uint32_t n, uint32_t most, uint32_t * out) {
    llama_token_data * data = room(n, sizeof *data);
    for (uint32_t i = 0; i < n; i++) {
        const float logit = -60.0f * (float)ranks[i] / (float)(most + 1);
        data[i] = (llama_token_data){ (int32_t)i, ranks[i] == 0 ? 12.0f : logit, 0.0f };
    }
    apply(make_typical(0.9999f, n), data, n, true, 0, n, out);
    free(data);
}

static bool reads(void * to, size_t size, size_t n) {
    return fread(to, size, n, stdin) == n;
}

int main(int argc, char ** argv) {
    if (argc != 2) {
        fprintf(stderr, "sorts_of_windows LLAMA.DLL\n");
        return 2;
    }
    HMODULE library = LoadLibraryA(argv[1]);
    if (library == NULL) {
        fail(argv[1]);
    }
    make_top_k = (of_top_k)found(library, "llama_sampler_init_top_k");
    make_typical = (of_typical)found(library, "llama_sampler_init_typical");
    free_sampler = (of_free)found(library, "llama_sampler_free");
    _setmode(_fileno(stdin), _O_BINARY);
    _setmode(_fileno(stdout), _O_BINARY);
    for (uint32_t asked[3]; reads(asked, sizeof asked[0], 3);) {
        const uint32_t what = asked[0], n = asked[1], k = asked[2];
        float *        keys = room(n, sizeof *keys);
        uint32_t *     ranks = room(n, sizeof *ranks);
        uint32_t *     out = room(n, sizeof *out);
        if (!reads(keys, sizeof *keys, n)) {
            fail("a request ends early");
        }
        const uint32_t most = rank(keys, n, ranks);
        if (most >= 20480) {
            fail("too many different keys");
        }
        if (n > 0 && what == SORT_NUMBERS) {
            sort_numbers(ranks, n, most, out);
        } else if (n > 0) {
            sort_candidates((int)what, ranks, n, k, out);
        }
        fwrite(out, sizeof *out, n, stdout);
        fflush(stdout);
        free(keys);
        free(ranks);
        free(out);
    }
    return 0;
}
