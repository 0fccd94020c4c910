"""Lets the model choose one of several values, from Python, with nothing but ctypes.

    eval "$(examples/ffi_paths.sh)"
    python3 examples/python/constrained.py --choices "Moses,Aaron,the LORD"

The first line builds the three libraries and sets variables with their paths. With another
llama.cpp:

    cargo build --release
    python3 examples/python/constrained.py --llama-so $LLAMA/build/bin/libllama.so \\
        --sieve-so target/release/libllama_sieve.so --shim-so ./libffi_shim.so --choices "Moses,Aaron,the LORD"

The first lines of examples/ffi_shim.c say how to make libffi_shim.so, and why there is one.
"""

import argparse
import ctypes
import json
import os
import pathlib
import sys
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int, c_int32, c_size_t, c_uint32, c_void_p

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
LIBRARIES = (
    ("--llama-so", "LLAMA_SO", "libllama.so"),
    ("--sieve-so", "LLAMA_SIEVE_SO", "libllama_sieve.so"),
    ("--shim-so", "LLAMA_SHIM_SO", "the compiled ffi_shim.c"),
)
TRIE_SAMPLED = 1  # LLAMA_SIEVE_TRIE_SAMPLED
TRIE_COMPACT = 0x100  # LLAMA_SIEVE_TRIE_COMPACT


class Failure(Exception):
    """An error that is printed as a message, without a traceback."""


def read_options():
    parser = argparse.ArgumentParser(description="Lets the model choose one of several values.")
    for option, variable, what in LIBRARIES:
        parser.add_argument(option, default=os.environ.get(variable), help=f"path of {what} (default: ${variable})")
    parser.add_argument("--model", default=str(REPOSITORY / "models" / "kjv-tiny.gguf"), help="GGUF file")
    parser.add_argument("--prompt", default="And the LORD said unto", help="what the value continues")
    parser.add_argument("--choices", default="Moses,Aaron,the LORD", help="values to choose from")
    parser.add_argument("--temp", type=float, default=0.8, help="temperature")
    parser.add_argument("--seed", type=int, default=42, help="seed of the generator")
    options = parser.parse_args()
    missing = [option for option, _, _ in LIBRARIES if not getattr(options, option[2:].replace("-", "_"))]
    if missing:
        parser.error(f"missing {', '.join(missing)}; this builds all three and tells: eval \"$(examples/ffi_paths.sh)\"")
    options.choices = [choice.strip() for choice in options.choices.split(",")]
    if "" in options.choices:
        parser.error("--choices: an empty value is among them")
    if not 0 <= options.seed <= 0xFFFFFFFF:
        parser.error("--seed: must be from 0 to 4294967295")
    return options


def declare(library, result, name, *arguments):
    """Declares one function of a library. Without a declaration ctypes would truncate pointers to
    32 bits."""
    function = getattr(library, name)
    function.restype = result
    function.argtypes = arguments
    return function


def open_library(path):
    try:
        # Private to its user, which is also ctypes' default: our library finds libllama all the same.
        return ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        raise Failure(f"cannot load {path}: {error}") from error


class Llama:
    """The functions of llama.cpp that this program calls."""

    def __init__(self, library_path, shim_path):
        library = open_library(library_path)
        self.get_vocab = declare(library, c_void_p, "llama_model_get_vocab", c_void_p)
        self.tokenize_into = declare(
            library, c_int32, "llama_tokenize", c_void_p, c_char_p, c_int32, POINTER(c_int32), c_int32, c_bool, c_bool
        )
        self.chain_add = declare(library, None, "llama_sampler_chain_add", c_void_p, c_void_p)
        self.sample = declare(library, c_int32, "llama_sampler_sample", c_void_p, c_void_p, c_int32)
        self.accept = declare(library, None, "llama_sampler_accept", c_void_p, c_int32)
        self.sampler_free = declare(library, None, "llama_sampler_free", c_void_p)
        self.context_free = declare(library, None, "llama_free", c_void_p)
        self.model_free = declare(library, None, "llama_model_free", c_void_p)
        # After libllama, so that it uses the one that is loaded.
        shim = open_library(shim_path)
        self.load_model = declare(shim, c_void_p, "shim_load_model", c_char_p)
        self.new_context = declare(shim, c_void_p, "shim_new_context", c_void_p, c_int32)
        self.decode_tokens = declare(shim, c_int32, "shim_decode", c_void_p, POINTER(c_int32), c_int32)
        self.new_chain = declare(shim, c_void_p, "shim_new_chain")

    def tokenize(self, vocab, text, add_special):
        data = text.encode()
        # Each token stands for at least one byte, and the model may add a token at either end.
        tokens = (c_int32 * (len(data) + 2))()
        n = self.tokenize_into(vocab, data, len(data), tokens, len(tokens), add_special, False)
        return list(tokens[:n])

    def decode(self, context, tokens):
        if self.decode_tokens(context, (c_int32 * len(tokens))(*tokens), len(tokens)) != 0:
            raise Failure("llama_decode failed")


