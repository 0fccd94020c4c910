/* Tests a trie of plain strings: each has the tokens that it has after other text, and wrong
 * arguments are errors. The first argument is a model. */
#include "../check.h"
#include "../messages.h"
#include "../vocabulary.h"

#include "llama_sieve.h"

#if LLAMA_SIEVE_VERSION_NUMBER < 100
#error "the header is older than the test"
#endif

enum { ROOM = 64, N_VALUES = 4 };

static const char * const VALUES[N_VALUES] = { " Moses", " Aaron", " the LORD",
                                               " the children of Israel" };

static const struct llama_vocab * vocab;

static int32_t tokens_of(const char * text, llama_token * out) {
    const int32_t n = llama_tokenize(vocab, text, (int32_t) strlen(text), out, ROOM, false, false);
    CHECK(n > 0);
    return n;
}

/* Writes the tokens of a value after a text: those of both together, without the text's. */
static size_t behind(const char * before, const char * value, llama_token * out) {
    char together[256];
    CHECK(snprintf(together, sizeof(together), "%s%s", before, value) < (int) sizeof(together));
    llama_token   first[ROOM], all[ROOM];
    const int32_t n_first = tokens_of(before, first);
    const int32_t n       = tokens_of(together, all);
    CHECK(n > n_first && memcmp(first, all, (size_t) n_first * sizeof(*first)) == 0);
    memcpy(out, all + n_first, (size_t) (n - n_first) * sizeof(*out));
    return (size_t) (n - n_first);
}

static size_t allowed(const struct llama_sampler * trie, llama_token * out) {
    const size_t n = llama_sieve_trie_allowed(trie, out, ROOM);
    CHECK(n <= ROOM);
    return n;
}

/* Accepts each value token by token, as it is tokenized in the text. */
static void every_value_can_be_written(void) {
    for (int mode = LLAMA_SIEVE_TRIE_GREEDY; mode <= LLAMA_SIEVE_TRIE_SAMPLED; mode++) {
        struct llama_sampler * trie = llama_sieve_init_trie_strings(vocab, VALUES, N_VALUES, mode);
        CHECK(trie != NULL && strcmp(llama_sieve_last_error(), "") == 0);
        CHECK(strcmp(llama_sampler_name(trie), "token-trie") == 0 &&
              llama_sieve_trie_is_active(trie));
        for (int i = 0; i < N_VALUES; i++) {
            llama_token  tokens[ROOM], may[ROOM];
            const size_t n = behind("And the LORD said unto", VALUES[i], tokens);
            CHECK(llama_sieve_trie_activate(trie, "") == LLAMA_SIEVE_OK);
            for (size_t k = 0; k < n; k++) {
                const size_t n_may = allowed(trie, may);
                bool         found = false;
                for (size_t j = 0; j < n_may; j++) {
                    found = found || may[j] == tokens[k];
                }
                CHECK(found);
                llama_sampler_accept(trie, tokens[k]);
            }
            CHECK(!llama_sieve_trie_is_active(trie) &&
                  strcmp(llama_sieve_trie_leaf(trie), VALUES[i]) == 0);
        }
        llama_sampler_free(trie);
    }
}

/* The same values in another order give the same trie, and so does a payload of the same tokens. */
static void the_same_set_is_known(void) {
    const char * const     reversed[] = { VALUES[3], VALUES[2], VALUES[1], VALUES[0], VALUES[3] };
    llama_sieve_trie_stats before     = { .struct_size = sizeof(before) };
    llama_sieve_trie_stats after      = { .struct_size = sizeof(after) };
    struct llama_sampler * first =
        llama_sieve_init_trie_strings(vocab, VALUES, N_VALUES, LLAMA_SIEVE_TRIE_SAMPLED);
    CHECK(llama_sieve_trie_get_stats(&before) == LLAMA_SIEVE_OK);
    struct llama_sampler * second =
        llama_sieve_init_trie_strings(vocab, reversed, N_VALUES + 1, LLAMA_SIEVE_TRIE_SAMPLED);
    CHECK(first != NULL && second != NULL);
    CHECK(llama_sieve_trie_get_stats(&after) == LLAMA_SIEVE_OK);
    CHECK(after.hits == before.hits + 1 && after.misses == before.misses &&
          after.entries == before.entries);

    char   json[2][2048];
    size_t used[2];
    for (int order = 0; order < 2; order++) {
        used[order] = (size_t) snprintf(json[order], sizeof(json[order]),
                                        "{\"descriptors\":[{\"path\":\"p\",\"leaves\":[");
        for (int i = 0; i < N_VALUES; i++) {
            const char * value = VALUES[order == 0 ? i : N_VALUES - 1 - i];
            llama_token  tokens[ROOM];
            const size_t n = behind("unto", value, tokens);
            used[order] +=
                (size_t) snprintf(json[order] + used[order], sizeof(json[order]) - used[order],
                                  "%s{\"name\":\"%s\",\"tokens\":[", i == 0 ? "" : ",", value);
            for (size_t k = 0; k < n; k++) {
                used[order] +=
                    (size_t) snprintf(json[order] + used[order], sizeof(json[order]) - used[order],
                                      "%s%d", k == 0 ? "" : ",", tokens[k]);
            }
            used[order] += (size_t) snprintf(json[order] + used[order],
                                             sizeof(json[order]) - used[order], "]}");
        }
        used[order] +=
            (size_t) snprintf(json[order] + used[order], sizeof(json[order]) - used[order], "]}]}");
        CHECK(used[order] < sizeof(json[order]));
    }
    CHECK(llama_sieve_trie_set(first, json[0], used[0], LLAMA_SIEVE_TRIE_SAMPLED) ==
          LLAMA_SIEVE_OK);
    CHECK(llama_sieve_trie_get_stats(&before) == LLAMA_SIEVE_OK);
    CHECK(llama_sieve_trie_set(second, json[1], used[1], LLAMA_SIEVE_TRIE_SAMPLED) ==
          LLAMA_SIEVE_OK);
    CHECK(llama_sieve_trie_get_stats(&after) == LLAMA_SIEVE_OK);
    CHECK(after.reordered == before.reordered + 1 && after.hits == before.hits + 1 &&
          after.misses == before.misses);
    CHECK(llama_sieve_trie_set(second, json[1], used[1], LLAMA_SIEVE_TRIE_SAMPLED) ==
          LLAMA_SIEVE_OK);
    CHECK(llama_sieve_trie_get_stats(&before) == LLAMA_SIEVE_OK);
    CHECK(before.reordered == after.reordered && before.hits == after.hits + 1 &&
          before.entries == after.entries);
    /* The frozen struct has the same numbers. */
    llama_sieve_cache_stats frozen;
    llama_sieve_trie_cache_stats(&frozen);
    CHECK(frozen.hits == before.hits && frozen.misses == before.misses &&
          frozen.entries == before.entries);
    CHECK(frozen.bytes == before.bytes && frozen.evictions == before.evictions);
    llama_sampler_free(first);
    llama_sampler_free(second);
}

