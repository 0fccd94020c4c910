/* Tests the library in a Windows process: without a host, with one that is loaded later, in threads
 * that end, and when the library is freed.
 *
 * process <llama_sieve.dll> <the host of host.c> */
#include <windows.h>

#include "../fake_host.h"
#include "../messages.h"

enum { N_VOCAB = 16, N_THREADS = 16, N_ROUNDS = 4 };

/* The last message about a trace. */
static char told[1024];

static void keep_message(int level, const char * text, void * user) {
    (void) level;
    (void) user;
    if (strstr(text, "TRACE") != NULL) {
        snprintf(told, sizeof(told), "%s", text);
    }
}

/* Opens the trace's file for writing if it is held.jsonl: the library must not write to it then. */
static HANDLE held_by_another(void) {
    const char * name = getenv("LLAMA_SIEVE_TRACE");
    if (name == NULL || strcmp(name, "held.jsonl") != 0) {
        return NULL;
    }
    const DWORD shared = FILE_SHARE_READ | FILE_SHARE_WRITE;
    HANDLE held = CreateFileA(name, GENERIC_WRITE, shared, NULL, CREATE_ALWAYS, 0, NULL);
    CHECK(held != INVALID_HANDLE_VALUE);
    return held;
}

/* Returns which of the tokens 'a' to 'p' the sampler leaves, as a string. */
static const char * left(struct llama_sampler * smpl) {
    static char text[N_VOCAB + 1];
    llama_token_data data[N_VOCAB];
    for (int i = 0; i < N_VOCAB; i++) {
        data[i] = (llama_token_data) { i, (float) i / 8.0f, 0.0f };
    }
    struct array array = { data, N_VOCAB, -1, false };
    smpl->iface->apply(smpl, &array);
    size_t n = 0;
    for (size_t i = 0; i < array.size; i++) {
        if (data[i].logit > -1.0f) {
            text[n++] = (char) ('a' + data[i].id);
        }
    }
    text[n] = '\0';
    return text;
}

static void release(struct llama_sampler * smpl) {
    smpl->iface->free(smpl);
    free(smpl);
}

static void alone(void) {
    CHECK(llama_sieve_init_top_k(4) == NULL);
    CHECK(llama_sieve_last_error_code() == LLAMA_SIEVE_ERROR_NO_HOST);
    CHECK(says("no llama.cpp in this process"));
    CHECK(llama_sieve_certify("top-k") == LLAMA_SIEVE_ERROR_NO_HOST);
    CHECK(llama_sieve_bind_host(NULL) == LLAMA_SIEVE_ERROR_NULL);
    CHECK(llama_sieve_bind_host(GetModuleHandleA("kernel32.dll")) == LLAMA_SIEVE_ERROR_NO_HOST);
    CHECK(says("exports no llama_sampler_init"));
    CHECK(llama_sieve_attach(0) == LLAMA_SIEVE_ERROR_NO_HOST && says("load it first"));

    static const char schema[] = "{\"enum\": [\"yes\", \"no\"]}";
    char text[4096];
    const size_t n = llama_sieve_json_schema_to_gbnf(schema, 0, text, sizeof(text));
    CHECK(n > 0 && n <= sizeof(text) && strstr(text, "root ::=") != NULL);
    CHECK(strstr(text, "yes") != NULL && strstr(text, "no") != NULL);
    CHECK(llama_sieve_json_schema_to_gbnf("{", 0, text, sizeof(text)) == 0 && says("JSON"));
}

