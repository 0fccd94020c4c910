/* Generates text with llama-sieve's samplers in a llama.cpp chain. This is examples/generate.rs in
 * C.
 *
 * With an installed llama-sieve and an installed llama.cpp:
 *
 *     cc -std=c11 -O2 examples/generate.c -o generate \
 *         $(pkg-config --cflags --libs llama_sieve llama)
 *     ./generate --prompt "In the beginning" --temp 0.7 --seed 42
 *
 * From the source tree of this project, with a llama.cpp that was built in LLAMA:
 *
 *     cargo build --release
 *     cc -std=c11 -O2 -I include -I $LLAMA/include -I $LLAMA/ggml/include \
 *         examples/generate.c -o generate target/release/libllama_sieve.a \
 *         -L $LLAMA/build/bin -lllama -Wl,-rpath,$LLAMA/build/bin -lpthread -ldl -lm
 *     ./generate --compare
 *
 * Options are named as on llama.cpp's command line; --help lists them. --compare lets llama.cpp's
 * built-in chain sample from the same logits with the same seed, and reports the first difference
 * (exit code 1) or "identical". Wrong options: exit code 2. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime, beside -std=c11 */

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "llama.h"
#include "llama_sieve.h"

static const char HELP[] =
    "Generates text with llama-sieve's samplers in a llama.cpp chain.\n"
    "\n"
    "  -m, --model PATH           GGUF file (default: models/kjv-tiny.gguf)\n"
    "  -p, --prompt TEXT          text to continue\n"
    "  -n N                       tokens to generate at most (default 128)\n"
    "  -s, --seed N               seed of the generator (default -1: random)\n"
    "      --temp T               temperature (default 0.8; 1 disables, 0 takes the most "
    "probable)\n"
    "      --top-k K              (default 40; 0 disables)\n"
    "      --top-p P              (default 0.95; 1 disables)\n"
    "      --min-p P              (default 0.05; 0 disables)\n"
    "      --typical P            (default 1, which disables)\n"
    "      --top-nsigma N         (default -1, which disables)\n"
    "      --repeat-penalty R     (default 1, which disables)\n"
    "      --repeat-last-n N      tokens that the penalties look back on (default 64; 0 disables)\n"
    "      --presence-penalty P   (default 0, which disables)\n"
    "      --frequency-penalty P  (default 0, which disables)\n"
    "  -t, --threads N            threads for the model (default 1)\n"
    "      --compare              sample with the built-in chain, too, and compare every token\n"
    "  -h, --help                 this text\n";

typedef struct {
    const char * model;
    const char * prompt;
    int32_t  n;
    uint32_t seed;
    float    temp;
    int32_t  top_k;
    float    top_p;
    float    min_p;
    float    typical;
    float    top_n_sigma;
    float    repeat_penalty;
    int32_t  repeat_last_n;
    float    presence_penalty;
    float    frequency_penalty;
    int32_t  threads;
    bool     compare;
} options;

static const options DEFAULTS = {
    .model             = "models/kjv-tiny.gguf",
    .prompt            = "And the LORD said unto",
    .n                 = 128,
    .seed              = LLAMA_DEFAULT_SEED,
    .temp              = 0.8f,
    .top_k             = 40,
    .top_p             = 0.95f,
    .min_p             = 0.05f,
    .typical           = 1.0f,
    .top_n_sigma       = -1.0f,
    .repeat_penalty    = 1.0f,
    .repeat_last_n     = 64,
    .presence_penalty  = 0.0f,
    .frequency_penalty = 0.0f,
    .threads           = 1,
    .compare           = false,
};

/* Reading the command line. */

typedef enum { TEXT, NUMBER, INTEGER, COUNT, SEED } kind;

static const char * const ALLOWED[] = {
    [TEXT]    = "a text",
    [NUMBER]  = "a finite number",
    [INTEGER] = "a whole number from -2147483648 to 2147483647",
    [COUNT]   = "a whole number from 1 to 1000000",
    [SEED]    = "a whole number from 0 to 4294967295, or -1 (random)",
};

typedef struct {
    const char * name;
    const char * other_name;
    kind   kind;
    void * value;
} option;

static bool read_integer(const char * text, long long least, long long most, long long * value) {
    char * end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return end != text && *end == '\0' && errno == 0 && *value >= least && *value <= most;
}

