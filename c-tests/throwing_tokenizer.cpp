// Tests that an exception of the host's tokenizer passes through the constructor of DRY, as through
// the built-in's, and through llama_sieve_set_dry_breakers. It must be thrown exactly where the
// built-in calls the tokenizer. The vocabulary is SentencePiece's kind without byte tokens, which
// cannot tokenize a character with which none of its tokens begins.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "gguf.h"
#include "llama.h"
#include "llama_sieve.h"

#define CHECK(condition) \
    if (!(condition)) std::fprintf(stderr, "%d: %s\n", __LINE__, #condition), std::exit(1)

namespace {

void write_vocabulary(const char * path) {
    const std::vector<std::string> texts = {"<unk>", "<s>", "</s>", "a", "b", "x#", "#", "!",
                                            "\u2581"};
    Gguf                           file;
    file.bytes = "GGUF";
    file.put<uint32_t>(3);
    file.put<uint64_t>(0);
    file.put<uint64_t>(5);
    file.put_string("general.architecture", "llama");
    file.put_string("tokenizer.ggml.model", "llama");
    file.begin_array("tokenizer.ggml.tokens", STRING, texts.size());
    for (const std::string & text : texts) file.put_text(text);
    file.begin_array("tokenizer.ggml.scores", FLOAT32, texts.size());
    for (size_t i = 0; i < texts.size(); i++) file.put<float>(-float(i));
    file.begin_array("tokenizer.ggml.token_type", INT32, texts.size());
    // The unknown token, two control tokens, and normal ones.
    for (size_t i = 0; i < texts.size(); i++) file.put<int32_t>(i == 0 ? 2 : i < 3 ? 3 : 1);
    CHECK(file.write(path));
}

// Returns whether `call` throws the tokenizer's exception.
template <typename F> bool throws(F call) {
    try {
        call();
        return false;
    } catch (const std::out_of_range &) {
        return true;
    }
}

using Init = llama_sampler * (*) (const llama_vocab *, float, float, int32_t, int32_t,
                                  const char **, size_t);

bool dry_throws(Init init, const llama_vocab * vocab, std::vector<const char *> breakers) {
    return throws([&] {
        llama_sampler * smpl = init(vocab, 0.8f, 1.75f, 2, 64, breakers.data(), breakers.size());
        CHECK(smpl != nullptr);
        llama_sampler_free(smpl);
    });
}

}  // namespace

int main(int argc, char ** argv) {
    CHECK(argc == 2);
    write_vocabulary(argv[1]);
    llama_model * model = load_vocabulary(argv[1]);
    CHECK(model != nullptr);
    const llama_vocab * vocab = llama_model_get_vocab(model);
    const llama_sieve_params sieve_params = llama_sieve_default_params();
    llama_sieve *            sieve        = llama_sieve_new(&sieve_params);
    CHECK(sieve != nullptr);

    struct {
        std::vector<const char *> breakers;
        bool                      throws;
    } const cases[] = {
        {{"#!"}, false},
        // "x#" ends with its beginning, and "~" has no token.
        {{"#~"}, true},
        {{"!a", "#~"}, true},
        {{"#!~"}, true},
        // No text ends with "~".
        {{"~~"}, false},
        {{"~#"}, false},
        {{"#"}, false},
    };
    // Twice: after an exception everything works as before.
    for (int round = 0; round < 2; round++) {
        for (const auto & one : cases) {
            std::vector<const char *> breakers = one.breakers;
            CHECK(dry_throws(llama_sampler_init_dry, vocab, breakers) == one.throws);
            CHECK(dry_throws(llama_sieve_init_dry, vocab, breakers) == one.throws);
            const bool set_throws = throws([&] {
                CHECK(llama_sieve_set_dry_breakers(sieve, vocab, breakers.data(),
                                                   breakers.size()) == LLAMA_SIEVE_OK);
            });
            CHECK(set_throws == one.throws);
        }
    }
    llama_sieve_free(sieve);
    llama_model_free(model);
    std::puts("the exceptions pass");
    return 0;
}
