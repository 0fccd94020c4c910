/* Generates JSON for a JSON Schema: llama.cpp's common library turns the schema into a grammar, and
 * llama-sieve's grammar sampler lets through only tokens that the grammar allows.
 *
 * With an installed llama-sieve, and a llama.cpp that was built in LLAMA:
 *
 *     c++ -std=c++17 -O2 examples/json.cpp -o json $(pkg-config --cflags --libs llama_sieve) \
 *         -I $LLAMA/common -I $LLAMA/include -I $LLAMA/ggml/include \
 *         -L $LLAMA/build/bin -lllama-common -lllama -Wl,-rpath,$LLAMA/build/bin
 *     ./json --schema examples/json.schema.json --prompt "A verse as JSON: "
 *
 * --compare lets llama.cpp's own grammar sampler and chain sample from the same logits with the
 * same seed, and reports the first difference (exit code 1) or "identical". --help lists the
 * options. Wrong options: exit code 2. */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "json-schema-to-grammar.h"
#include "llama-cpp.h"
#include "llama_sieve.h"

namespace {

const char HELP[] =
    "Generates JSON for a JSON Schema with llama-sieve's grammar sampler in a llama.cpp chain.\n"
    "\n"
    "      --schema PATH  JSON Schema (default: examples/json.schema.json)\n"
    "  -p, --prompt TEXT  what the JSON continues (default \"And he said: \")\n"
    "  -m, --model PATH   GGUF file (default: models/kjv-tiny.gguf)\n"
    "  -n N               tokens to generate at most (default 800)\n"
    "      --temp T       temperature (default 0.8)\n"
    "  -s, --seed N       seed of the generator (default 1)\n"
    "  -t, --threads N    threads for the model (default 1)\n"
    "      --grammar      print the grammar of the schema, and end\n"
    "      --compare      sample with the built-in samplers, too, and compare every token\n"
    "  -h, --help         this text\n";

struct options {
    std::string schema  = "examples/json.schema.json";
    std::string prompt  = "And he said: ";
    std::string model   = "models/kjv-tiny.gguf";
    uint32_t    n       = 800;
    float       temp    = 0.8f;
    uint32_t    seed    = 1;
    int32_t     threads = 1;
    bool        grammar = false;
    bool        compare = false;
    bool        help    = false;
};

struct wrong_option : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Reads a number within these bounds that takes up the whole text.
template <typename T>
T number(const std::string & name, const std::string & text, T least, T most) {
    size_t used  = 0;
    double value = 0;
    try {
        value = std::stod(text, &used);
    } catch (const std::logic_error &) {
        used = 0;
    }
    const T read = value >= double(least) && value <= double(most) ? T(value) : T(0);
    const bool whole = double(read) == value || !std::numeric_limits<T>::is_integer;
    if (used == 0 || used != text.size() || !(value >= double(least) && value <= double(most)) ||
        !whole) {
        throw wrong_option(name + " is \"" + text + "\", but must be from " +
                           std::to_string(least) + " to " + std::to_string(most));
    }
    return read;
}

options read_options(const std::vector<std::string> & arguments) {
    options o;
    for (size_t i = 0; i < arguments.size(); i++) {
        const std::string & name = arguments[i];
        const auto value = [&]() -> const std::string & {
            if (i + 1 == arguments.size()) {
                throw wrong_option(name + " needs a value");
            }
            return arguments[++i];
        };
        if (name == "--schema") {
            o.schema = value();
        } else if (name == "--prompt" || name == "-p") {
            o.prompt = value();
        } else if (name == "--model" || name == "-m") {
            o.model = value();
        } else if (name == "-n") {
            o.n = number<uint32_t>(name, value(), 1, 1000000);
        } else if (name == "--temp") {
            o.temp = number<float>(name, value(), 0.0f, 1000.0f);
        } else if (name == "--seed" || name == "-s") {
            o.seed = number<uint32_t>(name, value(), 0, UINT32_MAX - 1);
        } else if (name == "--threads" || name == "-t") {
            o.threads = number<int32_t>(name, value(), 1, 1000);
        } else if (name == "--grammar") {
            o.grammar = true;
        } else if (name == "--compare") {
            o.compare = true;
        } else if (name == "--help" || name == "-h") {
            o.help = true;
        } else {
            throw wrong_option("unknown option \"" + name + "\"; try --help");
        }
    }
    return o;
}

// Returns the grammar that llama.cpp's own tools make from a schema.
std::string grammar_of(const std::string & path) {
    std::ifstream file(path);
    if (!file) {
        throw std::runtime_error("cannot read --schema " + path);
    }
    const std::string text{ std::istreambuf_iterator<char>(file), {} };
    return json_schema_to_grammar(common_json::parse(text), true);
}

// Makes a chain, which owns the samplers.
llama_sampler_ptr chain_of(std::initializer_list<llama_sampler *> samplers) {
    llama_sampler_ptr chain(llama_sampler_chain_init(llama_sampler_chain_default_params()));
    bool complete = true;
    for (llama_sampler * sampler : samplers) {
        complete = complete && sampler != nullptr;
        if (sampler != nullptr) {
            llama_sampler_chain_add(chain.get(), sampler);
        }
    }
    if (!complete) {
        // For an invalid grammar the error has the line, the column and the expected syntax.
        throw std::runtime_error(llama_sieve_last_error());
    }
    return chain;
}

llama_sampler_ptr our_chain(const options & o, const llama_vocab * vocab,
                            const std::string & grammar) {
    return chain_of({
        llama_sieve_init_grammar(vocab, grammar.c_str(), "root"),
        llama_sieve_init_top_k(40),
        llama_sieve_init_top_p(0.95f, 1),
        llama_sieve_init_min_p(0.05f, 1),
        llama_sieve_init_temp(o.temp),
        llama_sieve_init_dist(o.seed),
    });
}

llama_sampler_ptr built_in_chain(const options & o, const llama_vocab * vocab,
                                 const std::string & grammar) {
    return chain_of({
        llama_sampler_init_grammar(vocab, grammar.c_str(), "root"),
        llama_sampler_init_top_k(40),
        llama_sampler_init_top_p(0.95f, 1),
        llama_sampler_init_min_p(0.05f, 1),
        llama_sampler_init_temp(o.temp),
        llama_sampler_init_dist(o.seed),
    });
}

std::vector<llama_token> tokens_of(const llama_vocab * vocab, const std::string & text) {
    // Each token stands for at least one byte, and the model may add a token at either end.
    std::vector<llama_token> tokens(text.size() + 2);
    const int32_t n = llama_tokenize(vocab, text.data(), int32_t(text.size()), tokens.data(),
                                     int32_t(tokens.size()), true, false);
    if (n < 1) {
        throw std::runtime_error("--prompt \"" + text +
                                 "\" has no tokens, so there is nothing to continue");
    }
    tokens.resize(size_t(n));
    return tokens;
}

std::string text_of(const llama_vocab * vocab, llama_token token) {
    std::string piece(512, '\0'); // No token of a common vocabulary has a longer text.
    const int32_t n =
        llama_token_to_piece(vocab, token, piece.data(), int32_t(piece.size()), 0, true);
    piece.resize(n > 0 ? size_t(n) : 0);
    return piece;
}

void decode(llama_context * context, std::vector<llama_token> & tokens) {
    if (llama_decode(context, llama_batch_get_one(tokens.data(), int32_t(tokens.size()))) != 0) {
        throw std::runtime_error("llama_decode failed");
    }
}

int generate(const options & o, const std::string & grammar) {
    llama_model_params model_params = llama_model_default_params();
    model_params.n_gpu_layers = 0;
    const llama_model_ptr model(llama_model_load_from_file(o.model.c_str(), model_params));
    if (!model) {
        throw std::runtime_error("cannot load --model " + o.model);
    }
    const llama_vocab * vocab = llama_model_get_vocab(model.get());
    std::vector<llama_token> tokens = tokens_of(vocab, o.prompt);

    llama_context_params context_params = llama_context_default_params();
    context_params.n_ctx           = uint32_t(tokens.size()) + o.n;
    context_params.n_batch         = uint32_t(tokens.size());
    context_params.n_threads       = o.threads;
    context_params.n_threads_batch = o.threads;
    const llama_context_ptr context(llama_init_from_model(model.get(), context_params));
    if (!context) {
        throw std::runtime_error("cannot make a context of " +
                                 std::to_string(context_params.n_ctx) +
                                 " tokens; try a smaller -n");
    }

    const llama_sampler_ptr ours = our_chain(o, vocab, grammar);
    const llama_sampler_ptr built_in = o.compare ? built_in_chain(o, vocab, grammar) : nullptr;
    bool ended = false;
    for (uint32_t i = 0; i < o.n && !ended; i++) {
        decode(context.get(), tokens);
        // Samples directly from the logits, without an array of the whole vocabulary.
        const llama_token token = llama_sieve_chain_sample(ours.get(), context.get(), -1);
        if (token < 0) {
            throw std::runtime_error(llama_sieve_last_error());
        }
        if (built_in && llama_sampler_sample(built_in.get(), context.get(), -1) != token) {
            std::fprintf(stderr, "\nfirst difference at token %u\n", i);
            return EXIT_FAILURE;
        }
        ended = llama_vocab_is_eog(vocab, token);
        if (!ended) {
            std::fputs(text_of(vocab, token).c_str(), stdout);
            std::fflush(stdout);
        }
        tokens = { token };
    }
    std::puts("");
    if (!ended) {
        std::fprintf(stderr, "json: the JSON is not complete after %u tokens; try a larger -n\n",
                     o.n);
        return EXIT_FAILURE;
    }
    if (o.compare) {
        std::fputs("identical\n", stderr);
    }
    return EXIT_SUCCESS;
}

void log_errors_only(ggml_log_level level, const char * text, void *) {
    if (level == GGML_LOG_LEVEL_ERROR) {
        std::fputs(text, stderr);
    }
}

} // namespace

int main(int argc, char ** argv) {
    try {
        const options o = read_options({ argv + 1, argv + argc });
        if (o.help) {
            std::fputs(HELP, stdout);
            return EXIT_SUCCESS;
        }
        const std::string grammar = grammar_of(o.schema);
        if (o.grammar) {
            std::fputs(grammar.c_str(), stdout);
            return EXIT_SUCCESS;
        }
        llama_log_set(log_errors_only, nullptr);
        llama_backend_init();
        const int code = generate(o, grammar);
        llama_backend_free();
        return code;
    } catch (const wrong_option & error) {
        std::fprintf(stderr, "json: %s\n", error.what());
        return 2;
    } catch (const std::exception & error) {
        std::fprintf(stderr, "json: %s\n", error.what());
        return EXIT_FAILURE;
    }
}
