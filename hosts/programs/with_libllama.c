// Generates with a libllama of any build since b4662, as hosts/libllama.py asks:
//
//   with_libllama SMALL LARGE PROMPT
//
// Compiled anew for each build, without its header. BUILD is the build's number, which selects
// between two forms of some argument lists; HAS_X is defined if it exports llama_X. Prints a line
// of JSON: the tokens by model, setting, sampling method and seed.
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int32_t llama_token;

struct llama_token_data {
    llama_token id;
    float       logit;
    float       p;
};

struct llama_token_data_array {
    struct llama_token_data * data;
    size_t                    size;
    int64_t                   selected;
    bool                      sorted;
};

struct llama_logit_bias {
    llama_token token;
    float       bias;
};

struct llama_batch {
    int32_t        n_tokens;
    llama_token *  token;
    float *        embd;
    int32_t *      pos;
    int32_t *      n_seq_id;
    int32_t **     seq_id;
    int8_t *       logits;
};

// Larger than the parameters of any build. Parameters are passed and returned in memory, as the
// last argument, and each function accesses only the part that its build defines.
struct parameters {
    uint64_t words[512];
};

// This struct has one field in all builds. It is returned in a register, whose other bits are
// unused.
struct chain_parameters {
    bool no_perf;
};

struct parameters llama_model_default_params(void);
struct parameters llama_context_default_params(void);
void   llama_log_set(void (*log)(int level, const char * text, void * data), void * data);
void   llama_backend_init(void);
struct llama_model *   llama_model_load_from_file(const char * path, struct parameters);
struct llama_context * llama_init_from_model(struct llama_model *, struct parameters);
void   llama_free(struct llama_context *);
void   llama_model_free(struct llama_model *);
void   llama_set_n_threads(struct llama_context *, int32_t n, int32_t n_batch);
int32_t llama_model_n_ctx_train(const struct llama_model *);
const struct llama_vocab * llama_model_get_vocab(const struct llama_model *);
int32_t llama_vocab_n_tokens(const struct llama_vocab *);
bool    llama_vocab_is_eog(const struct llama_vocab *, llama_token);
int32_t llama_tokenize(const struct llama_vocab *, const char * text, int32_t length,
                       llama_token * tokens, int32_t n, bool add_special, bool parse_special);
struct llama_batch llama_batch_get_one(llama_token * tokens, int32_t n);
int32_t llama_decode(struct llama_context *, struct llama_batch);
float * llama_get_logits_ith(struct llama_context *, int32_t i);

struct llama_sampler;
struct chain_parameters llama_sampler_chain_default_params(void);
struct llama_sampler *  llama_sampler_chain_init(struct chain_parameters);
void  llama_sampler_chain_add(struct llama_sampler * chain, struct llama_sampler *);
struct llama_sampler * llama_sampler_clone(const struct llama_sampler *);
void  llama_sampler_accept(struct llama_sampler *, llama_token);
void  llama_sampler_apply(struct llama_sampler *, struct llama_token_data_array *);
void  llama_sampler_free(struct llama_sampler *);
llama_token llama_sampler_sample(struct llama_sampler *, struct llama_context *, int32_t i);

struct llama_sampler * llama_sampler_init_greedy(void);
struct llama_sampler * llama_sampler_init_dist(uint32_t seed);
struct llama_sampler * llama_sampler_init_top_k(int32_t k);
struct llama_sampler * llama_sampler_init_top_p(float p, size_t min_keep);
struct llama_sampler * llama_sampler_init_min_p(float p, size_t min_keep);
struct llama_sampler * llama_sampler_init_typical(float p, size_t min_keep);
struct llama_sampler * llama_sampler_init_temp(float t);
struct llama_sampler * llama_sampler_init_temp_ext(float t, float delta, float exponent);
struct llama_sampler * llama_sampler_init_xtc(float p, float t, size_t min_keep, uint32_t seed);
struct llama_sampler * llama_sampler_init_top_n_sigma(float n);
struct llama_sampler * llama_sampler_init_adaptive_p(float target, float decay, uint32_t seed);
struct llama_sampler * llama_sampler_init_infill(const struct llama_vocab *);
struct llama_sampler * llama_sampler_init_mirostat(int32_t n_vocab, uint32_t seed, float tau,
                                                   float eta, int32_t m);
