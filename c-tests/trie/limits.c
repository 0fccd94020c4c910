/* What a payload can ask for, and what a token trie leaves of candidates that others have banned.
 *
 * Argument: the trained model. */
#include <math.h>
#include <sys/resource.h>

#include "llama_sieve.h"
#include "../messages.h"

#include "../check.h"

static int         n_warnings, n_errors;
static char        last_message[512];
static const int   MODES[] = {
    LLAMA_SIEVE_TRIE_GREEDY,
    LLAMA_SIEVE_TRIE_SAMPLED,
    LLAMA_SIEVE_TRIE_GREEDY | LLAMA_SIEVE_TRIE_COMPACT,
    LLAMA_SIEVE_TRIE_SAMPLED | LLAMA_SIEVE_TRIE_COMPACT,
};
enum { N_MODES = 4, N = 100 };

static void count(int level, const char * text, void * user) {
    (void) user;
    n_warnings += level == LLAMA_SIEVE_LOG_WARN;
    n_errors += level == LLAMA_SIEVE_LOG_ERROR;
    snprintf(last_message, sizeof(last_message), "%s", text);
}

static void say_nothing(enum ggml_log_level level, const char * text, void * user) {
    (void) level;
    (void) text;
    (void) user;
}

static struct llama_sampler * new_slot(void) {
    struct llama_sampler * slot = llama_sieve_init_trie_slot(NULL);
    CHECK(slot != NULL);
    return slot;
}

static int set(struct llama_sampler * slot, const char * json, int mode) {
    return llama_sieve_trie_set(slot, json, strlen(json), mode);
}

/* Memory. */

static long peak_kib(void) {
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_maxrss;
}

static void memory_follows_from_the_size_of_what_is_given(void) {
    check_subject = "a small payload with a large token";
    static const char JSON[] =
        "{\"descriptors\":[{\"path\":\"\",\"leaves\":[{\"name\":\"\",\"tokens\":[2147483647]}]}]}";
    for (size_t i = 0; i < N_MODES; i++) {
        struct llama_sampler * slot = new_slot();
        CHECK(set(slot, JSON, MODES[i]) == LLAMA_SIEVE_OK);
        guarded    g      = guarded_new(N);
        const long before = peak_kib();
        llama_sampler_apply(slot, &g.array);
        CHECK(peak_kib() - before < 16 * 1024);
        CHECK(g.array.size == 1 && g.array.data[0].id == 2147483647);
        CHECK(guards_are_intact(&g));
        guarded_free(&g);
        llama_sampler_free(slot);
    }
}

static void the_cache_keeps_so_many_bytes(void) {
    check_subject = "the cache";
    /* Three bytes of it make a node of twelve: each payload has a trie of about 4 MB. */
    enum { N_VALUES = 900, N_TOKENS = 400 };
    const size_t room = 64 + N_VALUES * (N_TOKENS * 3 + 64);
    char *       json = check_malloc(room);
    struct llama_sampler *  slot  = new_slot();
    llama_sieve_cache_stats stats = { 0 };
    for (int round = 0; round < 12; round++) {
        size_t used =
            (size_t) snprintf(json, room, "{\"descriptors\":[{\"path\":\"%d\",\"leaves\":[", round);
        for (int value = 0; value < N_VALUES; value++) {
            used += (size_t) snprintf(json + used, room - used, "%s{\"name\":\"n\",\"tokens\":[%d",
                                      value == 0 ? "" : ",", value);
            for (int k = 1; k < N_TOKENS; k++) {
                used += (size_t) snprintf(json + used, room - used, ",1");
            }
            used += (size_t) snprintf(json + used, room - used, "]}");
        }
        used += (size_t) snprintf(json + used, room - used, "]}]}");
        CHECK(used < room);
        CHECK(set(slot, json, LLAMA_SIEVE_TRIE_SAMPLED) == LLAMA_SIEVE_OK);
        llama_sieve_trie_cache_stats(&stats);
        CHECK(stats.bytes <= LLAMA_SIEVE_TRIE_CACHE_BYTES);
    }
    CHECK(stats.bytes > LLAMA_SIEVE_TRIE_CACHE_BYTES / 2 && stats.evictions > 0);
    llama_sampler_free(slot);
    free(json);
}

/* The length of a span. */

