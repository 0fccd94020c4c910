/* Plain and lazy grammars in a C program, and the mistakes of a caller.
 *
 * Argument: the trained model. */
#include <math.h>
#include <stdint.h>

#include "llama_sieve.h"
#include "messages.h"

#include "check.h"
#include "vocabulary.h"

/* llama_sieve_init_grammar_lazy, whose triggers are words, is deprecated. It is tested all the
 * same. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static const char * const TEXT = "root ::= [a-z]* \"}\"";
static const struct llama_vocab * vocab;
static int n_tokens;

static void count(int level, const char * text, void * user) {
    (void) text;
    *(int *) user += level == LLAMA_SIEVE_LOG_ERROR;
}

/* Returns the token whose text is `text`. Ends the program if there is none. */
static llama_token token_of(const char * text) {
    char piece[64];
    for (llama_token token = 0; token < n_tokens; token++) {
        const int n = llama_token_to_piece(vocab, token, piece, sizeof(piece), 0, true);
        if (n == (int) strlen(text) && memcmp(piece, text, (size_t) n) == 0) {
            return token;
        }
    }
    fprintf(stderr, "no token is \"%s\"\n", text);
    exit(1);
}

/* Returns the number of tokens that apply allows, after checking that the mask has the same
 * number. */
static int allowed(struct llama_sampler * smpl) {
    guarded g = guarded_new((size_t) n_tokens);
    llama_sampler_apply(smpl, &g.array);
    CHECK(guards_are_intact(&g) && g.array.size == (size_t) n_tokens);
    const size_t n_words = ((size_t) n_tokens + 31) / 32 + 1;
    uint32_t * bits = check_malloc(n_words * sizeof(uint32_t));
    const size_t n = llama_sieve_grammar_mask(smpl, bits, n_words);
    int n_left = 0;
    for (int i = 0; i < n_tokens; i++) {
        const bool is_left = g.array.data[i].logit != -INFINITY;
        CHECK(is_left == (bits[i / 32] >> (i % 32) & 1));
        n_left += is_left;
    }
    CHECK((size_t) n_left == n && bits[n_words - 1] == 0);
    free(bits);
    guarded_free(&g);
    return n_left;
}