class Sieve:
    """The functions of llama-sieve that this program calls."""

    def __init__(self, path):
        library = open_library(path)
        self.new_slot = declare(library, c_void_p, "llama_sieve_init_trie_slot", c_void_p)
        self.set_payload = declare(library, c_int, "llama_sieve_trie_set", c_void_p, c_char_p, c_size_t, c_int)
        self.clear = declare(library, None, "llama_sieve_trie_clear", c_void_p)
        self.is_active = declare(library, c_bool, "llama_sieve_trie_is_active", c_void_p)
        self.leaf = declare(library, c_char_p, "llama_sieve_trie_leaf", c_void_p)
        self.forced_into = declare(library, c_size_t, "llama_sieve_trie_forced", c_void_p, POINTER(c_int32), c_size_t)
        self.new_temp = declare(library, c_void_p, "llama_sieve_init_temp", c_float)
        self.new_dist = declare(library, c_void_p, "llama_sieve_init_dist", c_uint32)
        self.last_error = declare(library, c_char_p, "llama_sieve_last_error")

    def fail(self):
        raise Failure(self.last_error().decode())

    def set(self, slot, payload, mode):
        data = json.dumps(payload).encode()
        if self.set_payload(slot, data, len(data), mode) != 0:
            self.fail()

    def forced(self, slot):
        """Returns the tokens that are the only possible continuation."""
        n = self.forced_into(slot, None, 0)
        tokens = (c_int32 * n)()
        self.forced_into(slot, tokens, n)
        return list(tokens)


def tokens_behind(llama, vocab, prompt, value):
    """Returns the tokens of a value that follows the prompt and a space.

    The value is tokenized together with the prompt, since some tokenizers treat the beginning of a
    text specially. It is tokenized alone only where a token would span the border between the two.
    """
    space = "" if not prompt or prompt[-1].isspace() else " "
    first = llama.tokenize(vocab, prompt, True)
    together = llama.tokenize(vocab, prompt + space + value, True)
    if together[: len(first)] == first:
        return together[len(first) :]
    return llama.tokenize(vocab, space + value, False)


def make_chain(llama, sieve, vocab, options):
    """Makes a chain whose first member is the trie's slot, so that temperature and draw see only
    the tokens that it allows. The chain frees its members."""
    chain = llama.new_chain()
    slot = sieve.new_slot(vocab)
    for member in (slot, sieve.new_temp(options.temp), sieve.new_dist(options.seed)):
        if not member:
            sieve.fail()
        llama.chain_add(chain, member)
    return chain, slot


def choose(llama, sieve, context, chain, slot):
    """Appends a value to the context, and returns its name."""
    batch = []  # The tokens that the model has not evaluated yet.
    while sieve.is_active(slot):
        # Where only one token can follow, nothing is sampled: the whole run goes into one batch.
        run = sieve.forced(slot)
        if run:
            for token in run:
                llama.accept(chain, token)
            batch += run
            continue
        if batch:
            llama.decode(context, batch)
        batch = [llama.sample(chain, context, -1)]
    # If one value is a prefix of another, the last token may already be the first one after the
    # value; the text continues with it.
    llama.decode(context, batch)
    leaf = sieve.leaf(slot)
    if leaf is None:
        raise Failure("no value was completed")
    return leaf.decode()


def run(options):
    llama = Llama(options.llama_so, options.shim_so)
    sieve = Sieve(options.sieve_so)
    model = llama.load_model(os.fsencode(options.model))
    if not model:
        raise Failure(f"cannot load {options.model}")
    vocab = llama.get_vocab(model)
    prompt = llama.tokenize(vocab, options.prompt, True)
    if not prompt:
        raise Failure("the prompt has no tokens")
    leaves = [{"name": name, "tokens": tokens_behind(llama, vocab, options.prompt, name)} for name in options.choices]
    payload = {"modelId": pathlib.Path(options.model).stem, "descriptors": [{"path": "choice", "leaves": leaves}]}
    longest = max(len(leaf["tokens"]) for leaf in leaves)
    context = llama.new_context(model, len(prompt) + longest + 1)
    if not context:
        raise Failure("cannot make a context")
    chain, slot = make_chain(llama, sieve, vocab, options)

    llama.decode(context, prompt)
    sieve.set(slot, payload, TRIE_SAMPLED | TRIE_COMPACT)
    chosen = choose(llama, sieve, context, chain, slot)
    sieve.clear(slot)
    if sieve.is_active(slot):
        raise Failure("the slot is active although it was cleared")

    llama.sampler_free(chain)
    llama.context_free(context)
    llama.model_free(model)
    return chosen


def main():
    options = read_options()
    try:
        print(run(options))
    except Failure as failure:
        sys.exit(f"constrained.py: {failure}")


if __name__ == "__main__":
    main()