/* The payload of one value of tokens 0, 1, ... */
static void one_value(char * json, size_t room, int n_tokens) {
    size_t used = (size_t) snprintf(
        json, room,
        "{\"descriptors\":[{\"path\":\"p\",\"leaves\":[{\"name\":\"long\",\"tokens\":[");
    for (int token = 0; token < n_tokens; token++) {
        used += (size_t) snprintf(json + used, room - used, "%s%d", token == 0 ? "" : ",", token);
    }
    used += (size_t) snprintf(json + used, room - used, "]}]}]}");
    CHECK(used < room);
}

static void a_value_is_as_long_as_a_span_may_be(void) {
    check_subject = "long values";
    char json[8192];
    struct llama_sampler * slot = new_slot();
    one_value(json, sizeof(json), LLAMA_SIEVE_TRIE_SPAN_LIMIT + 1);
    CHECK(set(slot, json, LLAMA_SIEVE_TRIE_SAMPLED) == LLAMA_SIEVE_ERROR_INVALID);
    CHECK(says("descriptors[0].leaves[0].tokens") && says("501") &&
          says("LLAMA_SIEVE_TRIE_SPAN_LIMIT"));
    CHECK(llama_sampler_init_token_trie(NULL, json, LLAMA_SIEVE_TRIE_SAMPLED) == NULL);
    CHECK(says("LLAMA_SIEVE_TRIE_SPAN_LIMIT"));

    one_value(json, sizeof(json), LLAMA_SIEVE_TRIE_SPAN_LIMIT);
    CHECK(set(slot, json, LLAMA_SIEVE_TRIE_SAMPLED) == LLAMA_SIEVE_OK);
    for (int token = 0; token < LLAMA_SIEVE_TRIE_SPAN_LIMIT; token++) {
        llama_token out[4] = { -1, -1, -1, -1 };
        const size_t left  = (size_t) (LLAMA_SIEVE_TRIE_SPAN_LIMIT - token);
        CHECK(llama_sieve_trie_forced(slot, out, 3) == left && out[3] == -1);
        CHECK(out[0] == token && out[1] == (left > 1 ? token + 1 : -1));
        CHECK(llama_sieve_trie_forced(slot, NULL, SIZE_MAX) == left);
        CHECK(llama_sieve_trie_is_active(slot));
        llama_sampler_accept(slot, token);
    }
    CHECK(!llama_sieve_trie_is_active(slot));
    CHECK(strcmp(llama_sieve_trie_leaf(slot), "long") == 0);
    llama_sampler_free(slot);
}

static void names_hold_no_nul(void) {
    check_subject = "names";
    struct llama_sampler * slot = new_slot();
    CHECK(set(slot,
              "{\"descriptors\":[{\"path\":\"p\",\"leaves\":[{\"name\":\"ab\",\"tokens\":[1]},{"
              "\"name\":\"a\\u0000b\",\"tokens\":[2]}]}]}",
              0) == LLAMA_SIEVE_ERROR_INVALID);
    CHECK(says("descriptors[0].leaves[1].name") && says("NUL"));
    CHECK(!llama_sieve_trie_is_active(slot));
    llama_sampler_free(slot);
}

static void misaligned_room_is_an_answer(void) {
    check_subject = "alignment";
    struct llama_sampler * slot = new_slot();
    char json[256];
    one_value(json, sizeof(json), 3);
    CHECK(set(slot, json, 0) == LLAMA_SIEVE_OK);
    llama_token room[4] = { -1, -1, -1, -1 };
    void *      askew   = (char *) room + 1;
    CHECK(llama_sieve_trie_forced(slot, askew, 3) == 0 && says("aligned"));
    CHECK(room[0] == -1 && room[3] == -1);
    uint64_t stats[6] = { 7, 7, 7, 7, 7, 7 };
    askew = (char *) stats + 4;
    llama_sieve_trie_cache_stats(askew);
    CHECK(says("aligned") && stats[0] == 7 && stats[5] == 7);
    llama_sampler_free(slot);
}

/* What may follow. */