static bool read_number(const char * text, float * value) {
    char * end;
    *value = strtof(text, &end);
    return end != text && *end == '\0' && isfinite(*value);
}

/* Stores the value, and returns true, if the text is of the option's kind. */
static bool read_value(const option * o, const char * text) {
    long long integer;
    float     number;
    switch (o->kind) {
        case TEXT:
            *(const char **) o->value = text;
            return true;
        case NUMBER:
            if (!read_number(text, &number)) {
                return false;
            }
            *(float *) o->value = number;
            return true;
        case SEED:
            if (!read_integer(text, -1, UINT32_MAX, &integer)) {
                return false;
            }
            *(uint32_t *) o->value = (uint32_t) integer;
            return true;
        case INTEGER:
        case COUNT:
            if (!read_integer(text, o->kind == COUNT ? 1 : INT32_MIN,
                              o->kind == COUNT ? 1000000 : INT32_MAX, &integer)) {
                return false;
            }
            *(int32_t *) o->value = (int32_t) integer;
            return true;
    }
    return false;
}

static const option * find_option(const option * table, size_t n, const char * name) {
    for (size_t i = 0; i < n; i++) {
        if (strcmp(name, table[i].name) == 0 || strcmp(name, table[i].other_name) == 0) {
            return &table[i];
        }
    }
    return NULL;
}

static void wrong_option(const char * name, const option * table, size_t n) {
    fprintf(stderr, "generate: unknown option \"%s\"; there are --compare, --help", name);
    for (size_t i = 0; i < n; i++) {
        fprintf(stderr, ", %s", table[i].name);
    }
    fprintf(stderr, "\n");
}

/* Reads the command line. Prints a message and returns false if an option is wrong. */
static bool read_options(int argc, char ** argv, options * to) {
    const option table[] = {
        { "--model",             "-m",          TEXT,    &to->model             },
        { "--prompt",            "-p",          TEXT,    &to->prompt            },
        { "-n",                  "--n-predict", COUNT,   &to->n                 },
        { "--seed",              "-s",          SEED,    &to->seed              },
        { "--temp",              "",            NUMBER,  &to->temp              },
        { "--top-k",             "",            INTEGER, &to->top_k             },
        { "--top-p",             "",            NUMBER,  &to->top_p             },
        { "--min-p",             "",            NUMBER,  &to->min_p             },
        { "--typical",           "",            NUMBER,  &to->typical           },
        { "--top-nsigma",        "",            NUMBER,  &to->top_n_sigma       },
        { "--repeat-penalty",    "",            NUMBER,  &to->repeat_penalty    },
        { "--repeat-last-n",     "",            INTEGER, &to->repeat_last_n     },
        { "--presence-penalty",  "",            NUMBER,  &to->presence_penalty  },
        { "--frequency-penalty", "",            NUMBER,  &to->frequency_penalty },
        { "--threads",           "-t",          COUNT,   &to->threads           },
    };
    const size_t n = sizeof(table) / sizeof(table[0]);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--compare") == 0) {
            to->compare = true;
            continue;
        }
        const option * o = argv[i][0] == '\0' ? NULL : find_option(table, n, argv[i]);
        if (o == NULL) {
            wrong_option(argv[i], table, n);
            return false;
        }
        if (i + 1 == argc) {
            fprintf(stderr, "generate: %s needs a value: %s\n", argv[i], ALLOWED[o->kind]);
            return false;
        }
        i++;
        if (!read_value(o, argv[i])) {
            fprintf(stderr, "generate: %s is \"%s\", but must be %s\n", argv[i - 1], argv[i],
                    ALLOWED[o->kind]);
            return false;
        }
    }
    return true;
}

static bool asks_for_help(int argc, char ** argv) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            return true;
        }
    }
    return false;
}

/* The chains, in llama.cpp's own default order. The built-in constructors have the same arguments,
 * and differ in the prefix of their names only. A program that moves to llama-sieve needs no other
 * change. */