static void wrong_arguments_have_an_answer(void) {
    check_subject = "wrong arguments";
    const char * good[] = { "a", "b" };
    const char * with_null[] = { "a", NULL };
    const char * bad[] = { "a", "(b" };
    const llama_token tokens[] = { 1, -1, 2147483647 };
    typedef struct llama_sampler * (*maker)(const struct llama_vocab *, const char *, const char *,
                                            const char **, size_t, const llama_token *, size_t);
    const maker makers[] = { llama_sieve_init_grammar_lazy,
                             llama_sieve_init_grammar_lazy_patterns };
    for (int i = 0; i < 2; i++) {
        const maker make = makers[i];
        CHECK(make(NULL, TEXT, "root", good, 2, tokens, 3) == NULL &&
              says("the vocabulary is NULL"));
        CHECK(make(vocab, TEXT, NULL, good, 2, tokens, 3) == NULL && says("root rule is NULL"));
        CHECK(make(vocab, TEXT, "other", good, 2, tokens, 3) == NULL && says("no rule 'other'"));
        CHECK(make(vocab, "root ::=", "root", good, SIZE_MAX, tokens, 3) == NULL &&
              says("18446744073709551615"));
        CHECK(make(vocab, "root = ", "root", good, 2, tokens, 3) == NULL &&
              says("line 1, column 6"));
        CHECK(make(vocab, TEXT, "root", with_null, 2, tokens, 3) == NULL &&
              says("number 1 of the trigger"));
        CHECK(make(vocab, TEXT, "root", good, 2, NULL, 1) == NULL &&
              says("list of trigger tokens is NULL"));
        CHECK(make(vocab, TEXT, "root", good, 2, tokens, SIZE_MAX) == NULL &&
              says("num_trigger_tokens is 18446744073709551615"));
        /* Invalid tokens do no harm, and a missing trigger is no error. */
        struct llama_sampler * smpl = make(vocab, TEXT, "root", good, 2, tokens, 3);
        CHECK(smpl != NULL && strcmp(llama_sampler_name(smpl), "grammar") == 0);
        llama_sampler_free(smpl);
        smpl = make(vocab, TEXT, "root", NULL, 0, NULL, 0);
        CHECK(smpl != NULL);
        for (llama_token token = 0; token < 50; token++) {
            llama_sampler_accept(smpl, token);
        }
        CHECK(allowed(smpl) == n_tokens && !llama_sieve_grammar_is_complete(smpl) &&
              llama_sieve_grammar_error(smpl) == LLAMA_SIEVE_OK);
        llama_sampler_free(smpl);
        /* With an empty grammar the other arguments are ignored. */
        for (int empty = 0; empty < 2; empty++) {
            smpl = make(NULL, empty ? "" : NULL, NULL, with_null, 2, NULL, 7);
            CHECK(smpl != NULL);
            llama_sampler_accept(smpl, 1);
            llama_sampler_reset(smpl);
            CHECK(llama_sieve_grammar_error(smpl) == LLAMA_SIEVE_OK &&
                  !llama_sieve_grammar_is_complete(smpl));
            llama_sampler_free(smpl);
        }
    }
    struct llama_sampler * smpl =
        llama_sieve_init_grammar_lazy(vocab, TEXT, "root", NULL, 2, NULL, 0);
    CHECK(smpl != NULL);
    llama_sampler_free(smpl);
    CHECK(llama_sieve_init_grammar_lazy_patterns(vocab, TEXT, "root", NULL, 2, NULL, 0) == NULL &&
          says("list of trigger patterns is NULL"));
    CHECK(llama_sieve_init_grammar_lazy_patterns(vocab, TEXT, "root", bad, 2, NULL, 0) == NULL);
    CHECK(says("trigger pattern 1 (\"(b\")") && says("a parenthesis is not closed"));
    /* As words these texts are valid. */
    smpl = llama_sieve_init_grammar_lazy(vocab, TEXT, "root", bad, 2, NULL, 0);
    CHECK(smpl != NULL);
    llama_sampler_free(smpl);
}