static void what_may_follow_is_told(void) {
    check_subject = "allowed tokens";
    static const char JSON[] =
        "{\"descriptors\":[{\"path\":\"p\",\"terminators\":[7,6],\"leaves\":[{\"name\":\"a\","
        "\"tokens\":[1]},"
        "{\"name\":\"b\",\"tokens\":[1,2]},{\"name\":\"c\",\"tokens\":[3]}]}]}";
    struct llama_sampler * slot = new_slot();
    llama_token out[4] = { -1, -1, -1, -1 };
    CHECK(llama_sieve_trie_allowed(slot, out, 4) == 0 && out[0] == -1);
    CHECK(llama_sieve_trie_allowed(NULL, out, 4) == 0 && says("NULL"));
    CHECK(set(slot, JSON, LLAMA_SIEVE_TRIE_SAMPLED | LLAMA_SIEVE_TRIE_RESET_IDLE) ==
          LLAMA_SIEVE_OK);
    CHECK(llama_sieve_trie_allowed(slot, out, 1) == 2 && out[0] == 1 && out[1] == -1);
    CHECK(llama_sieve_trie_allowed(slot, NULL, SIZE_MAX) == 2);
    void * askew = (char *) out + 1;
    CHECK(llama_sieve_trie_allowed(slot, askew, 2) == 0 && says("aligned") && out[1] == -1);
    /* Behind "a" goes on "b", or comes what may follow a value. */
    llama_sampler_accept(slot, 1);
    CHECK(llama_sieve_trie_allowed(slot, out, 4) == 3 && out[0] == 2 && out[1] == 6 &&
          out[2] == 7 && out[3] == -1);
    llama_sampler_accept(slot, 6);
    CHECK(!llama_sieve_trie_is_active(slot) && strcmp(llama_sieve_trie_leaf(slot), "a") == 0);
    llama_sampler_reset(slot);
    CHECK(!llama_sieve_trie_is_active(slot) && strcmp(llama_sieve_trie_leaf(slot), "a") == 0);
    /* Without the bit, and where the span is not complete, it begins anew. */
    CHECK(set(slot, JSON, LLAMA_SIEVE_TRIE_SAMPLED) == LLAMA_SIEVE_OK);
    llama_sampler_accept(slot, 3);
    CHECK(!llama_sieve_trie_is_active(slot));
    llama_sampler_reset(slot);
    CHECK(llama_sieve_trie_is_active(slot) && llama_sieve_trie_leaf(slot) == NULL);
    llama_sampler_free(slot);
}

/* Bans. */

/* Three values: 10 11, 20, 30. */
static const char CHOICE[] =
    "{\"descriptors\":[{\"path\":\"p\",\"leaves\":[{\"name\":\"ten\",\"tokens\":[10,11]},"
    "{\"name\":\"twenty\",\"tokens\":[20]},{\"name\":\"thirty\",\"tokens\":[30]}]}]}";

static bool is_choice(llama_token token) {
    return token == 10 || token == 20 || token == 30;
}

static guarded candidates(void) {
    guarded g = guarded_new(N);
    for (size_t i = 0; i < g.n; i++) {
        g.array.data[i].logit = (float) (i % 7);
    }
    return g;
}

/* What ends a chain: the host's own and ours. */
static void add_tail(struct llama_sampler * chain, int which) {
    switch (which) {
        case 0:
            return;
        case 1:
            llama_sampler_chain_add(chain, llama_sampler_init_greedy());
            return;
        case 2:
            llama_sampler_chain_add(chain, llama_sieve_init_top_k(40));
            llama_sampler_chain_add(chain, llama_sieve_init_temp(0.8f));
            llama_sampler_chain_add(chain, llama_sieve_init_dist(5));
            return;
        case 3:
            llama_sampler_chain_add(chain, llama_sieve_init_typical(0.9f, 1));
            llama_sampler_chain_add(chain, llama_sieve_init_top_p(0.9f, 1));
            llama_sampler_chain_add(chain, llama_sieve_init_min_p(0.1f, 1));
            llama_sampler_chain_add(chain, llama_sieve_init_greedy());
            return;
        default: {
            llama_sieve_params params = llama_sieve_default_params();
            params.seed = 5;
            llama_sampler_chain_add(chain, llama_sieve_init_sampler(&params));
        }
    }
}

static struct llama_sampler * trie_of(const char * json, int mode) {
    struct llama_sampler * trie = llama_sampler_init_token_trie(NULL, json, mode);
    CHECK(trie != NULL);
    n_warnings = n_errors = 0;
    return trie;
}