static struct llama_sampler * our_chain(const options * o, int32_t n_vocab) {
    struct llama_sampler * members[] = {
        llama_sieve_init_penalties(n_vocab, o->repeat_last_n, o->repeat_penalty,
                                   o->frequency_penalty, o->presence_penalty),
        llama_sieve_init_top_n_sigma(o->top_n_sigma),
        llama_sieve_init_top_k(o->top_k),
        llama_sieve_init_typical(o->typical, 1),
        llama_sieve_init_top_p(o->top_p, 1),
        llama_sieve_init_min_p(o->min_p, 1),
        llama_sieve_init_temp(o->temp),
        llama_sieve_init_dist(o->seed),
    };
    struct llama_sampler * chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    bool complete = true;
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        /* A constructor returns NULL only if no llama.cpp was found in this process. */
        if (members[i] == NULL) {
            complete = false;
            continue;
        }
        llama_sampler_chain_add(chain, members[i]);
    }
    if (complete) {
        return chain;
    }
    fprintf(stderr, "generate: %s\n", llama_sieve_last_error());
    llama_sampler_free(chain);
    return NULL;
}

static struct llama_sampler * built_in_chain(const options * o, int32_t n_vocab) {
    struct llama_sampler * chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    llama_sampler_chain_add(
        chain, llama_sampler_init_penalties(n_vocab, o->repeat_last_n, o->repeat_penalty,
                                            o->frequency_penalty, o->presence_penalty));
    llama_sampler_chain_add(chain, llama_sampler_init_top_n_sigma(o->top_n_sigma));
    llama_sampler_chain_add(chain, llama_sampler_init_top_k(o->top_k));
    llama_sampler_chain_add(chain, llama_sampler_init_typical(o->typical, 1));
    llama_sampler_chain_add(chain, llama_sampler_init_top_p(o->top_p, 1));
    llama_sampler_chain_add(chain, llama_sampler_init_min_p(o->min_p, 1));
    llama_sampler_chain_add(chain, llama_sampler_init_temp(o->temp));
    llama_sampler_chain_add(chain, llama_sampler_init_dist(o->seed));
    return chain;
}

/* All objects that are needed during the generation. */
typedef struct {
    struct llama_model *       model;
    const struct llama_vocab * vocab;
    struct llama_context *     context;
    struct llama_sampler *     ours;
    struct llama_sampler *     built_in; /* NULL without --compare */
    llama_token * prompt;
    int32_t       n_prompt;
    double        seconds_ours;
    double        seconds_built_in;
} generation;

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double) now.tv_sec + 1e-9 * (double) now.tv_nsec;
}

static void log_errors_only(enum ggml_log_level level, const char * text, void * user) {
    (void) user;
    if (level == GGML_LOG_LEVEL_ERROR) {
        fputs(text, stderr);
    }
}

static bool tokenize_prompt(generation * g, const char * text) {
    const size_t length = strlen(text);
    if (length > 1000000) {
        fprintf(stderr, "generate: --prompt is longer than a million bytes\n");
        return false;
    }
    /* Each token stands for at least one byte, and the model may add a token at either end. */
    const int32_t room = (int32_t) length + 2;
    g->prompt = malloc((size_t) room * sizeof(*g->prompt));
    if (g->prompt == NULL) {
        fprintf(stderr, "generate: no memory for the prompt\n");
        return false;
    }
    g->n_prompt = llama_tokenize(g->vocab, text, (int32_t) length, g->prompt, room, true, false);
    if (g->n_prompt < 1) {
        fprintf(stderr,
                "generate: --prompt \"%s\" has no tokens, so there is nothing to continue\n", text);
        return false;
    }
    return true;
}

static bool start(generation * g, const options * o) {
    struct llama_model_params model_params = llama_model_default_params();
    model_params.n_gpu_layers = 0;
    g->model = llama_model_load_from_file(o->model, model_params);
    if (g->model == NULL) {
        fprintf(stderr, "generate: cannot load --model %s\n", o->model);
        return false;
    }
    g->vocab = llama_model_get_vocab(g->model);
    if (!tokenize_prompt(g, o->prompt)) {
        return false;
    }
    struct llama_context_params context_params = llama_context_default_params();
    context_params.n_ctx           = (uint32_t) (g->n_prompt + o->n);
    context_params.n_batch         = (uint32_t) g->n_prompt;
    context_params.n_threads       = o->threads;
    context_params.n_threads_batch = o->threads;
    g->context = llama_init_from_model(g->model, context_params);
    if (g->context == NULL) {
        fprintf(stderr, "generate: cannot make a context of %u tokens; try a smaller -n\n",
                (unsigned) context_params.n_ctx);
        return false;
    }
    const int32_t n_vocab = llama_vocab_n_tokens(g->vocab);
    g->ours = our_chain(o, n_vocab);
    if (o->compare) {
        g->built_in = built_in_chain(o, n_vocab);
    }
    return g->ours != NULL;
}