static void a_schema_is_followed_or_refused(void) {
    check_subject = "JSON Schemas";
    const char * schema =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"boolean\"}},\"required\":[\"a\"],"
        "\"additionalProperties\":false}";
    const uint32_t flags = LLAMA_SIEVE_JSON_COMPACT;
    struct llama_sampler * smpl = llama_sieve_init_json_schema(vocab, schema, flags);
    CHECK(smpl != NULL && strcmp(llama_sampler_name(smpl), "grammar") == 0);
    CHECK(allowed(smpl) > 0 && allowed(smpl) < n_tokens);
    const char * texts[] = { "{", "\"", "a", "\"", ":", "t", "r", "u", "e" };
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        CHECK(!llama_sieve_grammar_is_complete(smpl));
        llama_sampler_accept(smpl, token_of(texts[i]));
    }
    struct llama_sampler * copy = llama_sampler_clone(smpl);
    llama_sampler_accept(smpl, token_of("}"));
    CHECK(llama_sieve_grammar_is_complete(smpl) && !llama_sieve_grammar_is_complete(copy));
    CHECK(llama_sieve_grammar_error(smpl) == LLAMA_SIEVE_OK);
    llama_sampler_free(copy);
    llama_sampler_free(smpl);

    const char * refused = "{\"properties\":{\"x\":{\"pattern\":\"(?=a)\"}}}";
    CHECK(llama_sieve_init_json_schema(vocab, refused, 0) == NULL &&
          says("#/properties/x") && says("pattern") && says("look-ahead"));
    CHECK(llama_sieve_last_error_code() == LLAMA_SIEVE_ERROR_INVALID);
    /* With the lenient flag the keyword is ignored, with a warning and no error. */
    int n_errors = 0;
    llama_sieve_log_set(count, &n_errors);
    smpl = llama_sieve_init_json_schema(vocab, refused, LLAMA_SIEVE_JSON_LENIENT);
    CHECK(smpl != NULL && n_errors == 0);
    llama_sampler_free(smpl);
    llama_sieve_log_set(NULL, NULL);
    CHECK(llama_sieve_init_json_schema(vocab, "{\"a\":", 0) == NULL && says("line 1, column 6"));
    CHECK(llama_sieve_init_json_schema(vocab, "{\"enum\":[]}", 0) == NULL && says("no value"));
    CHECK(llama_sieve_init_json_schema(NULL, schema, 0) == NULL && says("vocabulary is NULL"));
    CHECK(llama_sieve_init_json_schema(vocab, NULL, 0) == NULL && says("schema is NULL"));
    CHECK(llama_sieve_init_json_schema(vocab, schema, 32) == NULL && says("0x20"));
    const uint32_t both = LLAMA_SIEVE_JSON_LLAMA_CPP | LLAMA_SIEVE_JSON_ANY_ORDER;
    CHECK(llama_sieve_init_json_schema(vocab, schema, both) == NULL &&
          says("LLAMA_SIEVE_JSON_LLAMA_CPP") && says("LLAMA_SIEVE_JSON_ANY_ORDER"));
    CHECK(llama_sieve_last_error_code() == LLAMA_SIEVE_ERROR_PARAMS);
    /* Schemas that llama.cpp's converter accepts, and schemas that it rejects. */
    const uint32_t converted = LLAMA_SIEVE_JSON_LLAMA_CPP;
    smpl = llama_sieve_init_json_schema(vocab, "{\"not\":{}}", converted);
    CHECK(smpl != NULL);
    llama_sampler_free(smpl);
    CHECK(llama_sieve_init_json_schema(vocab, "{\"items\":true}", converted) == NULL &&
          says("keyword \"items\""));
    CHECK(llama_sieve_last_error_code() == LLAMA_SIEVE_ERROR_INVALID);
}

/* Tokens on which the built-in throws. */
static void what_is_not_allowed_makes_it_dead(void) {
    check_subject = "dead";
    int n_errors = 0;
    llama_sieve_log_set(count, &n_errors);
    const char * patterns[] = { "x([ ])" };
    struct llama_sampler * smpl =
        llama_sieve_init_grammar_lazy_patterns(vocab, TEXT, "root", patterns, 1, NULL, 0);
    CHECK(smpl != NULL);
    llama_sampler_accept(smpl, token_of("x"));
    CHECK(llama_sieve_grammar_error(smpl) == LLAMA_SIEVE_OK);
    llama_sampler_accept(smpl, token_of(" "));
    CHECK(llama_sieve_grammar_error(smpl) == LLAMA_SIEVE_ERROR_GRAMMAR_TOKEN && n_errors == 1);
    guarded g = guarded_new((size_t) n_tokens);
    llama_sampler_apply(smpl, &g.array);
    for (int i = 0; i < n_tokens; i++) {
        CHECK((g.array.data[i].logit != -INFINITY) == llama_vocab_is_eog(vocab, i));
    }
    guarded_free(&g);
    llama_sampler_accept(smpl, -1);
    llama_sampler_reset(smpl);
    CHECK(llama_sieve_grammar_error(smpl) == LLAMA_SIEVE_OK && allowed(smpl) == n_tokens);
    /* A token outside the vocabulary, while the grammar waits for its trigger. */
    llama_sampler_accept(smpl, n_tokens);
    CHECK(llama_sieve_grammar_error(smpl) == LLAMA_SIEVE_ERROR_GRAMMAR_TOKEN && n_errors == 2);
    llama_sampler_free(smpl);
    llama_sieve_log_set(NULL, NULL);
}

