// Tests a tokenizer that splits texts with std::regex, which recurses for each character: on a
// thread whose stack has the size that the header names, every text that the library accepts can be
// tokenized. Longer texts, which would overflow the stack, are rejected.
#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "gguf.h"
#include "llama.h"
#include "llama_sieve.h"

#define CHECK(condition) \
    if (!(condition)) std::fprintf(stderr, "%d: %s\n", __LINE__, #condition), std::exit(1)

namespace {

const size_t STACK = 512 * 1024;

const llama_vocab * vocab;

void write_vocabulary(const char * path) {
    const std::vector<std::string> texts  = {"<s>", "</s>", "a", "aa", "aaaa"};
    const std::vector<std::string> merges = {"a a", "aa aa"};
    Gguf                           file;
    file.bytes = "GGUF";
    file.put<uint32_t>(3);
    file.put<uint64_t>(0);
    file.put<uint64_t>(6);
    file.put_string("general.architecture", "llama");
    file.put_string("tokenizer.ggml.model", "gpt2");
    file.put_string("tokenizer.ggml.pre", "deepseek-llm");
    file.begin_array("tokenizer.ggml.tokens", STRING, texts.size());
    for (const std::string & text : texts) file.put_text(text);
    // Two control tokens, and normal ones.
    file.begin_array("tokenizer.ggml.token_type", INT32, texts.size());
    for (size_t i = 0; i < texts.size(); i++) file.put<int32_t>(i < 2 ? 3 : 1);
    file.begin_array("tokenizer.ggml.merges", STRING, merges.size());
    for (const std::string & text : merges) file.put_text(text);
    CHECK(file.write(path));
}

bool refused(llama_sampler * smpl, const char * why) {
    const bool has_said = std::strstr(llama_sieve_last_error(), why) != nullptr;
    if (!has_said) std::fprintf(stderr, "%s\n", llama_sieve_last_error());
    return smpl == nullptr && has_said;
}

llama_sampler * trie_of(size_t n_bytes) {
    const std::string  text    = std::string(n_bytes, 'a');
    const char * const texts[] = {text.c_str()};
    return llama_sieve_init_trie_strings(vocab, texts, 1, LLAMA_SIEVE_TRIE_SAMPLED);
}

llama_sampler * grammar_of(size_t n_bytes) {
    const std::string text = "root ::= <" + std::string(n_bytes - 2, 'a') + ">";
    return llama_sieve_init_grammar(vocab, text.c_str(), "root");
}

llama_sampler * tags_of(size_t n_bytes) {
    const std::string text = "{\"tags\":[{\"begin\":{\"token\":\"" + std::string(n_bytes, 'a') +
                             "\"},\"regex\":\"a\"}]}";
    return llama_sieve_init_tags(vocab, text.c_str(), 0);
}

void * on_a_thread(void *) {
    llama_sampler * trie = trie_of(LLAMA_SIEVE_TRIE_MAX_STRING_BYTES);
    CHECK(trie != nullptr);
    llama_sampler_free(trie);
    for (size_t n : {size_t{LLAMA_SIEVE_TRIE_MAX_STRING_BYTES + 1}, size_t{28000}}) {
        CHECK(refused(trie_of(n), "LLAMA_SIEVE_TRIE_MAX_STRING_BYTES"));
    }
    CHECK(refused(grammar_of(1024), "not exactly one token"));
    CHECK(refused(grammar_of(1025), "1024"));
    CHECK(refused(tags_of(LLAMA_SIEVE_TAGS_MAX_BYTES), "not one token"));
    CHECK(refused(tags_of(LLAMA_SIEVE_TAGS_MAX_BYTES + 1), "LLAMA_SIEVE_TAGS_MAX_BYTES"));
    return nullptr;
}

}  // namespace

int main(int argc, char ** argv) {
    CHECK(argc == 2);
    write_vocabulary(argv[1]);
    llama_model * model = load_vocabulary(argv[1]);
    CHECK(model != nullptr);
    vocab = llama_model_get_vocab(model);
    pthread_attr_t attributes;
    pthread_t      thread;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, STACK) == 0);
    CHECK(pthread_create(&thread, &attributes, on_a_thread, nullptr) == 0);
    CHECK(pthread_join(thread, nullptr) == 0);
    pthread_attr_destroy(&attributes);
    llama_model_free(model);
    std::puts("the stack is enough");
    return 0;
}
