// A program, or with AS_ADDON an addon, for an older llama.cpp. Prints what its samplers do;
// old_host.c prints the calls of their constructors.
#include "old_llama.h"

#include <stdio.h>

enum { N = 6 };

static void show(const char * what, struct llama_sampler * smpl, const llama_token * history,
                 size_t n_history) {
    if (smpl == NULL) {
        printf("%s: NULL\n", what);
        return;
    }
    llama_token_data data[N];
    for (int i = 0; i < N; i++) {
        data[i] = (llama_token_data){ .id = i,
                                      .logit = i % 2 == 0 ? 4.0f - (float) i : -1.0f,
                                      .p = 0.0f };
    }
    llama_token_data_array array = { .data = data, .size = N, .selected = -1, .sorted = false };
    for (size_t i = 0; i < n_history; i++) {
        smpl->iface->accept(smpl, history[i]);
    }
    smpl->iface->apply(smpl, &array);
    printf("%s: %s", what, smpl->iface->name(smpl));
    for (size_t i = 0; i < array.size; i++) {
        printf(" %d:%g", array.data[i].id, array.data[i].logit);
    }
    printf("\n");
    llama_sampler_free(smpl);
}

#ifdef AS_ADDON
int addon_run(void);
int addon_run(void) {
#else
int main(void) {
#endif
    setvbuf(stdout, NULL, _IONBF, 0);
    const llama_token history[] = { 1, 2, 3, 1, 2 };
    const char *      breakers[] = { "." };
    // Not a real vocabulary: without breakers nothing reads it.
    const struct llama_vocab * vocab      = (const struct llama_vocab *) breakers;
    const size_t               n_breakers = 0;

#if defined(PENALTIES_WITH_NEWLINES)
    show("penalties", llama_sampler_init_penalties(1000, 2, 13, 64, 2.0f, 0.5f, 0.25f, true, false),
         history, 5);
#elif defined(PENALTIES_WITH_ANOTHER)
    show("penalties", llama_sampler_init_penalties(7, 32000, 4, 2.0f, 0.5f, 0.25f), history, 5);
#elif defined(PENALTIES_WITH_N_VOCAB)
    show("penalties", llama_sampler_init_penalties(1000, 4, 2.0f, 0.5f, 0.25f), history, 5);
#else
    show("penalties", llama_sampler_init_penalties(4, 2.0f, 0.5f, 0.25f), history, 5);
#endif

#if defined(DRY_WITHOUT_N_CTX_TRAIN)
    show("dry", llama_sampler_init_dry(vocab, 2.0f, 3.0f, 2, 64, breakers, n_breakers), history, 5);
#else
    show("dry", llama_sampler_init_dry(vocab, 512, 2.0f, 3.0f, 2, 64, breakers, n_breakers),
         history, 5);
    // With -1, DRY searches the whole context.
    show("dry", llama_sampler_init_dry(vocab, 512, 2.0f, 3.0f, 1, -1, breakers, n_breakers),
         history, 5);
    show("dry", llama_sampler_init_dry(vocab, 3, 2.0f, 3.0f, 1, -1, breakers, n_breakers), history,
         5);
#endif
    show("min-p", llama_sampler_init_min_p(0.5f, 1), NULL, 0);
    show("temp", llama_sampler_init_temp(0.5f), NULL, 0);
    struct llama_sampler * dist = llama_sampler_init_dist(4242);
    printf("seed: %u\n", llama_sampler_get_seed(dist));
    show("dist", dist, NULL, 0);
    return 0;
}
