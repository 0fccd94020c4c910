// The three tests with which the design of the token trie was published, on a real vocabulary.
// Their steps, values and expectations are as published, with calls through llama.h's functions.
// Further checks follow a comment "Also". The macros below replace the test framework's.
//
// Argument: a model with a vocabulary of at least 1000 tokens.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "../vocabulary.h"
#include "llama_sieve.h"

static int failures = 0;

static void expect(bool holds, const char * what, int line) {
    if (!holds) {
        std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, line, what);
        failures++;
    }
}

// Test frameworks allow four units in the last place; nothing is rounded here, so this is exact.
#define EXPECT_FLOAT_EQ(a, b) expect((a) == (b), #a " == " #b, __LINE__)
#define EXPECT_EQ(a, b)       expect((a) == (b), #a " == " #b, __LINE__)
#define EXPECT_TRUE(a)        expect((a), #a, __LINE__)
#define ASSERT_NE(a, b)                                \
    do {                                               \
        expect((a) != (b), #a " != " #b, __LINE__);    \
        if ((a) == (b)) {                              \
            std::fprintf(stderr, "%s\n", llama_sieve_last_error()); \
            return;                                    \
        }                                              \
    } while (false)

static const llama_vocab * vocab = nullptr;

static void InitializeEmptyDescriptor() {
    const char * json = R"({ "modelId": "test", "descriptors": [] })";
    auto sampler = llama_sampler_init_token_trie(vocab, json, 0);
    EXPECT_EQ(sampler, nullptr);
    // Also: it says why.
    EXPECT_TRUE(llama_sieve_last_error()[0] != '\0');
}

static void MaskInvalidTokens() {
    const char * json = R"({
        "modelId": "test",
        "descriptors": [{
            "path": "action",
            "leaves": [
                { "name": "THINK", "tokens": [100, 101] },
                { "name": "EXECUTE", "tokens": [200] }
            ]
        }]
    })";
    auto sampler = llama_sampler_init_token_trie(vocab, json, 0);
    ASSERT_NE(sampler, nullptr);
    llama_token_data candidates[] = {
        { 100, 5.0f, 0.0f },
        { 200, 4.0f, 0.0f },
        { 999, 6.0f, 0.0f }, // Invalid (not in trie)
    };
    llama_token_data_array logits = { candidates, 3, -1, false };
    llama_sampler_apply(sampler, &logits);
    EXPECT_FLOAT_EQ(logits.data[0].logit, 5.0f); // 100: valid
    EXPECT_FLOAT_EQ(logits.data[1].logit, 4.0f); // 200: valid
    EXPECT_TRUE(std::isinf(logits.data[2].logit) && logits.data[2].logit < 0.0f); // 999: masked
    // Also: nothing is moved, and the argmax among the valid is selected.
    EXPECT_EQ(logits.size, 3u);
    EXPECT_EQ(logits.selected, 0);
    llama_sampler_free(sampler);
}

static void TrieWalking() {
    const char * json = R"({
        "modelId": "test",
        "descriptors": [{
            "path": "action",
            "leaves": [{"name": "THINK", "tokens": [100, 101]}]
        }]
    })";
    auto sampler = llama_sampler_init_token_trie(vocab, json, 0);
    ASSERT_NE(sampler, nullptr);
    // At root, next token can only be 100
    llama_token_data candidates[] = { { 100, 1.0f, 0.0f } };
    llama_token_data_array logits = { candidates, 1, -1, false };
    llama_sampler_apply(sampler, &logits);
    EXPECT_FLOAT_EQ(logits.data[0].logit, 1.0f); // unmasked
    llama_sampler_accept(sampler, 100);
    // Also: on the way.
    EXPECT_TRUE(llama_sieve_trie_is_active(sampler));
    EXPECT_EQ(llama_sieve_trie_leaf(sampler), nullptr);
    // After accepting 100, next token must be 101
    logits.data[0].id = 101;
    llama_sampler_apply(sampler, &logits);
    EXPECT_FLOAT_EQ(logits.data[0].logit, 1.0f); // unmasked
    llama_sampler_accept(sampler, 101);
    // After 101, we're at terminal. Next token is unconstrained. No-op apply.
    llama_sampler_apply(sampler, &logits);
    // Also: done, by name, and any other token comes through as it was.
    EXPECT_FLOAT_EQ(logits.data[0].logit, 1.0f);
    EXPECT_TRUE(!llama_sieve_trie_is_active(sampler));
    const char * leaf = llama_sieve_trie_leaf(sampler);
    EXPECT_TRUE(leaf != nullptr && std::string(leaf) == "THINK");
    logits.data[0].id = 999;
    logits.selected   = -1;
    llama_sampler_apply(sampler, &logits);
    EXPECT_FLOAT_EQ(logits.data[0].logit, 1.0f);
    EXPECT_EQ(logits.data[0].id, 999);
    EXPECT_EQ(logits.size, 1u);
    EXPECT_EQ(logits.selected, -1);
    llama_sampler_free(sampler);
}

int main(int argc, char ** argv) {
    llama_model * model = argc == 2 ? load_vocabulary(argv[1]) : nullptr;
    if (model == nullptr) {
        std::fprintf(stderr, "needs one argument, the path of a model\n");
        return EXIT_FAILURE;
    }
    vocab = llama_model_get_vocab(model);
    EXPECT_TRUE(llama_vocab_n_tokens(vocab) >= 1000);
    InitializeEmptyDescriptor();
    MaskInvalidTokens();
    TrieWalking();
    llama_model_free(model);
    if (failures == 0) {
        std::puts("three tests passed");
    }
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