static void stop(generation * g) {
    llama_sampler_free(g->built_in);
    llama_sampler_free(g->ours);
    if (g->context != NULL) {
        llama_free(g->context);
    }
    if (g->model != NULL) {
        llama_model_free(g->model);
    }
    free(g->prompt);
}

static bool decode(generation * g, llama_token * tokens, int32_t n) {
    if (llama_decode(g->context, llama_batch_get_one(tokens, n)) == 0) {
        return true;
    }
    fprintf(stderr, "\ngenerate: llama_decode failed\n");
    return false;
}

/* Samples a token from the last logits; the chain accepts it. */
static llama_token sample(generation * g, struct llama_sampler * chain, double * seconds) {
    const double begin = seconds_now();
    const llama_token token = llama_sampler_sample(chain, g->context, -1);
    *seconds += seconds_now() - begin;
    return token;
}

static void show(const generation * g, llama_token token) {
    /* No token of a common vocabulary has a longer text. */
    char piece[512];
    const int32_t length = llama_token_to_piece(g->vocab, token, piece, sizeof(piece), 0, true);
    if (length > 0) {
        fwrite(piece, 1, (size_t) length, stdout);
        fflush(stdout);
    }
}

static void report(const generation * g, int32_t generated, double seconds) {
    const double tokens = generated > 0 ? generated : 1;
    fprintf(stderr, "\n%d tokens, %.1f tokens per second, sampling %.1f microseconds per token\n",
            (int) generated, generated / seconds, 1e6 * g->seconds_ours / tokens);
    if (g->built_in != NULL) {
        fprintf(stderr, "built-in samplers: %.1f microseconds per token\n",
                1e6 * g->seconds_built_in / tokens);
    }
}

/* Generates the text and prints it. Returns the exit code. */
static int generate(generation * g, const options * o) {
    fputs(o->prompt, stdout);
    fflush(stdout);
    const double begin = seconds_now();
    if (!decode(g, g->prompt, g->n_prompt)) {
        return EXIT_FAILURE;
    }
    int32_t generated = 0;
    while (generated < o->n) {
        llama_token token = sample(g, g->ours, &g->seconds_ours);
        if (g->built_in != NULL) {
            const llama_token expected = sample(g, g->built_in, &g->seconds_built_in);
            if (token != expected) {
                fprintf(stderr, "\nfirst difference at token %d: ours %d, built-in %d\n",
                        (int) generated, (int) token, (int) expected);
                return EXIT_FAILURE;
            }
        }
        generated++;
        if (llama_vocab_is_eog(g->vocab, token)) {
            break;
        }
        show(g, token);
        if (generated < o->n && !decode(g, &token, 1)) {
            return EXIT_FAILURE;
        }
    }
    puts("");
    report(g, generated, seconds_now() - begin);
    if (g->built_in != NULL) {
        fprintf(stderr, "identical\n");
    }
    return EXIT_SUCCESS;
}

int main(int argc, char ** argv) {
    if (asks_for_help(argc, argv)) {
        fputs(HELP, stdout);
        return EXIT_SUCCESS;
    }
    options o = DEFAULTS;
    if (!read_options(argc, argv, &o)) {
        return 2;
    }
    if (o.compare && o.seed == LLAMA_DEFAULT_SEED) {
        /* Both chains need the same seed, so a random one is chosen here. */
        o.seed = (uint32_t) time(NULL) & 0x7FFFFFFF;
        fprintf(stderr, "seed %u\n", (unsigned) o.seed);
    }
    llama_log_set(log_errors_only, NULL);
    llama_backend_init();
    generation g = { 0 };
    const int code = start(&g, &o) ? generate(&g, &o) : EXIT_FAILURE;
    stop(&g);
    llama_backend_free();
    return code;
}
