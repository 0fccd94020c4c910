/* Lets the model choose one of several values, with llama-sieve's token trie in a llama.cpp chain.
 * This is examples/constrained in C.
 *
 * With an installed llama-sieve and an installed llama.cpp:
 *
 *     cc -std=c11 -O2 examples/constrained.c -o constrained \
 *         $(pkg-config --cflags --libs llama_sieve llama)
 *     ./constrained --choices "Moses,Aaron,the LORD" --prompt "And the LORD said unto"
 *
 * From the source tree of this project, with a llama.cpp that was built in LLAMA:
 *
 *     cargo build --release
 *     cc -std=c11 -O2 -I include -I $LLAMA/include -I $LLAMA/ggml/include \
 *         examples/constrained.c -o constrained target/release/libllama_sieve.a \
 *         -L $LLAMA/build/bin -lllama -Wl,-rpath,$LLAMA/build/bin -lpthread -ldl -lm
 *     ./constrained --greedy
 *
 * Where only one token can follow, it is not sampled: such a run is appended to the text as one
 * batch, together with the token that was sampled before it. --help lists the options. Wrong
 * options: exit code 2. */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llama.h"
#include "llama_sieve.h"

static const char HELP[] =
    "Lets the model choose one of several values, with llama-sieve's token trie in a llama.cpp "
    "chain.\n"
    "\n"
    "  -c, --choices A,B,C  values to choose from (default \"Moses,Aaron,the LORD\")\n"
    "  -p, --prompt TEXT    what the value continues (default \"And the LORD said unto\")\n"
    "  -m, --model PATH     GGUF file (default: models/kjv-tiny.gguf)\n"
    "      --temp T         temperature (default 0.8)\n"
    "  -s, --seed N         seed of the generator (default 4294967295: random)\n"
    "  -t, --threads N      threads for the model (default 1)\n"
    "      --greedy         take the most probable value, token by token, instead of drawing\n"
    "  -h, --help           this text\n";

typedef struct {
    const char * choices;
    const char * prompt;
    const char * model;
    float        temp;
    uint32_t     seed;
    int32_t      threads;
    bool         greedy;
} options;

/* Growing texts and lists of tokens. The program ends if there is no memory for them. */

static void * grown(void * memory, size_t size) {
    void * larger = realloc(memory, size);
    if (larger == NULL) {
        fprintf(stderr, "constrained: no memory\n");
        exit(EXIT_FAILURE);
    }
    return larger;
}

typedef struct {
    char * bytes; /* ends with NUL, once something was appended */
    size_t length;
} text;

static void append_bytes(text * to, const char * bytes, size_t n) {
    to->bytes = grown(to->bytes, to->length + n + 1);
    memcpy(to->bytes + to->length, bytes, n);
    to->length += n;
    to->bytes[to->length] = '\0';
}

static void append(text * to, const char * literal) {
    append_bytes(to, literal, strlen(literal));
}

static void append_integer(text * to, int32_t integer) {
    char digits[16];
    snprintf(digits, sizeof(digits), "%d", (int) integer);
    append(to, digits);
}

/* Appends the bytes as a JSON string. */
static void append_json_string(text * to, const char * bytes, size_t n) {
    append_bytes(to, "\"", 1);
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char) bytes[i];
        if (c == '"' || c == '\\') {
            append(to, "\\");
            append_bytes(to, &bytes[i], 1);
        } else if (c < 0x20) {
            char escape[8];
            snprintf(escape, sizeof(escape), "\\u%04x", c);
            append(to, escape);
        } else {
            append_bytes(to, &bytes[i], 1);
        }
    }
    append_bytes(to, "\"", 1);
}

typedef struct {
    llama_token * ids;
    int32_t       n;
} tokens;

static void append_token(tokens * to, llama_token id) {
    to->ids = grown(to->ids, ((size_t) to->n + 1) * sizeof(*to->ids));
    to->ids[to->n++] = id;
}

static bool begins_with(const tokens * all, const tokens * first) {
    return first->n == 0 ||
           (all->n >= first->n &&
            memcmp(all->ids, first->ids, (size_t) first->n * sizeof(*first->ids)) == 0);
}

/* Reading the command line. */

static bool read_temp(const char * from, float * temp) {
    char * end;
    *temp = strtof(from, &end);
    return end != from && *end == '\0' && isfinite(*temp);
}

static bool read_integer(const char * from, long long least, long long most, long long * value) {
    char * end;
    errno = 0;
    *value = strtoll(from, &end, 10);
    return end != from && *end == '\0' && errno == 0 && *value >= least && *value <= most;
}

static bool is_one_of(const char * option, const char * name, const char * other_name) {
    return strcmp(option, name) == 0 || strcmp(option, other_name) == 0;
}

