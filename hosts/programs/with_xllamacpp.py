"""Generates with xllamacpp, for hosts/xllamacpp.py: with_xllamacpp.py SMALL LARGE PROMPT.

Uses the server's HTTP interface, which returns the tokens.
"""

import http.client
import json
import sys
import time
import urllib.parse
from typing import Any, Dict, Tuple

import xllamacpp

small, large, prompt = sys.argv[1:]
BASE = {
    "n_predict": 48,
    "temperature": 0.8,
    "ignore_eos": True,
    "cache_prompt": False,
    "return_tokens": True,
}
# The settings that are timed.
SETTINGS = {
    "defaults": {},
    "penalties": {"repeat_penalty": 1.1, "frequency_penalty": 0.1, "presence_penalty": 0.1},
    "top-p alone": {"top_k": 0, "min_p": 0},
}
MORE = {
    "dry": {"dry_multiplier": 2.0, "dry_allowed_length": 1, "dry_penalty_last_n": 48},
    "logit bias": {"logit_bias": [[5, 2.5], [300, -1.5], [301, 0.75]]},
    "greedy": {"temperature": 0},
    "typical": {"top_k": 0, "top_p": 1, "min_p": 0, "typical_p": 0.9},
    "top-n-sigma": {"top_k": 0, "top_p": 1, "min_p": 0, "top_n_sigma": 1.2},
    "xtc": {"xtc_probability": 0.6, "xtc_threshold": 0.05},
    "dynamic temperature": {"dynatemp_range": 0.4, "dynatemp_exponent": 1.5},
    "mirostat": {"mirostat": 1},
    "mirostat-v2": {"mirostat": 2},
    "adaptive-p": {"adaptive_target": 0.4, "samplers": ["min_p", "adaptive_p"]},
    "probabilities": {"n_probs": 3, "post_sampling_probs": True},
    "grammar": {"grammar": 'root ::= ([A-Za-z ,;]+ ("." | ":" | "\\n")){1,200}'},
    "schema": {"json_schema": {"type": "array", "minItems": 9, "items": {"enum": ["the", "of"]}}},
}


def ask(place: str, options: Dict[str, object]) -> Dict[str, Any]:
    """Returns the server's answer."""
    address = urllib.parse.urlsplit(place)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=600)
    request = {"prompt": prompt, **BASE, **options}
    connection.request("POST", "/completion", json.dumps(request))
    answer: Dict[str, Any] = json.load(connection.getresponse())
    connection.close()
    return answer


def timed(place: str, options: Dict[str, object]) -> Tuple[str, float]:
    """Returns the answer as JSON, and tokens per second of processor time.

    Takes the first seed that has an answer: older versions return none that is not valid UTF-8.
    """
    for seed in range(42, 92):
        before = time.process_time()
        answer = ask(place, {**options, "seed": seed})
        spent = time.process_time() - before
        if "tokens" in answer:
            said = [seed, answer["tokens"], answer.get("completion_probabilities")]
            return json.dumps(said), len(answer["tokens"]) / spent
    raise SystemExit(f"{options}: {answer}")


texts, rates = {}, {}
for name, path in (("small", small), ("large", large)):
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = 256
    params.n_parallel = 1
    params.cpuparams.n_threads = 1
    params.warmup = False
    server = xllamacpp.Server(params)
    place = server.listening_address
    # A first token, so that lazy loading is not timed.
    ask(place, {"n_predict": 1})
    for setting, values in {**SETTINGS, **MORE}.items():
        texts[f"{name}: {setting}"], rate = timed(place, values)
        if setting in SETTINGS:
            rates[f"{name}: {setting}"] = rate
    del server
print(json.dumps({"texts": texts, "rates": rates}), flush=True)
