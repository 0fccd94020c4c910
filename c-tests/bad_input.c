/* Every mistake of a caller has a defined result: nothing crashes, nothing is written beyond an
 * array, a selector selects an existing candidate, and a filter keeps some of those that it was
 * given. */
#define _GNU_SOURCE /* dlopen, beside -std=c11 */
#include <dlfcn.h>
#include <math.h>

#include "check.h"

#include "llama_sieve.h"

enum { N_VOCAB = 1000 };

/* Samplers with parameters that enable them. */
#define SAMPLERS_OF(X)                                                              \
    X(make_greedy, "greedy", true, greedy())                                        \
    X(make_dist, "dist", true, dist(42))                                            \
    X(make_top_k, "top-k", false, top_k(5))                                         \
    X(make_top_p, "top-p", false, top_p(0.9f, 1))                                   \
    X(make_min_p, "min-p", false, min_p(0.1f, 1))                                   \
    X(make_typical, "typical", false, typical(0.9f, 1))                             \
    X(make_temp, "temp", false, temp(0.7f))                                         \
    X(make_temp_zero, "temp", false, temp(0.0f))                                    \
    X(make_top_n_sigma, "top-n-sigma", false, top_n_sigma(1.5f))                    \
    X(make_penalties, "penalties", false, penalties(N_VOCAB, 64, 1.3f, 0.1f, 0.1f)) \
    X(make_top_a, "top-a", false, top_a(0.5f))                                      \
    X(make_epsilon, "epsilon-cutoff", false, epsilon_cutoff(0.01f))                 \
    X(make_eta, "eta-cutoff", false, eta_cutoff(0.01f))                             \
    X(make_p_less, "p-less", false, p_less(true))                                   \
    X(make_top_h, "top-h", false, top_h(0.5f))                                      \
    X(make_quadratic, "quadratic", false, quadratic(0.2f, 1.5f))                    \
    X(make_min_k, "min-k", false, min_k(0.0f))                                      \
    X(make_loop, "loop-breaker", false, loop_breaker(NULL))