/* Reads one option. Returns NULL on success, or a text that says what its value must be; "" for an
 * unknown option. */
static const char * read_option(const char * option, const char * value, options * to) {
    long long integer;
    if (is_one_of(option, "--choices", "-c")) {
        to->choices = value;
        return NULL;
    }
    if (is_one_of(option, "--prompt", "-p")) {
        to->prompt = value;
        return NULL;
    }
    if (is_one_of(option, "--model", "-m")) {
        to->model = value;
        return NULL;
    }
    if (strcmp(option, "--temp") == 0) {
        return value != NULL && read_temp(value, &to->temp) ? NULL : "a finite number";
    }
    if (is_one_of(option, "--seed", "-s")) {
        if (value == NULL || !read_integer(value, 0, UINT32_MAX, &integer)) {
            return "a whole number from 0 to 4294967295";
        }
        to->seed = (uint32_t) integer;
        return NULL;
    }
    if (is_one_of(option, "--threads", "-t")) {
        if (value == NULL || !read_integer(value, 1, 1024, &integer)) {
            return "a whole number from 1 to 1024";
        }
        to->threads = (int32_t) integer;
        return NULL;
    }
    return "";
}

/* Reads the command line. Prints a message and returns false if an option is wrong. */
static bool read_options(int argc, char ** argv, options * to) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--greedy") == 0) {
            to->greedy = true;
            continue;
        }
        const char * value    = i + 1 < argc ? argv[i + 1] : NULL;
        const char * expected = read_option(argv[i], value, to);
        if (expected != NULL && *expected == '\0') {
            fprintf(stderr,
                    "constrained: unknown option \"%s\"; there are --choices, --prompt, --model, "
                    "--temp, --seed, --threads, --greedy, "
                    "--help\n",
                    argv[i]);
            return false;
        }
        if (value == NULL) {
            fprintf(stderr, "constrained: %s needs a value: %s\n", argv[i],
                    expected == NULL ? "a text" : expected);
            return false;
        }
        if (expected != NULL) {
            fprintf(stderr, "constrained: %s is \"%s\", but must be %s\n", argv[i], value,
                    expected);
            return false;
        }
        i++;
    }
    return true;
}

/* Finds the next of the values that are separated by commas, and strips blanks around it. Returns
 * false after the last. */
static bool next_choice(const char ** rest, const char ** choice, size_t * length) {
    if (*rest == NULL) {
        return false;
    }
    const char * begin = *rest + strspn(*rest, " \t");
    const char * end   = *rest + strcspn(*rest, ",");
    *rest = *end == ',' ? end + 1 : NULL;
    while (end > begin && (end[-1] == ' ' || end[-1] == '\t')) {
        end--;
    }
    *choice = begin;
    *length = end > begin ? (size_t) (end - begin) : 0;
    return true;
}

