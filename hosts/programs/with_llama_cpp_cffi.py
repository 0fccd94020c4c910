"""Generates with llama_cpp_cffi, for hosts/llama_cpp_cffi.py:
with_llama_cpp_cffi.py SMALL LARGE PROMPT [LIBRARY].

Uses the package's own chain of samplers, but loads the model through its low-level bindings,
because its own model class downloads from a hub. LIBRARY is loaded first; it has the function that
an older C++ library lacks.
"""

import ctypes
import json
import sys
import time

small, large, prompt, *libraries = sys.argv[1:]
for library in libraries:
    ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
from llama import CompletionsOptions  # noqa: E402
from llama.llama_cpp import ffi, lib  # noqa: E402
from llama.sampler import sampler_free, sampler_init  # noqa: E402

TOKENS = 48
BASE = {"seed": 42, "temp": 0.8}
# The settings that are timed.
SETTINGS = {
    "defaults": {},
    "penalties": {"repeat_penalty": 1.1, "frequency_penalty": 0.1, "presence_penalty": 0.1},
    "top-p alone": {"top_k": 0, "min_p": 0.0},
}
MORE = {
    "dry": {"dry_multiplier": 2.0, "dry_allowed_length": 1, "dry_penalty_last_n": 48},
    "no temperature": {"temp": 0.0},
}


def generate(model: object, options: CompletionsOptions) -> str:
    parameters = lib.llama_context_default_params()
    parameters.n_ctx = parameters.n_batch = 256
    parameters.n_threads = parameters.n_threads_batch = 1
    context = lib.llama_init_from_model(model, parameters)
    vocab = lib.llama_model_get_vocab(model)
    text = prompt.encode()
    tokens = ffi.new("llama_token[]", 128)
    n = lib.llama_tokenize(vocab, text, len(text), tokens, 128, True, False)
    chain = sampler_init(model, options)
    said = []
    for _ in range(TOKENS):
        if lib.llama_decode(context, lib.llama_batch_get_one(tokens, n)) != 0:
            raise SystemExit("llama_decode failed")
        said.append(lib.llama_sampler_sample(chain, context, -1))
        tokens[0], n = said[-1], 1
    sampler_free(chain)
    lib.llama_free(context)
    return " ".join(map(str, said))


texts, rates = {}, {}
for name, path in (("small", small), ("large", large)):
    model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
    for setting, values in {**SETTINGS, **MORE}.items():
        before = time.process_time()
        texts[f"{name}: {setting}"] = generate(model, CompletionsOptions(**{**BASE, **values}))
        if setting in SETTINGS:
            rates[f"{name}: {setting}"] = TOKENS / (time.process_time() - before)
    lib.llama_model_free(model)
print(json.dumps({"texts": texts, "rates": rates}), flush=True)