#define MAKER(make, name, selects, call) \
    static struct llama_sampler * make(void) { return llama_sieve_init_##call; }
#define ROW(make, name, selects, call) { name, make, selects },

SAMPLERS_OF(MAKER)

static const struct {
    const char * name;
    struct llama_sampler * (*make)(void);
    bool selects;
} SAMPLERS[] = { SAMPLERS_OF(ROW) };
enum { N_SAMPLERS = sizeof(SAMPLERS) / sizeof(SAMPLERS[0]) };

static struct llama_sampler * make(int i) {
    check_subject = SAMPLERS[i].name;
    struct llama_sampler * smpl = SAMPLERS[i].make();
    CHECK(smpl != NULL);
    CHECK(strcmp(llama_sampler_name(smpl), SAMPLERS[i].name) == 0);
    return smpl;
}

/* A log callback that counts messages, and calls the library, which is allowed. */

typedef struct {
    int n;
    int level;
    char text[512];
    bool is_active;
} messages;

static void count_message(int level, const char * text, void * user) {
    messages * seen = user;
    /* The calls below can log as well, which calls this function again. */
    if (seen->is_active) {
        return;
    }
    seen->is_active = true;
    seen->n++;
    seen->level = level;
    snprintf(seen->text, sizeof(seen->text), "%s", text);
    CHECK(llama_sieve_last_error() != NULL);
    CHECK(strlen(llama_sieve_version()) > 0);
    CHECK(strlen(llama_sieve_simd()) > 0);
    llama_sieve_log_set(count_message, user);
    seen->is_active = false;
}

static bool has_error(void) {
    const char * text = llama_sieve_last_error();
    CHECK(text != NULL);
    return text[0] != '\0';
}

/* Makes a sampler whose constructor cannot fail, which clears the last error. */
static void clear_error(void) {
    llama_sampler_free(llama_sieve_init_greedy());
    CHECK(!has_error());
}

/* Reads the bool as a byte, since after a fault it could hold an invalid value. */
static unsigned char sorted_byte(const llama_token_data_array * array) {
    unsigned char byte;
    memcpy(&byte, &array->sorted, 1);
    return byte;
}

/* Checks the invariants of every array after apply. `n` is the array's size before the call. */
static void check_result(const guarded * g, size_t n, bool selected) {
    const llama_token_data_array * array = &g->array;
    CHECK(guards_are_intact(g));
    CHECK(array->size >= 1 && array->size <= n);
    CHECK(sorted_byte(array) <= 1);
    if (selected) {
        CHECK(array->selected >= 0 && (size_t) array->selected < array->size);
    }
    unsigned char * seen = calloc(n, 1);
    CHECK(seen != NULL);
    for (size_t i = 0; i < array->size; i++) {
        const llama_token id = array->data[i].id;
        CHECK(id >= 0 && (size_t) id < n);
        CHECK(!seen[id]);
        seen[id] = 1;
    }
    free(seen);
}

/* Checks that the sampler still works on a valid array. */
static void check_works(struct llama_sampler * smpl, int i) {
    guarded g = guarded_new(100);
    numbers from = { 7 };
    fill_candidates(g.array.data, 100, &from);
    llama_sampler_apply(smpl, &g.array);
    check_result(&g, 100, SAMPLERS[i].selects);
    guarded_free(&g);
}

/* 1. NULL wherever the interface takes a pointer. */

static void null_for_every_pointer(void) {
    for (int i = 0; i < N_SAMPLERS; i++) {
        struct llama_sampler * smpl = make(i);
        const struct llama_sampler_i * iface = smpl->iface;
        guarded g = guarded_new(10);

        CHECK(iface->name(NULL) != NULL);
        if (iface->accept != NULL) {
            iface->accept(NULL, 1);
        }
        iface->apply(NULL, NULL);
        iface->apply(NULL, &g.array);
        check_result(&g, 10, SAMPLERS[i].selects);
        iface->apply(smpl, NULL);
        llama_sampler_apply(smpl, NULL);
        CHECK(has_error());
        if (iface->reset != NULL) {
            iface->reset(NULL);
        }
        CHECK(iface->clone(NULL) == NULL);
        iface->free(NULL);
        if (iface->copy_state != NULL) {
            iface->copy_state(NULL, NULL);
            iface->copy_state(smpl, NULL);
            iface->copy_state(NULL, smpl);
            iface->copy_state(smpl, smpl);
        }
        /* Functions that a sampler does not support must be NULL, or the host would call them.
         * Where a built-in can take the sampler's place in a backend, or where there is nothing to
         * do, backend_init exists. It must also accept a NULL sampler, which no built-in can
         * replace. */
        if (iface->backend_init != NULL) {
            const bool disabled = llama_sampler_name(smpl)[0] == '?';
            CHECK(iface->backend_init(NULL, NULL, 1) == disabled);
        }
        CHECK(iface->backend_accept == NULL && iface->backend_apply == NULL);
        CHECK(iface->backend_set_input == NULL && iface->backend_reset == NULL);

        check_works(smpl, i);
        guarded_free(&g);
        llama_sampler_free(smpl);
    }
}

/* Uses a sampler after its context was freed, as a host can that calls the vtable's functions
 * itself. */
static void used_after_its_free(void) {
    for (int i = 0; i < N_SAMPLERS; i++) {
        struct llama_sampler * smpl = make(i);
        guarded g = guarded_new(10);
        smpl->iface->free(smpl);
        smpl->iface->free(smpl);
        llama_sampler_accept(smpl, 1);
        llama_sampler_reset(smpl);
        llama_sampler_apply(smpl, &g.array);
        CHECK(has_error());
        check_result(&g, 10, SAMPLERS[i].selects);
        CHECK(g.array.size == 10);
        CHECK(llama_sampler_clone(smpl) == NULL);
        llama_sampler_free(smpl);
        guarded_free(&g);
    }
}

/* 2. Arrays whose members contradict each other. */

static void refuse(struct llama_sampler * smpl, llama_token_data_array array) {
    clear_error();
    const llama_token_data_array before = array;
    llama_sampler_apply(smpl, &array);
    CHECK(has_error());
    CHECK(array.data == before.data && array.size == before.size &&
          array.selected == before.selected);
}

static void impossible_arrays(void) {
    for (int i = 0; i < N_SAMPLERS; i++) {
        struct llama_sampler * smpl = make(i);
        guarded g = guarded_new(10);
        llama_token_data_array array = g.array;

        array.data = NULL;
        refuse(smpl, array);
        array.size = SIZE_MAX;
        refuse(smpl, array);
        array.data = g.array.data;
        refuse(smpl, array);
        array.size = (size_t) INT32_MAX + 1;
        refuse(smpl, array);
        array.size = 4;
        array.data = (llama_token_data *) (void *) ((char *) g.array.data + 1);
        refuse(smpl, array);

        CHECK(guards_are_intact(&g));
        check_works(smpl, i);
        guarded_free(&g);
        llama_sampler_free(smpl);
    }
}

/* 3. A `sorted` that is neither of the two values of a bool. */

static void sorted_of_any_byte(void) {
    const unsigned char bytes[] = { 2, 0x80, 0xFF };
    for (int i = 0; i < N_SAMPLERS; i++) {
        struct llama_sampler * smpl = make(i);
        for (size_t b = 0; b < sizeof(bytes); b++) {
            guarded g = guarded_new(50);
            for (int j = 0; j < 50; j++) {
                g.array.data[j].logit = -0.1f * (float) j;
            }
            memcpy(&g.array.sorted, &bytes[b], 1);
            llama_sampler_apply(smpl, &g.array);
            check_result(&g, 50, SAMPLERS[i].selects);
            guarded_free(&g);
        }
        llama_sampler_free(smpl);
    }
}

/* 4. Constructor arguments. */

#define OF_A_FLOAT_OF(X)                                               \
    X(top_p_of, "?top-p", top_p(x, 1))                                 \
    X(min_p_of, "?min-p", min_p(x, 1))                                 \
    X(typical_of, "?typical", typical(x, 1))                           \
    X(temp_of, "?temp", temp(x))                                       \
    X(top_n_sigma_of, "?top-n-sigma", top_n_sigma(x))                  \
    X(repeat_of, "?penalties", penalties(N_VOCAB, 64, x, 0.1f, 0.1f))  \
    X(freq_of, "?penalties", penalties(N_VOCAB, 64, 1.1f, x, 0.1f))    \
    X(present_of, "?penalties", penalties(N_VOCAB, 64, 1.1f, 0.1f, x)) \
    X(top_a_of, "?top-a", top_a(x))                                    \
    X(epsilon_of, "?epsilon-cutoff", epsilon_cutoff(x))                \
    X(eta_of, "?eta-cutoff", eta_cutoff(x))                            \
    X(top_h_of, "?top-h", top_h(x))                                    \
    X(tau_of, "?min-k", min_k(x))                                      \
    X(factor_of, "?quadratic", quadratic(x, 1.5f))                     \
    X(curve_of, "?quadratic", quadratic(0.2f, x))

#define MAKER_OF_A_FLOAT(make, name, call) \
    static struct llama_sampler * make(float x) { return llama_sieve_init_##call; }
#define ROW_OF_A_FLOAT(make, name, call) { name, make },

OF_A_FLOAT_OF(MAKER_OF_A_FLOAT)

static const struct {
    const char * disabled_name;
    struct llama_sampler * (*make)(float);
} OF_A_FLOAT[] = { OF_A_FLOAT_OF(ROW_OF_A_FLOAT) };

/* Checks that applying the sampler leaves an array unchanged, byte for byte. */
static void check_passes_through(struct llama_sampler * smpl) {
    guarded g = guarded_new(100);
    llama_token_data before[100];
    numbers from = { 3 };
    fill_candidates(g.array.data, 100, &from);
    memcpy(before, g.array.data, sizeof(before));
    llama_sampler_accept(smpl, 5);
    llama_sampler_apply(smpl, &g.array);
    CHECK(g.array.size == 100 && g.array.selected == -1 && !g.array.sorted);
    CHECK(memcmp(before, g.array.data, sizeof(before)) == 0);
    CHECK(guards_are_intact(&g));
    guarded_free(&g);
}

static void parameters_that_are_not_finite(messages * seen) {
    const float values[] = { NAN, INFINITY, -INFINITY };
    for (size_t i = 0; i < sizeof(OF_A_FLOAT) / sizeof(OF_A_FLOAT[0]); i++) {
        for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
            check_subject = OF_A_FLOAT[i].disabled_name;
            clear_error();
            seen->n = 0;
            struct llama_sampler * smpl = OF_A_FLOAT[i].make(values[v]);
            CHECK(smpl != NULL);
            CHECK(strcmp(llama_sampler_name(smpl), OF_A_FLOAT[i].disabled_name) == 0);
            CHECK(seen->n == 1 && seen->level == LLAMA_SIEVE_LOG_WARN);
            CHECK(has_error() && strcmp(llama_sieve_last_error(), seen->text) == 0);
            check_passes_through(smpl);

            struct llama_sampler * clone = llama_sampler_clone(smpl);
            CHECK(clone != NULL &&
                  strcmp(llama_sampler_name(clone), OF_A_FLOAT[i].disabled_name) == 0);
            check_passes_through(clone);
            CHECK(seen->n == 1);
            llama_sampler_free(clone);
            llama_sampler_free(smpl);
        }
    }
    check_subject = "";
}

/* 5. Tokens outside the vocabulary. */

static void accept_outsiders(struct llama_sampler * smpl) {
    const llama_token outsiders[] = { -1, INT32_MIN, INT32_MAX, N_VOCAB };
    for (int round = 0; round < 50; round++) {
        for (size_t i = 0; i < sizeof(outsiders) / sizeof(outsiders[0]); i++) {
            llama_sampler_accept(smpl, outsiders[i]);
        }
    }
}

static void tokens_outside_the_vocabulary(messages * seen) {
    check_subject = "tokens outside the vocabulary";
    seen->n = 0;
    struct llama_sampler * smpl = make_penalties();
    accept_outsiders(smpl);
    CHECK(seen->n == 1 && seen->level == LLAMA_SIEVE_LOG_WARN);

    guarded g = guarded_new(N_VOCAB);
    numbers from = { 5 };
    fill_candidates(g.array.data, N_VOCAB, &from);
    const float logit = g.array.data[3].logit;
    llama_sampler_apply(smpl, &g.array);
    check_result(&g, N_VOCAB, false);
    CHECK(g.array.data[3].logit == logit);

    /* Candidates with ids outside every vocabulary, and a duplicate. */
    g.array.data[0].id = -1;
    g.array.data[1].id = INT32_MIN;
    g.array.data[2].id = INT32_MAX;
    g.array.data[4].id = 5;
    llama_sampler_apply(smpl, &g.array);
    CHECK(guards_are_intact(&g) && g.array.size == N_VOCAB);
    guarded_free(&g);
    llama_sampler_free(smpl);

    /* If the size of the vocabulary is unknown, there is no warning. */
    seen->n = 0;
    smpl = llama_sieve_init_penalties(0, 64, 1.3f, 0.0f, 0.0f);
    accept_outsiders(smpl);
    CHECK(seen->n == 0);
    llama_sampler_free(smpl);
    check_subject = "";
}

/* 6. The library's own functions. */

static void handles_that_are_no_host(void) {
    clear_error();
    CHECK(llama_sieve_attach(1) == LLAMA_SIEVE_ERROR_PARAMS);
    CHECK(strstr(llama_sieve_last_error(), "pass 0") != NULL);
    CHECK(llama_sieve_detach() == 0 && llama_sieve_last_error()[0] == '\0');
    CHECK(llama_sieve_bind_host(NULL) == LLAMA_SIEVE_ERROR_NULL);
    CHECK(llama_sieve_last_error_code() == LLAMA_SIEVE_ERROR_NULL);
    CHECK(has_error());
    void * libm = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
    CHECK(libm != NULL);
    clear_error();
    CHECK(llama_sieve_bind_host(libm) == LLAMA_SIEVE_ERROR_NO_HOST);
    CHECK(has_error());
    dlclose(libm);
    /* The host that was bound before must still be in use. */
    clear_error();
}

/* Pointers that are misaligned by one byte must not be dereferenced. */
static void misaligned_pointers(void) {
    check_subject = "misaligned";
    static uint64_t memory[16];
    void * off = (char *) memory + 1;
    struct llama_sampler * bias = llama_sieve_init_logit_bias(N_VOCAB, 1, off);
    CHECK(bias != NULL && strstr(llama_sieve_last_error(), "aligned") != NULL);
    CHECK(strcmp(llama_sampler_name(bias), "?logit-bias") == 0);
    llama_sampler_free(bias);
    struct llama_sampler * dry = llama_sieve_init_dry(NULL, 1.0f, 1.75f, 2, 64, off, 1);
    CHECK(dry != NULL && strstr(llama_sieve_last_error(), "aligned") != NULL);
    llama_sampler_free(dry);

    struct llama_sampler * trie =
        llama_sampler_init_token_trie(NULL,
                                      "{\"modelId\":\"m\",\"descriptors\":[{\"path\":\"p\","
                                      "\"leaves\":[{\"name\":\"a\",\"tokens\":[1]}]}]}",
                                      LLAMA_SIEVE_TRIE_SAMPLED);
    CHECK(trie != NULL);
    CHECK(llama_sieve_trie_forced(trie, off, 4) == 0 &&
          strstr(llama_sieve_last_error(), "aligned") != NULL);
    CHECK(llama_sieve_trie_forced(trie, (llama_token *) memory + 4, 4) == 1);
    memset(memory, 0, sizeof(memory));
    CHECK(!llama_sieve_trie_is_active(off));
    llama_sampler_free(trie);

    for (int i = 0; i < N_SAMPLERS; i++) {
        struct llama_sampler * smpl = make(i);
        guarded g = guarded_new(10);
        g.array.data = (llama_token_data *) ((char *) g.array.data + 1);
        llama_sampler_apply(smpl, &g.array);
        g.array.data = (llama_token_data *) ((char *) g.array.data - 1);
        smpl->iface->apply(smpl, off);
        smpl->iface->apply(off, &g.array);
        CHECK(guards_are_intact(&g) && g.array.size == 10);
        guarded_free(&g);
        llama_sampler_free(smpl);
    }
    for (int i = 0; i < 16; i++) {
        CHECK(memory[i] == 0);
    }
}

int main(void) {
    messages seen = { 0 };
    CHECK(strcmp(llama_sieve_last_error(), "") == 0);
    llama_sieve_log_set(NULL, NULL);
    llama_sieve_log_set(NULL, &seen);
    llama_sieve_log_set(count_message, &seen);

    null_for_every_pointer();
    used_after_its_free();
    impossible_arrays();
    sorted_of_any_byte();
    parameters_that_are_not_finite(&seen);
    tokens_outside_the_vocabulary(&seen);
    handles_that_are_no_host();
    misaligned_pointers();

    llama_sieve_log_set(NULL, NULL);
    puts("everything had an answer");
    return 0;
}