static void refused(const struct llama_vocab * of, const char * const * strings, size_t n, int mode,
                    const char * why) {
    CHECK(llama_sieve_init_trie_strings(of, strings, n, mode) == NULL);
    check_subject = why;
    CHECK(says(why));
    check_subject = "";
}

static void bad_input(void) {
    const char * const missing[] = { " Moses", NULL };
    const char * const empty[]   = { " Moses", "" };
    const char * const not_utf8[] = { "\xFF\xFE" };
    refused(NULL, VALUES, N_VALUES, LLAMA_SIEVE_TRIE_SAMPLED, "vocabulary is NULL");
    refused(vocab, NULL, N_VALUES, LLAMA_SIEVE_TRIE_SAMPLED, "strings is NULL");
    refused(vocab, VALUES, 0, LLAMA_SIEVE_TRIE_SAMPLED, "n is 0");
    refused(vocab, VALUES, SIZE_MAX, LLAMA_SIEVE_TRIE_SAMPLED, "n is");
    refused(vocab, VALUES, N_VALUES, 7, "mode 7");
    refused(vocab, missing, 2, LLAMA_SIEVE_TRIE_SAMPLED, "strings[1] is NULL");
    refused(vocab, empty, 2, LLAMA_SIEVE_TRIE_SAMPLED, "strings[1] is empty");
    refused(vocab, not_utf8, 1, LLAMA_SIEVE_TRIE_SAMPLED, "strings[0] is not UTF-8");
    const size_t most = LLAMA_SIEVE_TRIE_MAX_STRING_BYTES;
    char * long_one   = check_malloc(most + 2);
    memset(long_one, 'q', most + 1);
    long_one[most + 1] = '\0';
    const char * const too_long[] = { " Moses", long_one };
    refused(vocab, too_long, 2, LLAMA_SIEVE_TRIE_SAMPLED, "strings[1] has 1025 bytes");
    refused(vocab, too_long, 2, LLAMA_SIEVE_TRIE_SAMPLED, "LLAMA_SIEVE_TRIE_MAX_STRING_BYTES");
    long_one[most] = '\0';
    refused(vocab, too_long, 2, LLAMA_SIEVE_TRIE_SAMPLED, "LLAMA_SIEVE_TRIE_SPAN_LIMIT");
    long_one[600] = '\0';
    refused(vocab, too_long, 2, LLAMA_SIEVE_TRIE_SAMPLED, "LLAMA_SIEVE_TRIE_SPAN_LIMIT");
    free(long_one);
    static uint64_t memory[4];
    refused(vocab, (const char * const *) (const void *) ((const char *) memory + 1), 1,
            LLAMA_SIEVE_TRIE_SAMPLED, "aligned");

    llama_sieve_trie_stats stats = { .struct_size = 8, .hits = 77 };
    CHECK(llama_sieve_trie_get_stats(&stats) == LLAMA_SIEVE_ERROR_PARAMS && says("struct_size") &&
          stats.hits == 77);
    CHECK(llama_sieve_trie_get_stats(NULL) == LLAMA_SIEVE_ERROR_NULL);
    CHECK(llama_sieve_trie_get_stats((llama_sieve_trie_stats *) (void *) ((char *) memory + 1)) ==
          LLAMA_SIEVE_ERROR_NULL);
    CHECK(says("aligned"));
}

static void the_version_is_the_headers(void) {
    char text[64];
    snprintf(text, sizeof(text), "%d.%d.%d", LLAMA_SIEVE_VERSION_MAJOR, LLAMA_SIEVE_VERSION_MINOR,
             LLAMA_SIEVE_VERSION_PATCH);
    CHECK(strcmp(text, llama_sieve_version()) == 0);
    const int number = 10000 * LLAMA_SIEVE_VERSION_MAJOR + 100 * LLAMA_SIEVE_VERSION_MINOR +
                       LLAMA_SIEVE_VERSION_PATCH;
    CHECK(LLAMA_SIEVE_VERSION_NUMBER == number);
}

int main(int argc, char ** argv) {
    CHECK(argc == 2);
    struct llama_model * model = load_vocabulary(argv[1]);
    CHECK(model != NULL);
    vocab = llama_model_get_vocab(model);
    the_version_is_the_headers();
    every_value_can_be_written();
    the_same_set_is_known();
    bad_input();
    llama_model_free(model);
    puts("every string is a value");
    return 0;
}