static bool no_choice_is_empty(const char * choices) {
    const char * choice;
    size_t       length;
    for (const char * rest = choices; next_choice(&rest, &choice, &length);) {
        if (length == 0) {
            fprintf(stderr, "constrained: --choices \"%s\": an empty value is among them\n",
                    choices);
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

/* All objects that are needed during the generation. */
typedef struct {
    struct llama_model *       model;
    const struct llama_vocab * vocab;
    struct llama_context *     context;
    struct llama_sampler *     chain;
    struct llama_sampler *     trie; /* the chain's first member */
    tokens   prompt;
    tokens * values; /* the tokens of each choice */
    size_t   n_values;
    text     payload;
} generation;

static tokens tokenize(const generation * g, const char * bytes, size_t length, bool add_special) {
    /* Each token stands for at least one byte, and the model may add a token at either end. */
    const size_t room = length + 2;
    tokens made = { .ids = grown(NULL, room * sizeof(llama_token)), .n = 0 };
    const int32_t n =
        length < 1000000 ? llama_tokenize(g->vocab, bytes, (int32_t) length, made.ids,
                                          (int32_t) room, add_special, false)
                         : 0;
    made.n = n > 0 ? n : 0;
    return made;
}

/* Returns the tokens of a value that follows the prompt and a space. The value is tokenized
 * together with the prompt, since some tokenizers treat the beginning of a text specially. It is
 * tokenized alone only where a token would span the border between the two. */
static tokens tokenize_behind_prompt(const generation * g, const char * prompt, const char * value,
                                     size_t length) {
    text whole = { 0 };
    append_bytes(&whole, prompt, strlen(prompt));
    const bool   blank = whole.length == 0 || strchr(" \t\n", prompt[whole.length - 1]) != NULL;
    const size_t begin = whole.length;
    append_bytes(&whole, " ", blank ? 0 : 1);
    append_bytes(&whole, value, length);
    tokens made = tokenize(g, whole.bytes, whole.length, true);
    if (begins_with(&made, &g->prompt)) {
        made.n -= g->prompt.n;
        memmove(made.ids, made.ids + g->prompt.n, (size_t) made.n * sizeof(*made.ids));
    } else {
        free(made.ids);
        made = tokenize(g, whole.bytes + begin, whole.length - begin, false);
    }
    free(whole.bytes);
    return made;
}

/* {"modelId": "...", "descriptors": [{"path": "choice", "leaves": [
 *     {"name": "Moses", "tokens": [1, 2]}, ...]}]} */
static void make_payload(generation * g, const options * o) {
    append(&g->payload, "{\"modelId\": ");
    append_json_string(&g->payload, o->model, strlen(o->model));
    append(&g->payload, ", \"descriptors\": [{\"path\": \"choice\", \"leaves\": [");
    const char * choice;
    size_t       length;
    for (const char * rest = o->choices; next_choice(&rest, &choice, &length);) {
        const tokens value = tokenize_behind_prompt(g, o->prompt, choice, length);
        append(&g->payload, g->n_values == 0 ? "{\"name\": " : ", {\"name\": ");
        append_json_string(&g->payload, choice, length);
        append(&g->payload, ", \"tokens\": [");
        for (int32_t i = 0; i < value.n; i++) {
            append(&g->payload, i == 0 ? "" : ", ");
            append_integer(&g->payload, value.ids[i]);
        }
        append(&g->payload, "]}");
        g->values = grown(g->values, (g->n_values + 1) * sizeof(*g->values));
        g->values[g->n_values++] = value;
    }
    append(&g->payload, "]}]}");
}

/* Makes the chain. The trie comes first, so that the samplers after it choose among the allowed
 * tokens. */
static bool make_chain(generation * g, const options * o) {
    g->chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    struct llama_sampler * members[3] = { llama_sieve_init_trie_slot(g->vocab) };
    size_t n = 1;
    if (o->greedy) {
        members[n++] = llama_sieve_init_greedy();
    } else {
        members[n++] = llama_sieve_init_temp(o->temp);
        members[n++] = llama_sieve_init_dist(o->seed);
    }
    bool complete = true;
    for (size_t i = 0; i < n; i++) {
        /* A constructor returns NULL only if no llama.cpp was found in this process. */
        if (members[i] == NULL) {
            complete = false;
            continue;
        }
        llama_sampler_chain_add(g->chain, members[i]);
    }
    g->trie = members[0];
    /* Compact: the samplers after it see the allowed tokens only, instead of a vocabulary that is
     * mostly masked. */
    const int mode =
        LLAMA_SIEVE_TRIE_COMPACT | (o->greedy ? LLAMA_SIEVE_TRIE_GREEDY : LLAMA_SIEVE_TRIE_SAMPLED);
    if (complete && llama_sieve_trie_set(g->trie, g->payload.bytes, g->payload.length, mode) ==
                        LLAMA_SIEVE_OK) {
        return true;
    }
    fprintf(stderr, "constrained: %s\n", llama_sieve_last_error());
    return false;
}

static void log_errors_only(enum ggml_log_level level, const char * message, void * user) {
    (void) user;
    if (level == GGML_LOG_LEVEL_ERROR) {
        fputs(message, stderr);
    }
}

static bool start(generation * g, const options * o) {
    struct llama_model_params model_params = llama_model_default_params();
    model_params.n_gpu_layers = 0;
    g->model = llama_model_load_from_file(o->model, model_params);
    if (g->model == NULL) {
        fprintf(stderr, "constrained: cannot load --model %s\n", o->model);
        return false;
    }
    g->vocab  = llama_model_get_vocab(g->model);
    g->prompt = tokenize(g, o->prompt, strlen(o->prompt), true);
    if (g->prompt.n == 0) {
        fprintf(stderr, "constrained: --prompt has no tokens, or is too long\n");
        return false;
    }
    make_payload(g, o);
    int32_t longest = 0;
    for (size_t i = 0; i < g->n_values; i++) {
        longest = g->values[i].n > longest ? g->values[i].n : longest;
    }
    struct llama_context_params context_params = llama_context_default_params();
    context_params.n_ctx           = (uint32_t) (g->prompt.n + longest);
    context_params.n_batch         = context_params.n_ctx;
    context_params.n_threads       = o->threads;
    context_params.n_threads_batch = o->threads;
    g->context = llama_init_from_model(g->model, context_params);
    if (g->context == NULL) {
        fprintf(stderr, "constrained: cannot make a context of %u tokens\n",
                (unsigned) context_params.n_ctx);
        return false;
    }
    return make_chain(g, o);
}

static void stop(generation * g) {
    llama_sampler_free(g->chain);
    if (g->context != NULL) {
        llama_free(g->context);
    }
    if (g->model != NULL) {
        llama_model_free(g->model);
    }
    for (size_t i = 0; i < g->n_values; i++) {
        free(g->values[i].ids);
    }
    free(g->values);
    free(g->prompt.ids);
    free(g->payload.bytes);
}

static bool decode(generation * g, tokens * batch) {
    if (llama_decode(g->context, llama_batch_get_one(batch->ids, batch->n)) == 0) {
        return true;
    }
    fprintf(stderr, "\nconstrained: llama_decode failed\n");
    return false;
}

static void show(const generation * g, const tokens * value) {
    for (int32_t i = 0; i < value->n; i++) {
        /* No token of a common vocabulary has a longer text. */
        char piece[512];
        const int32_t length =
            llama_token_to_piece(g->vocab, value->ids[i], piece, sizeof(piece), 0, true);
        if (length > 0) {
            fwrite(piece, 1, (size_t) length, stdout);
        }
    }
}

/* Appends the tokens that are the only continuation, and lets the chain accept them. Returns their
 * number. */
static int32_t append_forced(generation * g, tokens * value, tokens * batch) {
    llama_token run[64];
    int32_t     n_forced = 0;
    for (;;) {
        const size_t n = llama_sieve_trie_forced(g->trie, run, 64);
        for (size_t i = 0; i < n && i < 64; i++) {
            llama_sampler_accept(g->chain, run[i]);
            append_token(value, run[i]);
            append_token(batch, run[i]);
            n_forced++;
        }
        if (n <= 64) {
            return n_forced;
        }
    }
}

/* Returns true if these tokens are a value or the beginning of one. */
static bool begins_a_value(const generation * g, const tokens * value) {
    for (size_t i = 0; i < g->n_values; i++) {
        if (begins_with(&g->values[i], value)) {
            return true;
        }
    }
    return false;
}

/* Generates a value, and appends it to the context, which has read the prompt. */
static bool choose(generation * g, tokens * value, int32_t * n_forced, int32_t * n_passes) {
    tokens batch = { 0 }; /* the tokens that the model has not evaluated yet */
    bool   works = true;
    for (;;) {
        *n_forced += append_forced(g, value, &batch);
        if (batch.n > 0) {
            works = decode(g, &batch);
            batch.n = 0;
            ++*n_passes;
        }
        if (!works || !llama_sieve_trie_is_active(g->trie)) {
            break;
        }
        const llama_token token = llama_sampler_sample(g->chain, g->context, -1);
        append_token(value, token);
        /* If one value is a prefix of another, any token may follow it. This token then belongs to
         * the text after the value. */
        if (!begins_a_value(g, value)) {
            value->n--;
            break;
        }
        append_token(&batch, token);
    }
    free(batch.ids);
    return works;
}

/* Generates the value and prints it. Returns the exit code. */
static int generate(generation * g, const options * o) {
    tokens  value    = { 0 };
    int32_t n_forced = 0;
    int32_t n_passes = 0;
    int     code     = EXIT_FAILURE;
    if (decode(g, &g->prompt) && choose(g, &value, &n_forced, &n_passes)) {
        fputs(o->prompt, stdout);
        show(g, &value);
        puts("");
        const char * name = llama_sieve_trie_leaf(g->trie);
        fflush(stdout);
        fprintf(stderr, "\"%s\": %d tokens, %d of them forced, %d forward passes\n",
                name == NULL ? "no value" : name, (int) value.n, (int) n_forced, (int) n_passes);
        code = name == NULL ? EXIT_FAILURE : EXIT_SUCCESS;
    }
    free(value.ids);
    return code;
}

int main(int argc, char ** argv) {
    if (asks_for_help(argc, argv)) {
        fputs(HELP, stdout);
        return EXIT_SUCCESS;
    }
    options o = {
        .choices = "Moses,Aaron,the LORD",
        .prompt  = "And the LORD said unto",
        .model   = "models/kjv-tiny.gguf",
        .temp    = 0.8f,
        .seed    = LLAMA_DEFAULT_SEED,
        .threads = 1,
        .greedy  = false,
    };
    if (!read_options(argc, argv, &o) || !no_choice_is_empty(o.choices)) {
        return 2;
    }
    llama_log_set(log_errors_only, NULL);
    llama_backend_init();
    generation g = { 0 };
    const int code = start(&g, &o) ? generate(&g, &o) : EXIT_FAILURE;
    stop(&g);
    llama_backend_free();
    return code;
}
