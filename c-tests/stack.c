/* Runs every sampler on a small stack, as in hosts with coroutines: 32 KiB for the drop-ins, which
 * replace built-ins, and 64 KiB for everything else. An overflow hits a guard page and ends the
 * process. */
#define _GNU_SOURCE /* MAP_ANONYMOUS, beside -std=c11 */
#include <sys/mman.h>
#include <ucontext.h>

#include "check.h"
#include "messages.h"

#include "llama_sieve.h"

enum { N = 128256, PAGE = 4096, SMALL = 32 * 1024, LARGE = 64 * 1024 };

static ucontext_t at_home;

/* Calls `body` on a stack of `size` bytes. */
static void on_stack(size_t size, void (*body)(void)) {
    char * memory =
        mmap(NULL, size + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    CHECK(mprotect(memory, PAGE, PROT_NONE) == 0);
    ucontext_t there;
    CHECK(getcontext(&there) == 0);
    there.uc_stack.ss_sp   = memory + PAGE;
    there.uc_stack.ss_size = size;
    there.uc_link          = &at_home;
    makecontext(&there, body, 0);
    CHECK(swapcontext(&at_home, &there) == 0);
    CHECK(munmap(memory, size + PAGE) == 0);
}

static struct llama_sampler * made(int kind) {
    switch (kind) {
        case 0: return llama_sieve_init_greedy();
        case 1: return llama_sieve_init_dist(1);
        case 2: return llama_sieve_init_top_k(40);
        case 3: return llama_sieve_init_top_k(1000);
        case 4: return llama_sieve_init_top_p(0.95f, 1);
        case 5: return llama_sieve_init_min_p(0.05f, 1);
        case 6: return llama_sieve_init_typical(0.9f, 1);
        case 7: return llama_sieve_init_temp(0.8f);
        case 8: return llama_sieve_init_temp_ext(0.8f, 0.3f, 1.5f);
        case 9: return llama_sieve_init_xtc(1.0f, 0.0f, 1, 1);
        case 10: return llama_sieve_init_top_n_sigma(1.0f);
        case 11: return llama_sieve_init_mirostat(N, 1, 5.0f, 0.1f, 100);
        case 12: return llama_sieve_init_mirostat_v2(1, 5.0f, 0.1f);
        case 13: return llama_sieve_init_adaptive_p(0.5f, 0.9f, 1);
        case 14: return llama_sieve_init_penalties(N, 64, 1.1f, 0.1f, 0.1f);
        default: return llama_sieve_init_dry(NULL, 0.8f, 1.75f, 2, 64, NULL, 0);
    }
}
enum { N_KINDS = 16 };

static int                kind;
static llama_token_data * data;
static float *            logits;

/* Calls a drop-in for the first time, including its messages. */
static void drop_in(void) {
    struct llama_sampler * smpl = made(kind);
    CHECK(smpl != NULL);
    llama_token_data_array array = { .data = data, .size = N, .selected = -1, .sorted = false };
    smpl->iface->apply(smpl, &array);
    CHECK(array.size > 0);
    if (smpl->iface->accept != NULL) {
        smpl->iface->accept(smpl, 1);
        smpl->iface->accept(smpl, N + 1);
    }
    llama_sampler_free(smpl);
}

/* Reads payloads that are nested up to the limit, and beyond it. */
static void trie(void) {
    char json[400] = "{\"x\":";
    for (int i = 0; i < 200; i++) {
        strcat(json, "[");
    }
    CHECK(llama_sampler_init_token_trie(NULL, json, LLAMA_SIEVE_TRIE_SAMPLED) == NULL);
    json[5 + 120] = '\0';
    CHECK(llama_sampler_init_token_trie(NULL, json, LLAMA_SIEVE_TRIE_SAMPLED) == NULL);
    static const char VALUES[] =
        "{\"descriptors\":[{\"path\":\"p\",\"leaves\":[{\"name\":\"a\",\"tokens\":[1,2]}]}]}";
    struct llama_sampler * smpl =
        llama_sampler_init_token_trie(NULL, VALUES, LLAMA_SIEVE_TRIE_SAMPLED);
    CHECK(smpl != NULL);
    llama_token_data_array array = { .data = data, .size = N, .selected = -1, .sorted = false };
    smpl->iface->apply(smpl, &array);
    CHECK(array.size == 1);
    llama_sampler_free(smpl);
}

static void sieve(void) {
    llama_sieve_params params = llama_sieve_default_params();
    params.mode      = kind % 2 == 0 ? LLAMA_SIEVE_MODE_FAST : LLAMA_SIEVE_MODE_PARITY;
    params.top_k     = kind < 2 ? 40 : 0;
    params.typical_p = kind == 4 || kind == 5 ? 0.9f : 1.0f;
    params.top_p     = kind < 6 ? 0.9f : 1.0f;
    llama_sieve * one = llama_sieve_new(&params);
    CHECK(one != NULL);
    for (int i = 0; i < 3; i++) {
        const int32_t token = llama_sieve_sample(one, logits, N);
        CHECK(token >= 0);
        llama_sieve_accept(one, token);
    }
    llama_sieve_free(one);
}

/* Fills in random logits, rounded ones with ties, or equal ones. */
static void fill(int shape) {
    numbers from = { 7 };
    for (int i = 0; i < N; i++) {
        const float random = (float) number_below(&from, 1 << 20) / 65536.0f;
        const float logit = shape == 0 ? random : shape == 1 ? (float) (int) (random * 4.0f) : 1.0f;
        logits[i]          = logit;
        data[i]            = (llama_token_data) { .id = i, .logit = logit, .p = 0.0f };
    }
}

int main(void) {
    data   = check_malloc(N * sizeof(*data));
    logits = check_malloc(N * sizeof(*logits));
    llama_sieve_log_set(ignore_message, NULL);
    for (int shape = 0; shape < 3; shape++) {
        check_subject = "drop-ins";
        for (kind = 0; kind < N_KINDS; kind++) {
            fill(shape);
            on_stack(SMALL, drop_in);
        }
        check_subject = "the sieve";
        for (kind = 0; kind < 8; kind++) {
            fill(shape);
            on_stack(LARGE, sieve);
        }
        fill(shape);
        on_stack(LARGE, trie);
    }
    free(logits);
    free(data);
    puts("every stack was large enough");
    return EXIT_SUCCESS;
}
