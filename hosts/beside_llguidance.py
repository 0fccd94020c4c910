#!/usr/bin/env python3
"""Masks of llguidance on the walks of our bench: `hosts/beside_llguidance.py [--walks FILE]`.

Runs `cargo bench -- --part grammar` with a real tokenizer's vocabulary, or reads the file that the
bench has written with its own option --walks. llguidance reads each grammar with its own GBNF
translation and takes the same tokens. A walk ends early if llguidance does not allow its next
token. Prints one table of the built-in, ours and llguidance.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any, Dict, List, Optional

import common
import vocabulary

PACKAGE = "llguidance==1.9.1"

ROUNDS = 9
"""The number of times that a matcher is made; the table shows the median."""


@dataclass
class Measured:
    """The times of llguidance for one grammar, in microseconds."""

    masks: List[float] = field(default_factory=list)
    begins: List[float] = field(default_factory=list)
    left: int = 0
    """The number of walks that end early because llguidance does not allow their next token."""
    refused: Optional[str] = None
    """The error, if llguidance does not accept the grammar."""


def median(times: List[float]) -> float:
    return percentile(times, 50)


def percentile(times: List[float], share: int) -> float:
    return sorted(times)[len(times) * share // 100]


def now() -> float:
    """Returns this thread's processor time in microseconds, as the bench measures it."""
    return time.thread_time_ns() / 1e3


def walks(folder: Path) -> Path:
    """Runs the bench and returns the file that it wrote."""
    path = folder / "walks.json"
    command = ["cargo", "bench", "--locked", "--bench", "all", "--"]
    command += ["--part", "grammar", "--walks", str(path)]
    model = str(vocabulary.model(folder))
    environment = {**os.environ, "LLAMA_SIEVE_BENCH_VOCABULARY": model}
    subprocess.run(command, cwd=common.REPOSITORY, env=environment, stdout=sys.stderr, check=True)
    return path


def install(folder: Path) -> Any:
    """Installs llguidance and returns its module."""
    place = folder / "llguidance"
    if not place.exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
        common.download([*command, "--target", place, PACKAGE])
    sys.path.insert(0, str(place))
    return importlib.import_module("llguidance")


class Masks:
    """The memory of one mask, which each call fills anew."""

    def __init__(self, n_vocab: int) -> None:
        self._words = (ctypes.c_uint32 * (-(-n_vocab // 32)))()

    def fill(self, matcher: Any) -> float:
        """Computes the matcher's next mask. Returns the microseconds that it took."""
        place, size = ctypes.addressof(self._words), ctypes.sizeof(self._words)
        start = now()
        matcher.unsafe_compute_mask_ptr(place, size)
        return now() - start

    def allows(self, token: int) -> bool:
        return bool(self._words[token // 32] >> (token % 32) & 1)


def measure(module: Any, tokenizer: Any, grammar: Dict[str, Any], masks: Masks) -> Measured:
    measured = Measured()
    try:
        text = module.grammar_from("gbnf", grammar["text"])
    except ValueError as error:
        measured.refused = str(error)
        return measured
    for _ in range(ROUNDS):
        start = now()
        matcher = module.LLMatcher(tokenizer, text, log_level=0)
        measured.begins.append(now() - start)
        if matcher.is_error():
            measured.refused = matcher.get_error()
            return measured
    for walk in grammar["walks"]:
        if not matcher.reset():
            matcher = module.LLMatcher(tokenizer, text, log_level=0)
        for token in walk:
            measured.masks.append(masks.fill(matcher))
            if matcher.is_error():
                measured.refused = matcher.get_error()
                return measured
            if not masks.allows(token):
                measured.left += 1
                break
            matcher.consume_token(token)
    return measured


def cells(times: Optional[List[float]], begin: Optional[float]) -> List[str]:
    if not times:
        return ["", "", "", ""]
    told = [f"{median(times):.1f}", f"{mean(times):.1f}", f"{percentile(times, 99):.0f}"]
    return [*told, "" if begin is None else f"{begin:.0f}"]


def line(name: str, grammar: Dict[str, Any], measured: Measured) -> str:
    ours, builtin = grammar["apply_ns"] or (None, None)
    row = [name, *(f"{ns / 1e3:,.0f}" if ns is not None else "" for ns in (builtin, ours))]
    fresh = grammar["init_ns"][0] / 1e3 if grammar["init_ns"] else None
    row += cells([ns / 1e3 for ns in grammar["masks_ns"]], fresh)
    if measured.refused is not None:
        row += ["refused", "", "", "", ""]
    else:
        begin = median(measured.begins) if measured.begins else None
        row += [*cells(measured.masks, begin), str(measured.left)]
    return "| " + " | ".join(row) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--walks", type=Path, help="what the bench has written")
    parser.add_argument("--folder", type=Path, help="keeps the downloads there")
    options = parser.parse_args()
    with common.folder(options.folder) as folder:
        file = json.loads((options.walks or walks(folder)).read_text(encoding="utf-8"))
        vocabulary.tokenizer(folder)
        module = install(folder)
        start = now()
        tokenizer = module.LLTokenizer(str(folder / "tokenizer.json"), n_vocab=file["n_vocab"])
        once = (now() - start) / 1e6
    masks = Masks(file["n_vocab"])
    measured = [measure(module, tokenizer, grammar, masks) for grammar in file["grammars"]]

    print(f"{file['title']}; {PACKAGE}, its tokenizer {once:.1f} s once; microseconds\n")
    head = ["grammar", "built-in, whole array", "ours, whole array"]
    for side in ("ours", "llguidance"):
        head += [f"{side}, mask: median", "mean", "99th percentile", "begin"]
    head.append("walks it leaves")
    print("| " + " | ".join(head) + " |")
    print("| --- |" + " ---: |" * (len(head) - 1))
    for grammar, one in zip(file["grammars"], measured):
        print(line(grammar["name"], grammar, one))
    good = [(g, m) for g, m in zip(file["grammars"], measured) if m.refused is None]
    print(line("all that llguidance reads", together([g for g, _ in good]), summed(good)))
    for grammar, one in zip(file["grammars"], measured):
        if one.refused is not None:
            print(f"\nrefused: {grammar['name']}: {one.refused.splitlines()[0]}")
    return 0


def together(grammars: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Combines all grammars into one row."""
    applies = [grammar["apply_ns"] for grammar in grammars if grammar["apply_ns"]]
    return {
        "apply_ns": [mean(side) for side in zip(*applies)] or None,
        "init_ns": [mean(grammar["init_ns"][0] for grammar in grammars)],
        "masks_ns": [ns for grammar in grammars for ns in grammar["masks_ns"]],
    }


def summed(pairs: List[Any]) -> Measured:
    return Measured(
        masks=[time for _, one in pairs for time in one.masks],
        begins=[mean(median(one.begins) for _, one in pairs)],
        left=sum(one.left for _, one in pairs),
    )


if __name__ == "__main__":
    sys.exit(main())