/* Draws from logits with one clear maximum, and from equal ones. */
static DWORD WINAPI draw(void * seed) {
    static float logits[5000];
    struct llama_sieve_params params = llama_sieve_default_params();
    params.seed = (uint32_t) (uintptr_t) seed;
    struct llama_sieve * sieve = llama_sieve_new(&params);
    CHECK(sieve != NULL);
    float own[5000];
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 5000; i++) {
            own[i] = (float) (i * 7919 % 5003) / 1000.0f;
        }
        own[round] = 100.0f;
        const int32_t token = llama_sieve_sample(sieve, own, 5000);
        CHECK(token == round);
        llama_sieve_accept(sieve, token);
        CHECK(llama_sieve_sample(sieve, logits, 5000) >= 0);
    }
    CHECK(llama_sieve_sample(sieve, NULL, 5000) == LLAMA_SIEVE_ERROR_NULL && says("logits"));
    llama_sieve_free(sieve);
    return 0;
}

static void threads(void) {
    for (int round = 0; round < N_ROUNDS; round++) {
        HANDLE all[N_THREADS];
        for (int i = 0; i < N_THREADS; i++) {
            all[i] = CreateThread(NULL, 0, draw, (void *) (uintptr_t) (i + 1), 0, NULL);
            CHECK(all[i] != NULL);
        }
        CHECK(WaitForMultipleObjects(N_THREADS, all, TRUE, 60000) == WAIT_OBJECT_0);
        for (int i = 0; i < N_THREADS; i++) {
            DWORD code = 1;
            CHECK(GetExitCodeThread(all[i], &code) && code == 0);
            CloseHandle(all[i]);
        }
    }
}

static void with_host(const char * path) {
    const HMODULE host = LoadLibraryA(path);
    CHECK(host != NULL);
    /* The host is found among the modules of the process. */
    struct llama_sampler * smpl = llama_sieve_init_top_k(3);
    CHECK(smpl != NULL && strcmp(smpl->iface->name(smpl), "top-k") == 0);
    CHECK(strcmp(left(smpl), "pon") == 0);
    release(smpl);

    char thing;
    const struct llama_vocab * vocab = (const struct llama_vocab *) (void *) &thing;
    smpl = llama_sieve_init_grammar(vocab, "root ::= [ce] \"b\"+", "root");
    CHECK(smpl != NULL);
    CHECK(strcmp(left(smpl), "ce") == 0);
    smpl->iface->accept(smpl, 'e' - 'a');
    CHECK(strcmp(left(smpl), "b") == 0);
    smpl->iface->accept(smpl, 'b' - 'a');
    /* The last token ends the text. */
    CHECK(strcmp(left(smpl), "bp") == 0);
    release(smpl);

    const char * json = "{\"descriptors\":[{\"path\":\"p\",\"leaves\":["
                        "{\"name\":\"x\",\"tokens\":[1,2]},{\"name\":\"y\",\"tokens\":[5,7]}]}]}";
    smpl = llama_sampler_init_token_trie(vocab, json, LLAMA_SIEVE_TRIE_SAMPLED);
    CHECK(smpl != NULL);
    CHECK(strcmp(left(smpl), "bf") == 0);
    smpl->iface->accept(smpl, 5);
    CHECK(strcmp(left(smpl), "h") == 0);

    /* The host stays loaded, because the library holds a reference of its own. */
    CHECK(FreeLibrary(host));
    struct llama_sampler * other = llama_sieve_init_top_k(1);
    CHECK(other != NULL && strcmp(left(other), "p") == 0);
    release(other);
    release(smpl);
}

int main(int argc, char ** argv) {
    CHECK(argc == 3);
    llama_sieve_log_set(keep_message, NULL);
    const HANDLE held = held_by_another();
    alone();
    threads();
    if (held != NULL) {
        CHECK(strstr(told, "is being written by another process") != NULL);
    } else if (told[0] != '\0') {
        fprintf(stderr, "%s\n", told);
        return 1;
    }
    with_host(argv[2]);

    /* Frees the library more often than it was loaded. */
    const HMODULE own = GetModuleHandleA(argv[1]);
    CHECK(own != NULL);
    for (int i = 0; i < 8; i++) {
        FreeLibrary(own);
    }
    CHECK(GetModuleHandleA(argv[1]) == own && draw((void *) 1) == 0);
    printf("%s\n", llama_sieve_simd());
    return 0;
}