/* Accepts a text, one token for each character. */
static void accept_text(struct llama_sampler * smpl, const char * text) {
    for (; *text; text++) {
        const char letter[] = { *text, 0 };
        llama_sampler_accept(smpl, token_of(letter));
    }
}

static void patterns_choices_and_tags(void) {
    check_subject = "patterns, choices and tags";
    const char * values[] = { "Moses", "Mark", "Mary" };
    const char * with_null[] = { "a", NULL };
    const char * ill[] = { "a", "\xff" };
    CHECK(llama_sieve_init_regex(NULL, "a", 0) == NULL && says("the vocabulary is NULL"));
    CHECK(llama_sieve_init_regex(vocab, NULL, 0) == NULL && says("pattern is NULL"));
    CHECK(llama_sieve_init_regex(vocab, "a", 1) == NULL && says("flags is 0x1"));
    CHECK(llama_sieve_init_regex(vocab, "a(", 0) == NULL && says("byte 1"));
    CHECK(llama_sieve_init_regex(vocab, "a\\b", 0) == NULL && says("word boundary"));
    CHECK(llama_sieve_init_regex(vocab, "\xff", 0) == NULL && says("not UTF-8"));
    CHECK(llama_sieve_init_choice(vocab, NULL, 1) == NULL && says("values is NULL"));
    CHECK(llama_sieve_init_choice(vocab, values, 0) == NULL && says("no value"));
    CHECK(llama_sieve_init_choice(vocab, values, SIZE_MAX) == NULL &&
          says("LLAMA_SIEVE_CHOICE_MAX_VALUES"));
    CHECK(llama_sieve_init_choice(vocab, with_null, 2) == NULL && says("value 1 is NULL"));
    CHECK(llama_sieve_init_choice(vocab, ill, 2) == NULL && says("value 1"));
    CHECK(llama_sieve_init_choice(NULL, values, 3) == NULL && says("the vocabulary is NULL"));
    CHECK(llama_sieve_init_tags(vocab, NULL, 0) == NULL && says("json is NULL"));
    CHECK(llama_sieve_init_tags(vocab, "{}", 0) == NULL && says("missing field `tags`"));
    CHECK(llama_sieve_init_tags(vocab, "{}", 2) == NULL && says("flags is 0x2"));
    CHECK(llama_sieve_init_tags(NULL, "{\"tags\": [{\"begin\": \"a\", \"regex\": \"b\"}]}", 0) ==
              NULL &&
          says("the vocabulary is NULL"));

    struct llama_sampler * smpl = llama_sieve_init_choice(vocab, values, 3);
    CHECK(smpl != NULL && strcmp(llama_sampler_name(smpl), "grammar") == 0);
    char bytes[8] = "-------";
    CHECK(llama_sieve_grammar_forced(smpl, bytes, sizeof(bytes)) == 1 && bytes[0] == 'M' &&
          bytes[1] == '-');
    accept_text(smpl, "Mo");
    CHECK(llama_sieve_grammar_forced(smpl, NULL, SIZE_MAX) == 3);
    CHECK(llama_sieve_grammar_forced(smpl, bytes, 2) == 3 && memcmp(bytes, "se-", 3) == 0);
    const llama_token draft[] = { token_of("s"), token_of("e"), token_of("x") };
    CHECK(llama_sieve_grammar_accepts(smpl, draft, 3) == 2);
    CHECK(llama_sieve_grammar_accepts(smpl, draft, 2) == 2);
    accept_text(smpl, "ses");
    CHECK(llama_sieve_grammar_is_complete(smpl));
    CHECK(llama_sieve_grammar_rollback(smpl, 6) == LLAMA_SIEVE_ERROR_SIZE && says("only 5"));
    CHECK(llama_sieve_grammar_is_complete(smpl));
    CHECK(llama_sieve_grammar_rollback(smpl, SIZE_MAX) == LLAMA_SIEVE_ERROR_SIZE);
    CHECK(llama_sieve_grammar_rollback(smpl, 4) == LLAMA_SIEVE_OK);
    int n_errors = 0;
    llama_sieve_log_set(count, &n_errors);
    accept_text(smpl, "arx");
    llama_sieve_log_set(NULL, NULL);
    CHECK(n_errors == 1);
    CHECK(llama_sieve_grammar_error(smpl) == LLAMA_SIEVE_ERROR_GRAMMAR_TOKEN);
    CHECK(llama_sieve_grammar_accepts(smpl, draft, 3) == 0);
    CHECK(llama_sieve_grammar_rollback(smpl, 1) == LLAMA_SIEVE_OK);
    CHECK(llama_sieve_grammar_error(smpl) == LLAMA_SIEVE_OK && allowed(smpl) > 0);
    /* A clone has the same state, but none of the tokens before it to roll back. */
    struct llama_sampler * copy = llama_sampler_clone(smpl);
    CHECK(copy != NULL && allowed(copy) == allowed(smpl));
    CHECK(llama_sieve_grammar_rollback(copy, 1) == LLAMA_SIEVE_ERROR_SIZE);
    llama_sampler_free(copy);
    llama_sampler_free(smpl);

    smpl = llama_sieve_init_regex(vocab, "[a-c]{2}x*", 0);
    CHECK(smpl != NULL);
    accept_text(smpl, "ab");
    CHECK(llama_sieve_grammar_is_complete(smpl));
    llama_sampler_free(smpl);

    smpl = llama_sieve_init_tags(
        vocab, "{\"tags\": [{\"begin\": \"(\", \"regex\": \"[a-c]\", \"end\": \")\"}]}", 0);
    CHECK(smpl != NULL);
    accept_text(smpl, "word(");
    CHECK(!llama_sieve_grammar_is_complete(smpl));
    accept_text(smpl, "b) and");
    CHECK(llama_sieve_grammar_is_complete(smpl));
    llama_sampler_free(smpl);

    smpl = llama_sampler_init_greedy();
    CHECK(llama_sieve_grammar_rollback(smpl, 1) == LLAMA_SIEVE_ERROR_INVALID && says("no grammar"));
    CHECK(llama_sieve_grammar_rollback(NULL, 1) == LLAMA_SIEVE_ERROR_NULL);
    CHECK(llama_sieve_grammar_accepts(smpl, draft, 3) == 0 && says("no grammar"));
    CHECK(llama_sieve_grammar_accepts(NULL, draft, 3) == 0);
    CHECK(llama_sieve_grammar_forced(smpl, bytes, 2) == 0 && says("no grammar"));
    llama_sampler_free(smpl);
    smpl = llama_sieve_init_grammar(vocab, "", "root");
    CHECK(llama_sieve_grammar_accepts(smpl, NULL, 3) == 0 && says("tokens is NULL"));
    CHECK(llama_sieve_grammar_accepts(smpl, draft, 3) == 3);
    CHECK(llama_sieve_grammar_rollback(smpl, 3) == LLAMA_SIEVE_OK);
    llama_sampler_free(smpl);
}

int main(int argc, char ** argv) {
    CHECK(argc == 2);
    struct llama_model * model = load_vocabulary(argv[1]);
    CHECK(model != NULL);
    vocab = llama_model_get_vocab(model);
    n_tokens = llama_vocab_n_tokens(vocab);
    wrong_arguments_have_an_answer();
    a_schema_is_followed_or_refused();
    what_is_not_allowed_makes_it_dead();
    patterns_choices_and_tags();
    llama_sieve_vocab_forget(vocab);
    llama_model_free(model);
    printf("every grammar had an answer\n");
    return 0;
}
