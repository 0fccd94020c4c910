"""Generates with one of llama.cpp's own programs, for hosts/llama_cli.py:
with_llama_cli.py PROGRAM MODE SMALL LARGE PROMPT. MODE is the option that makes it exit by itself.
"""

import json
import re
import resource
import subprocess
import sys
from typing import List, Tuple

program, mode, small, large, prompt = sys.argv[1:]
TOKENS = 401
BASE = "-n {} --ignore-eos --seed 42 --temp 0.8 -c 512 -t 1 -tb 1 --simple-io --no-warmup -fit off"
SETTINGS = {
    "defaults": "",
    "penalties": "--repeat-penalty 1.1 --frequency-penalty 0.1 --presence-penalty 0.1",
    "top-p alone": "--top-k 0 --min-p 0",
}


def generate(model: str, tokens: int, setting: str) -> Tuple[str, float]:
    """Returns what the program prints, without its timings, and its processor time in seconds."""
    options: List[str] = [*BASE.format(tokens).split(), *SETTINGS[setting].split()]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run(
        [program, mode, "-m", model, "-p", prompt, *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    text = ran.stdout.decode(errors="replace")
    return re.sub(r"^\[ Prompt: .*\]$", "", text, flags=re.MULTILINE), spent


texts, rates = {}, {}
for name, path in (("small", small), ("large", large)):
    for setting in SETTINGS:
        # The time to start, the first token included, is subtracted. Both times are the faster of
        # two runs.
        begun = min(generate(path, 1, setting)[1] for _ in range(2))
        (text, spent), (again, spent_again) = (generate(path, TOKENS, setting) for _ in range(2))
        if text != again:
            raise SystemExit(f"{name}, {setting}: two runs differ")
        texts[f"{name}: {setting}"] = text
        rates[f"{name}: {setting}"] = (TOKENS - 1) / max(min(spent, spent_again) - begun, 1e-6)
print(json.dumps({"texts": texts, "rates": rates}), flush=True)