/* Bans the first n of the three by the host's own logit bias. */
static void banned_tokens_stay_banned(int n, int mode, int tail) {
    check_subject = "bans by logit bias";
    const llama_logit_bias  bias[]  = { { 20, -INFINITY }, { 10, -INFINITY }, { 30, -INFINITY } };
    struct llama_sampler * chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    struct llama_sampler *  trie    = trie_of(CHOICE, mode);
    llama_sampler_chain_add(chain, llama_sampler_init_logit_bias(N, n, bias));
    llama_sampler_chain_add(chain, trie);
    add_tail(chain, tail);
    for (int round = 0; round < 3; round++) {
        guarded g = candidates();
        llama_sampler_apply(chain, &g.array);
        CHECK(guards_are_intact(&g) && g.array.size > 0);
        for (size_t i = 0; i < g.array.size; i++) {
            const llama_token_data c = g.array.data[i];
            bool banned = !is_choice(c.id);
            for (int k = 0; k < n; k++) {
                banned |= bias[k].token == c.id;
            }
            CHECK(!banned || c.logit == -INFINITY);
            CHECK(n < 3 || is_choice(c.id));
        }
        if (tail != 0 || (mode & 1) == LLAMA_SIEVE_TRIE_GREEDY) {
            CHECK(g.array.selected >= 0 && (size_t) g.array.selected < g.array.size);
            const llama_token_data chosen = g.array.data[g.array.selected];
            CHECK(is_choice(chosen.id) && (n == 3 || chosen.logit > -INFINITY));
        }
        if (n == 3 && tail == 0) {
            CHECK(g.array.size == 3);
            CHECK(g.array.data[0].id == 10 && g.array.data[1].id == 20 && g.array.data[2].id == 30);
        }
        guarded_free(&g);
    }
    /* Once, and of all that are banned. */
    CHECK(n_warnings == 0 && n_errors == (n == 3));
    CHECK(n < 3 || strstr(last_message, "every token that may follow is banned") != NULL);
    llama_sampler_free(chain);
}

/* Candidates 20, banned, and 40: what is absent is put back, what is banned is not. */
static void only_what_is_absent_is_put_back(int mode) {
    check_subject = "cut and banned";
    struct llama_sampler * trie = trie_of(CHOICE, mode);
    guarded g = guarded_new(2);
    g.array.data[0] = (llama_token_data) { .id = 20, .logit = -INFINITY };
    g.array.data[1] = (llama_token_data) { .id = 40, .logit = 3.0f };
    llama_sampler_apply(trie, &g.array);
    CHECK(guards_are_intact(&g) && g.array.size == 2);
    CHECK(g.array.data[0].id == 10 && g.array.data[1].id == 30);
    CHECK(g.array.data[0].logit == 0.0f && g.array.data[1].logit == 0.0f);
    CHECK(g.array.selected == ((mode & 1) == LLAMA_SIEVE_TRIE_GREEDY ? 0 : -1));
    CHECK(n_warnings == 1 && n_errors == 0);
    guarded_free(&g);
    /* No room for anything is no reason to speak. */
    llama_token_data_array empty = { .data = NULL, .size = 0, .selected = -1, .sorted = false };
    llama_sampler_apply(trie, &empty);
    CHECK(empty.size == 0 && empty.selected == -1 && n_warnings == 1 && n_errors == 0);
    llama_sampler_free(trie);
}

/* A truncating sampler in front that has cut a banned token away hides the ban: the trie cannot
 * tell that token from one that was merely improbable, and puts it back. Behind the trie it cannot.
 */
static void a_truncating_sampler_in_front_hides_a_ban(int mode) {
    check_subject = "cut bans";
    const llama_logit_bias bias[] = { { 10, -INFINITY }, { 20, -INFINITY }, { 30, -INFINITY } };
    for (int in_front = 0; in_front < 2; in_front++) {
        struct llama_sampler * chain =
            llama_sampler_chain_init(llama_sampler_chain_default_params());
        struct llama_sampler * trie  = trie_of(CHOICE, mode);
        llama_sampler_chain_add(chain, llama_sampler_init_logit_bias(N, 3, bias));
        if (in_front == 1) {
            llama_sampler_chain_add(chain, llama_sampler_init_top_k(40));
        }
        llama_sampler_chain_add(chain, trie);
        if (in_front == 0) {
            llama_sampler_chain_add(chain, llama_sampler_init_top_k(40));
        }
        guarded g = candidates();
        llama_sampler_apply(chain, &g.array);
        CHECK(guards_are_intact(&g) && g.array.size > 0);
        size_t n_possible = 0;
        for (size_t i = 0; i < g.array.size; i++) {
            const llama_token_data c = g.array.data[i];
            CHECK(is_choice(c.id) || c.logit == -INFINITY);
            n_possible += c.logit > -INFINITY;
        }
        CHECK(g.array.size == 3 && n_possible == (in_front == 0 ? 0 : 3));
        /* Each of the two says what it did. */
        CHECK(n_warnings == in_front && n_errors == 1 - in_front);
        guarded_free(&g);
        llama_sampler_free(chain);
    }
}