struct llama_sampler * llama_sampler_init_mirostat_v2(uint32_t seed, float tau, float eta);
struct llama_sampler * llama_sampler_init_logit_bias(int32_t n_vocab, int32_t n,
                                                     const struct llama_logit_bias *);
struct llama_sampler * llama_sampler_init_grammar(const struct llama_vocab *, const char * text,
                                                  const char * root);
struct llama_sampler * llama_sampler_init_grammar_lazy_patterns(
    const struct llama_vocab *, const char * text, const char * root, const char ** patterns,
    size_t n_patterns, const llama_token * tokens, size_t n_tokens);
#if BUILD < 10258
struct llama_sampler * llama_sampler_init_penalties(int32_t last_n, float repeat, float freq,
                                                    float present);
#else
struct llama_sampler * llama_sampler_init_penalties(int32_t n_vocab, int32_t last_n, float repeat,
                                                    float freq, float present);
#endif
#if BUILD < 10273
struct llama_sampler * llama_sampler_init_dry(const struct llama_vocab *, int32_t n_ctx_train,
                                              float multiplier, float base, int32_t allowed,
                                              int32_t last_n, const char ** breakers, size_t n);
#else
struct llama_sampler * llama_sampler_init_dry(const struct llama_vocab *, float multiplier,
                                              float base, int32_t allowed, int32_t last_n,
                                              const char ** breakers, size_t n);
#endif

