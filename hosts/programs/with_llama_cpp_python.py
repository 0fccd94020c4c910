"""Generates with llama-cpp-python, for hosts/llama_cpp_python.py.

with_llama_cpp_python.py SMALL LARGE PROMPT [patched]
"""

import json
import sys
import time

import llama_cpp

small, large, prompt, *patched = sys.argv[1:]
if patched:
    import llama_sieve

    llama_sieve.patch()
BASE = {"max_tokens": 48, "temperature": 0.8}
SETTINGS = {
    "defaults": BASE,
    "penalties": {**BASE, "repeat_penalty": 1.1, "frequency_penalty": 0.1, "presence_penalty": 0.1},
    "top-p alone": {**BASE, "top_k": 0, "min_p": 0.0},
}
texts, rates = {}, {}
for name, path in (("small", small), ("large", large)):
    model = llama_cpp.Llama(model_path=path, n_ctx=256, n_threads=1, verbose=False)
    # A first token, so that lazy loading is not timed.
    model.create_completion(prompt, **{**BASE, "max_tokens": 1})
    for setting, values in SETTINGS.items():
        model.set_seed(42)
        before = time.process_time()
        answer = model.create_completion(prompt, **values)
        spent = time.process_time() - before
        texts[f"{name}: {setting}"] = answer["choices"][0]["text"]
        rates[f"{name}: {setting}"] = answer["usage"]["completion_tokens"] / spent
    model.close()
print(json.dumps({"texts": texts, "rates": rates}), flush=True)