/* A grammar in front that takes one of the values, or none. */
static void a_grammar_bans_as_well(const struct llama_vocab * vocab, const char * grammar, bool one,
                                   int mode) {
    check_subject = "bans by a grammar";
    const char * const values[] = { "Moses", "Aaron" };
    llama_token        first[2];
    char               json[512];
    size_t used =
        (size_t) snprintf(json, sizeof(json), "{\"descriptors\":[{\"path\":\"p\",\"leaves\":[");
    for (size_t i = 0; i < 2; i++) {
        llama_token   tokens[16];
        const int32_t n =
            llama_tokenize(vocab, values[i], (int32_t) strlen(values[i]), tokens, 16, false, false);
        CHECK(n > 0);
        first[i] = tokens[0];
        used += (size_t) snprintf(json + used, sizeof(json) - used,
                                  "%s{\"name\":\"%s\",\"tokens\":[", i == 0 ? "" : ",", values[i]);
        for (int32_t k = 0; k < n; k++) {
            used += (size_t) snprintf(json + used, sizeof(json) - used, "%s%d", k == 0 ? "" : ",",
                                      (int) tokens[k]);
        }
        used += (size_t) snprintf(json + used, sizeof(json) - used, "]}");
    }
    snprintf(json + used, sizeof(json) - used, "]}]}");
    CHECK(first[0] != first[1]);

    struct llama_sampler * front = llama_sampler_init_grammar(vocab, grammar, "root");
    CHECK(front != NULL);
    struct llama_sampler * trie  = trie_of(json, mode);
    struct llama_sampler * chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    llama_sampler_chain_add(chain, front);
    llama_sampler_chain_add(chain, trie);
    guarded g = guarded_new((size_t) llama_vocab_n_tokens(vocab));
    llama_sampler_apply(chain, &g.array);
    CHECK(guards_are_intact(&g));
    size_t n_possible = 0;
    for (size_t i = 0; i < g.array.size; i++) {
        const llama_token_data c = g.array.data[i];
        if (c.logit > -INFINITY) {
            CHECK(one && c.id == first[0]);
            n_possible++;
        }
    }
    CHECK(g.array.size == (one ? 1 : 2) && n_possible == (one ? 1 : 0));
    CHECK(n_warnings == 0 && n_errors == (one ? 0 : 1));
    guarded_free(&g);
    llama_sampler_free(chain);
}

static void a_sieve_says_that_there_is_no_candidate(void) {
    check_subject = "the sieve";
    float logits[N];
    for (size_t i = 0; i < N; i++) {
        logits[i] = -INFINITY;
    }
    llama_sieve_params params = llama_sieve_default_params();
    llama_sieve *      sieve  = llama_sieve_new(&params);
    CHECK(sieve != NULL);
    CHECK(llama_sieve_sample(sieve, logits, N) == LLAMA_SIEVE_ERROR_NO_CANDIDATE);
    logits[7] = 0.0f;
    CHECK(llama_sieve_sample(sieve, logits, N) == 7);
    llama_sieve_free(sieve);
}

int main(int argc, char ** argv) {
    CHECK(argc == 2);
    llama_sieve_log_set(count, NULL);
    llama_log_set(say_nothing, NULL);
    struct llama_model_params params = llama_model_default_params();
    params.vocab_only = true;
    struct llama_model * model = llama_model_load_from_file(argv[1], params);
    CHECK(model != NULL);

    memory_follows_from_the_size_of_what_is_given();
    the_cache_keeps_so_many_bytes();
    a_value_is_as_long_as_a_span_may_be();
    names_hold_no_nul();
    misaligned_room_is_an_answer();
    what_may_follow_is_told();
    for (int mode = 0; mode < N_MODES; mode++) {
        for (int tail = 0; tail < 5; tail++) {
            for (int n = 0; n <= 3; n++) {
                banned_tokens_stay_banned(n, MODES[mode], tail);
            }
        }
        only_what_is_absent_is_put_back(MODES[mode]);
        a_truncating_sampler_in_front_hides_a_ban(MODES[mode]);
        a_grammar_bans_as_well(llama_model_get_vocab(model), "root ::= \"Moses\"", true,
                               MODES[mode]);
        a_grammar_bans_as_well(llama_model_get_vocab(model), "root ::= [0-9]+", false, MODES[mode]);
    }
    a_sieve_says_that_there_is_no_candidate();
    llama_model_free(model);
    puts("every limit holds");
    return EXIT_SUCCESS;
}