static void fail(const char * what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void silent(int level, const char * text, void * data) {
    (void) level, (void) text, (void) data;
}

// The input from which a setting builds the members of a chain.
struct source {
    const struct llama_model * model;
    const struct llama_vocab * vocab;
    int32_t                    n_vocab;
    uint32_t                   seed;
    struct llama_sampler *     chain;
};

static void add(const struct source * from, struct llama_sampler * member) {
    if (member == NULL) {
        fail("a constructor returned NULL");
    }
    llama_sampler_chain_add(from->chain, member);
}

static void draw(const struct source * from) {
    add(from, llama_sampler_init_dist(from->seed));
}

static void penalties(const struct source * from, int32_t last_n, float repeat, float freq,
                      float present) {
#if BUILD < 10258
    add(from, llama_sampler_init_penalties(last_n, repeat, freq, present));
#else
    add(from, llama_sampler_init_penalties(from->n_vocab, last_n, repeat, freq, present));
#endif
}

static void dry(const struct source * from, float multiplier, float base, int32_t allowed,
                int32_t last_n) {
    const char * breakers[] = { "\n", ":", "\"", "*" };
#if BUILD < 10273
    const int32_t n_ctx_train = llama_model_n_ctx_train(from->model);
    add(from, llama_sampler_init_dry(from->vocab, n_ctx_train, multiplier, base, allowed, last_n,
                                     breakers, 4));
#else
    add(from,
        llama_sampler_init_dry(from->vocab, multiplier, base, allowed, last_n, breakers, 4));
#endif
}

// Adds the members that llama-server's defaults put after penalties and DRY.
static void behind(const struct source * from) {
#ifdef HAS_sampler_init_top_n_sigma
    add(from, llama_sampler_init_top_n_sigma(-1.0f));
#endif
    add(from, llama_sampler_init_top_k(40));
    add(from, llama_sampler_init_typical(1.0f, 0));
    add(from, llama_sampler_init_top_p(0.95f, 0));
    add(from, llama_sampler_init_min_p(0.05f, 0));
    add(from, llama_sampler_init_xtc(0.0f, 0.1f, 0, from->seed));
    add(from, llama_sampler_init_temp_ext(0.8f, 0.0f, 1.0f));
    draw(from);
}

static void defaults(const struct source * from) {
    penalties(from, 64, 1.0f, 0.0f, 0.0f);
    dry(from, 0.0f, 1.75f, 2, -1);
    behind(from);
}

static void with_penalties(const struct source * from) {
    penalties(from, 64, 1.1f, 0.1f, 0.1f);
    dry(from, 0.0f, 1.75f, 2, -1);
    behind(from);
}

static void with_dry(const struct source * from) {
    penalties(from, 64, 1.0f, 0.0f, 0.0f);
    dry(from, 2.0f, 1.75f, 1, 48);
    behind(from);
}

static void with_biases(const struct source * from) {
    const struct llama_logit_bias biases[] = {
        { 5, 2.5f },
        { 300, -1.5f },
        { 301, 0.75f },
        { from->n_vocab - 1, -4.0f },
    };
    add(from, llama_sampler_init_logit_bias(from->n_vocab, 4, biases));
    defaults(from);
}

static void greedy(const struct source * from) {
    add(from, llama_sampler_init_greedy());
}

static void top_k(const struct source * from) {
    add(from, llama_sampler_init_top_k(300));
    draw(from);
}

static void top_p(const struct source * from) {
    add(from, llama_sampler_init_top_p(0.95f, 1));
    add(from, llama_sampler_init_temp(0.8f));
    draw(from);
}

static void min_p(const struct source * from) {
    add(from, llama_sampler_init_min_p(0.02f, 1));
    draw(from);
}

static void typical(const struct source * from) {
    add(from, llama_sampler_init_typical(0.9f, 1));
    draw(from);
}

static void xtc(const struct source * from) {
    add(from, llama_sampler_init_xtc(0.6f, 0.08f, 1, from->seed));
    draw(from);
}

static void temp_ext(const struct source * from) {
    add(from, llama_sampler_init_temp_ext(0.8f, 0.4f, 1.5f));
    draw(from);
}

static void mirostat(const struct source * from) {
    add(from, llama_sampler_init_mirostat(from->n_vocab, from->seed, 4.0f, 0.1f, 100));
}

static void mirostat_v2(const struct source * from) {
    add(from, llama_sampler_init_temp(0.9f));
    add(from, llama_sampler_init_mirostat_v2(from->seed, 4.0f, 0.1f));
}

static void infill(const struct source * from) {
    add(from, llama_sampler_init_top_k(8));
    add(from, llama_sampler_init_infill(from->vocab));
    draw(from);
}

#ifdef HAS_sampler_init_top_n_sigma
static void top_n_sigma(const struct source * from) {
    add(from, llama_sampler_init_top_n_sigma(1.2f));
    draw(from);
}
#endif

#ifdef HAS_sampler_init_adaptive_p
static void adaptive_p(const struct source * from) {
    add(from, llama_sampler_init_min_p(0.01f, 1));
    add(from, llama_sampler_init_adaptive_p(0.4f, 0.9f, from->seed));
}
#endif

static void grammar(const struct source * from) {
    const char * text = "root ::= line{1,200}\nline ::= [A-Za-z ,;']+ (\".\" | \":\" | \"\\n\")";
    add(from, llama_sampler_init_grammar(from->vocab, text, "root"));
    behind(from);
}

#ifdef HAS_sampler_init_grammar_lazy_patterns
static void lazy_grammar(const struct source * from) {
    const char * patterns[] = { "[\\s\\S]*?(e)[\\s\\S]*" };
    add(from, llama_sampler_init_grammar_lazy_patterns(from->vocab, "root ::= \"e\" [^QZth]*",
                                                       "root", patterns, 1, NULL, 0));
    behind(from);
}
#endif

static const struct setting {
    const char * name;
    void (*make)(const struct source *);
} settings[] = {
    { "defaults", defaults },
    { "penalties", with_penalties },
    { "dry", with_dry },
    { "logit bias", with_biases },
    { "greedy", greedy },
    { "top-k", top_k },
    { "top-p alone", top_p },
    { "min-p", min_p },
    { "typical", typical },
    { "xtc", xtc },
    { "temp-ext", temp_ext },
    { "mirostat", mirostat },
    { "mirostat-v2", mirostat_v2 },
    { "infill", infill },
#ifdef HAS_sampler_init_top_n_sigma
    { "top-n-sigma", top_n_sigma },
#endif
#ifdef HAS_sampler_init_adaptive_p
    { "adaptive-p", adaptive_p },
#endif
    { "grammar", grammar },
#ifdef HAS_sampler_init_grammar_lazy_patterns
    { "lazy grammar", lazy_grammar },
#endif
};

static void decode(struct llama_context * context, llama_token * tokens, int32_t n) {
    if (llama_decode(context, llama_batch_get_one(tokens, n)) != 0) {
        fail("llama_decode failed");
    }
}

// Samples from an array that the program fills itself, as some bindings do.
static llama_token by_array(const struct source * from, struct llama_context * context,
                            struct llama_token_data * data) {
    const float * logits = llama_get_logits_ith(context, -1);
    for (int32_t id = 0; id < from->n_vocab; id++) {
        data[id] = (struct llama_token_data){ id, logits[id], 0.0f };
    }
    struct llama_token_data_array array = { data, (size_t) from->n_vocab, -1, false };
    llama_sampler_apply(from->chain, &array);
    if (array.selected < 0 || (size_t) array.selected >= array.size) {
        fail("the chain selected nothing");
    }
    const llama_token token = array.data[array.selected].id;
    llama_sampler_accept(from->chain, token);
    return token;
}

static void generate(struct source * from, const struct setting * setting, llama_token * prompt,
                     int32_t n_prompt, int n, bool with_array) {
    struct parameters parameters = llama_context_default_params();
    // The contexts of all builds begin with these.
    const uint32_t sizes[] = { 256, 256, 256 };
    memcpy(&parameters, sizes, sizeof(sizes));
    // Each text has a new context: the function that clears one has had several names.
    struct llama_context * context =
        llama_init_from_model((struct llama_model *) from->model, parameters);
    if (context == NULL) {
        fail("no context");
    }
    llama_set_n_threads(context, 1, 1);
    from->chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    setting->make(from);
    struct llama_token_data * data = malloc((size_t) from->n_vocab * sizeof(*data));
    if (data == NULL) {
        fail("out of memory");
    }
    decode(context, prompt, n_prompt);
    for (int i = 0; i < n; i++) {
        if (i == n / 2) {
            // A clone continues from the original's state.
            struct llama_sampler * clone = llama_sampler_clone(from->chain);
            llama_sampler_free(from->chain);
            from->chain = clone;
        }
        llama_token token = with_array ? by_array(from, context, data)
                                       : llama_sampler_sample(from->chain, context, -1);
        printf("%s%d", i == 0 ? "" : " ", token);
        if (llama_vocab_is_eog(from->vocab, token)) {
            break;
        }
        decode(context, &token, 1);
    }
    free(data);
    llama_sampler_free(from->chain);
    llama_free(context);
}

static bool with_model(const char * name, const char * path, const char * text, int n,
                       uint32_t n_seeds, bool is_first) {
    struct llama_model * model = llama_model_load_from_file(path, llama_model_default_params());
    if (model == NULL) {
        fail("the model cannot be loaded");
    }
    struct source from = { .model = model, .vocab = llama_model_get_vocab(model) };
    from.n_vocab       = llama_vocab_n_tokens(from.vocab);
    llama_token   prompt[128];
    const int32_t n_prompt =
        llama_tokenize(from.vocab, text, (int32_t) strlen(text), prompt, 128, true, false);
    if (n_prompt <= 0) {
        fail("the prompt has no tokens");
    }
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        for (uint32_t seed = 40; seed < 40 + n_seeds; seed++) {
            for (int with_array = 0; with_array < 2; with_array++) {
                from.seed = seed;
                printf("%s\"%s: %s, %s, seed %u\": \"", is_first ? "" : ", ", name,
                       settings[i].name, with_array ? "by an array" : "sampled", seed);
                generate(&from, &settings[i], prompt, n_prompt, n, with_array);
                printf("\"");
                is_first = false;
            }
        }
    }
    llama_model_free(model);
    return is_first;
}

int main(int argc, char ** argv) {
    if (argc != 4) {
        fail("usage: with_libllama SMALL LARGE PROMPT");
    }
    llama_log_set(silent, NULL);
    llama_backend_init();
    printf("{\"texts\": {");
    const bool is_first = with_model("small", argv[1], argv[3], 32, 3, true);
    with_model("large", argv[2], argv[3], 12, 1, is_first);
    printf("}, \"rates\": {}}\n");
    return 0;
}
