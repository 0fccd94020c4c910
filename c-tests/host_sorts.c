/* Tests the order of equal candidates with a host that loads libc++ and with one that does not.
 *
 * host_sorts <path of a host with libc++> <path of a host without> */
#include "fake_host.h"

static int n_warnings;

static void count(int level, const char * text, void * user) {
    (void) user;
    n_warnings += level == LLAMA_SIEVE_LOG_WARN && strstr(text, "libc++") != NULL;
}

enum { MANY = 3000 };

/* Four logits in turn: the largest are those of ids 3, 7, 11, ... */
static void fill(llama_token_data * data, size_t n) {
    for (size_t i = 0; i < n; i++) {
        data[i] = (llama_token_data) { .id = (int32_t) i, .logit = (float) (i % 4), .p = 0.0f };
    }
}

/* Writes the result of a stable sort, computed by counting. */
static void in_input_order(llama_token_data * data, size_t n) {
    size_t at = 0;
    for (int logit = 3; logit >= 0; logit--) {
        for (size_t i = (size_t) logit; i < n; i += 4) {
            data[at++] = (llama_token_data){ .id = (int32_t) i, .logit = (float) logit, .p = 0.0f };
        }
    }
}

static void release(struct llama_sampler * smpl) {
    smpl->iface->free(smpl);
    free(smpl);
}

/* Returns true if the k largest of n candidates with ties keep the order of the input. */
static bool is_stable(size_t n, size_t k) {
    static llama_token_data data[MANY], expected[MANY];
    fill(data, n);
    in_input_order(expected, n);
    struct llama_sampler * top_k = llama_sieve_init_top_k((int32_t) k);
    CHECK(top_k != NULL);
    struct array array = { .data = data, .size = n, .selected = -1, .sorted = false };
    top_k->iface->apply(top_k, &array);
    release(top_k);
    CHECK(array.size == k);
    bool is_equal = true;
    for (size_t i = 0; i < k; i++) {
        CHECK(array.data[i].logit == expected[i].logit);
        is_equal = is_equal && array.data[i].id == expected[i].id;
    }
    return is_equal;
}

/* Sizes for which the samplers use different algorithms. */
static const size_t SIZES[][2] = {
    { 40, 20 }, { 300, 40 }, { 300, 200 }, { MANY, 40 }, { MANY, 1500 }
};
enum { N_SIZES = 5 };

static void * open_host(const char * path) {
    void * handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CHECK(handle != NULL);
    return handle;
}

int main(int argc, char ** argv) {
    CHECK(argc == 3);
    llama_sieve_log_set(count, NULL);
    void * with    = open_host(argv[1]);
    void * without = open_host(argv[2]);
    for (int round = 1; round <= 2; round++) {
        CHECK(llama_sieve_bind_host(with) == LLAMA_SIEVE_OK);
        for (int i = 0; i < N_SIZES; i++) {
            CHECK(is_stable(SIZES[i][0], SIZES[i][1]));
        }
        /* Binding the host with libc++ warns once in each round. */
        CHECK(n_warnings == round);
        /* With libstdc++'s order none of these sizes keeps the order of the input. */
        CHECK(llama_sieve_bind_host(without) == LLAMA_SIEVE_OK);
        CHECK(n_warnings == round);
        for (int i = 0; i < N_SIZES; i++) {
            CHECK(!is_stable(SIZES[i][0], SIZES[i][1]));
        }
    }
    puts("ties as the host's library leaves them");
    return 0;
}
