"""Generates with xllamacpp, as hosts/xllamacpp.py asks: with_xllamacpp.py SMALL LARGE PROMPT."""

import json
import sys
import time

import xllamacpp

small, large, prompt = sys.argv[1:]
BASE = {"max_tokens": 48, "seed": 42, "temperature": 0.8}
SETTINGS = {
    "defaults": BASE,
    "penalties": {**BASE, "repeat_penalty": 1.1, "frequency_penalty": 0.1, "presence_penalty": 0.1},
    "top-p alone": {**BASE, "top_k": 0, "min_p": 0},
}
texts, rates = {}, {}
for name, path in (("small", small), ("large", large)):
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = 256
    params.n_parallel = 1
    params.cpuparams.n_threads = 1
    params.warmup = False
    server = xllamacpp.Server(params)
    # The first token pays for what is loaded at its first use.
    server.handle_completions({"prompt": prompt, **BASE, "max_tokens": 1})
    for setting, values in SETTINGS.items():
        before = time.process_time()
        answer = server.handle_completions({"prompt": prompt, **values})
        spent = time.process_time() - before
        texts[f"{name}: {setting}"] = answer["choices"][0]["text"]
        rates[f"{name}: {setting}"] = answer["usage"]["completion_tokens"] / spent
    del server
print(json.dumps({"texts": texts, "rates": rates}), flush=True)
