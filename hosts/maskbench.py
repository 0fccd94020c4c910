#!/usr/bin/env python3
"""Runs MaskBench with ours, llguidance and XGrammar: `hosts/maskbench.py --data FOLDER`.

FOLDER is maskbench/data of a clone of guidance-ai/jsonschemabench: JSON Schemas with valid and
invalid instances. As in MaskBench's own runner, a schema passes if each valid instance, as
json.dumps prints it in Llama 3's tokens, is allowed token by token, and each invalid one is
rejected at some token. Here the end token must be allowed, too. Times are the thread's processor
time in microseconds, including Python's calls: for the first mask together with compiling the
schema, and then for each token's mask together with its acceptance. Each engine runs in a process
of one thread.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import random
import re
import resource
import signal
import subprocess
import sys
import time
import types
from pathlib import Path
from statistics import mean
from typing import Any, Callable, Dict, Iterator, List, Tuple

import common
import vocabulary

PACKAGES = ("llguidance==1.9.1", "numpy", "apache-tvm-ffi", "pydantic")
ALONE = ("xgrammar==0.2.8", "tokenizers==0.23.3")
"""Packages installed without their dependencies: nothing here uses torch or transformers."""

SECONDS = 120
"""The time limit for one schema and its instances."""
BYTES = 8 << 30
"""The memory limit of an engine."""

SAMPLERS = ("accept", "reset", "free")


class Refused(Exception):
    """An engine's reason for rejecting a schema."""


class Engine:
    """A grammar engine: `mask` computes the next mask into `words`, and `accept` takes a token."""

    def __init__(self, texts: List[str]) -> None:
        self.words = (ctypes.c_uint32 * (-(-len(texts) // 32)))()
        self.mask: Callable[[], object]
        self.accept: Callable[[int], object]

    def compile(self, schema: str) -> None:
        """Compiles a schema. Raises Refused if the engine rejects it."""
        raise NotImplementedError

    def begin(self) -> None:
        """Starts a new text."""
        raise NotImplementedError

    def release(self) -> None:
        """Frees what the last schema allocated."""
        self.__dict__.pop("_compiled", None)


class Ours(Engine):
    """llama-sieve's C functions, in a process with llama.cpp's library."""

    flags = 0

    def __init__(self, folder: Path, texts: List[str]) -> None:
        super().__init__(texts)
        flags = subprocess.check_output([common.tool("llama_flags")], text=True)
        found = re.search(r"-L(\S+)", flags)
        assert found is not None
        host = ctypes.CDLL(f"{found[1]}/libllama.so", ctypes.RTLD_GLOBAL)
        # Structures are passed by value. This one is larger than any in llama.h.
        parameters = ctypes.c_byte * 1024
        by_value = type("Parameters", (ctypes.Structure,), {"_fields_": [("all", parameters)]})
        host.llama_model_default_params.restype = by_value
        host.llama_model_load_from_file.argtypes = [ctypes.c_char_p, by_value]
        host.llama_model_load_from_file.restype = ctypes.c_void_p
        host.llama_model_get_vocab.argtypes = [ctypes.c_void_p]
        host.llama_model_get_vocab.restype = ctypes.c_void_p
        path = str(vocabulary.model(folder)).encode()
        model = host.llama_model_load_from_file(path, host.llama_model_default_params())
        self._vocab = host.llama_model_get_vocab(model)

        self._library = ctypes.CDLL(str(common.target() / "libllama_sieve.so"))
        self._make = self._library.llama_sieve_init_json_schema
        self._make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint32]
        self._make.restype = ctypes.c_void_p
        self._library.llama_sieve_last_error.restype = ctypes.c_char_p
        self._mask = self._library.llama_sieve_grammar_mask
        self._mask.restype = ctypes.c_size_t
        self._host = {name: getattr(host, f"llama_sampler_{name}") for name in SAMPLERS}
        self._sampler = ctypes.c_void_p()

    def release(self) -> None:
        self._host["free"](self._sampler)
        self._sampler = ctypes.c_void_p()

    def compile(self, schema: str) -> None:
        self._sampler = ctypes.c_void_p(self._make(self._vocab, schema.encode(), self.flags))
        if not self._sampler:
            raise Refused(self._library.llama_sieve_last_error().decode())
        sampler, accept = self._sampler, self._host["accept"]
        words, n_words = self.words, ctypes.c_size_t(len(self.words))
        mask = self._mask
        self.mask = lambda: mask(sampler, words, n_words)
        self.accept = lambda token: accept(sampler, token)

    def begin(self) -> None:
        self._host["reset"](self._sampler)


class OursInAnyOrder(Ours):
    """Ours, with properties in any order."""

    flags = 8  # LLAMA_SIEVE_JSON_ANY_ORDER


class LLGuidance(Engine):
    """llguidance's matcher."""

    def __init__(self, folder: Path, texts: List[str]) -> None:
        super().__init__(texts)
        self._module = importlib.import_module("llguidance")
        path, end = folder / "tokenizer-llama-3.json", vocabulary.TOKENIZERS["llama-3"].end
        self._tokenizer = self._module.LLTokenizer(
            str(path), n_vocab=len(texts), eos_token=texts.index(end)
        )

    def compile(self, schema: str) -> None:
        grammar = json.dumps({"grammars": [{"json_schema": json.loads(schema)}]})
        self._compiled = self._module.LLMatcher(self._tokenizer, grammar, log_level=0)
        if self._compiled.is_error():
            raise Refused(self._compiled.get_error())

    def begin(self) -> None:
        matcher = self._compiled.deep_copy()
        place, size = ctypes.addressof(self.words), ctypes.sizeof(self.words)
        self.mask = lambda: matcher.unsafe_compute_mask_ptr(place, size)
        self.accept = matcher.consume_token


class Stub(types.ModuleType):
    """A module in which every name is an empty type, for imports that are not used."""

    def __getattr__(self, name: str) -> Any:
        return type(name, (), {"__init__": lambda *_, **__: None})


class XGrammar(Engine):
    """XGrammar's matcher, with MaskBench's settings for following the standard."""

    def __init__(self, folder: Path, texts: List[str]) -> None:
        super().__init__(texts)
        importlib.import_module("tvm_ffi")
        for name in ("torch", "transformers"):
            sys.modules[name] = Stub(name)
        self._module = importlib.import_module("xgrammar")
        end = [texts.index(vocabulary.TOKENIZERS["llama-3"].end)]
        info = self._module.TokenizerInfo(
            texts, self._module.VocabType.BYTE_LEVEL, stop_token_ids=end
        )
        self._compiler = self._module.GrammarCompiler(info, max_threads=1)
        numpy = importlib.import_module("numpy")
        self._array = numpy.frombuffer(self.words, dtype=numpy.int32).reshape(1, -1)

    def compile(self, schema: str) -> None:
        try:
            self._compiled = self._compiler.compile_json_schema(
                schema, any_whitespace=True, strict_mode=False
            )
        except Exception as error:  # Any exception that its C++ code raises.
            raise Refused(str(error)) from error

    def begin(self) -> None:
        matcher = self._module.GrammarMatcher(self._compiled)
        array = self._array
        self.mask = lambda: matcher.fill_next_token_bitmask(array)
        self.accept = matcher.accept_token


ENGINES = {
    "ours": Ours,
    "ours-any-order": OursInAnyOrder,
    "llguidance": LLGuidance,
    "xgrammar": XGrammar,
}


def now() -> int:
    """Returns this thread's processor time in nanoseconds."""
    return time.thread_time_ns()


def follow(engine: Engine, tokens: List[int], times: List[int]) -> bool:
    """Feeds a text to an engine, and appends each token's time. True if every token is allowed."""
    mask, accept, words = engine.mask, engine.accept, engine.words
    for token in tokens:
        start = now()
        mask()
        allowed = words[token // 32] >> (token % 32) & 1
        if allowed:
            accept(token)
        times.append(now() - start)
        if not allowed:
            return False
    return True


def measure(engine: Engine, tokenizer: Any, end: int, file: str) -> Dict[str, Any]:
    """Runs one schema and its instances through an engine, and returns the results."""
    read = json.loads(Path(file).read_text(encoding="utf-8"))
    schema = json.dumps(read["schema"], ensure_ascii=False)
    texts = [
        (json.dumps(test["data"], ensure_ascii=False), test["valid"]) for test in read["tests"]
    ]
    encoded = [
        ([*tokenizer.encode(text, add_special_tokens=False).ids, end], valid)
        for text, valid in texts
    ]
    engine.release()
    start = now()
    try:
        engine.compile(schema)
        engine.begin()
        engine.mask()
    except Refused as error:
        return {"refused": str(error)}
    times: List[int] = []
    told: Dict[str, Any] = {"first": now() - start, "times": times, "wrong": []}
    for number, (tokens, valid) in enumerate(encoded):
        engine.begin()
        before = len(times)
        if follow(engine, tokens, times) != valid:
            at = len(times) - before - 1
            told["wrong"].append([number, valid, at, tokenizer.decode(tokens[: at + 1])])
    return told


def work(name: str, folder: Path) -> None:
    """Runs an engine's process: prints a line of results for each file named on stdin."""
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    sys.path.insert(0, str(folder / "maskbench"))
    texts, _, _ = vocabulary.texts(folder)
    tokenizers = importlib.import_module("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer-llama-3.json"))
    engine = ENGINES[name](folder, texts)
    end = texts.index(vocabulary.TOKENIZERS["llama-3"].end)
    for line in sys.stdin:
        signal.alarm(SECONDS)
        told = measure(engine, tokenizer, end, line.rstrip("\n"))
        signal.alarm(0)
        print(json.dumps(told), flush=True)


def results(name: str, folder: Path, files: List[Path]) -> Iterator[Dict[str, Any]]:
    """Yields an engine's results for each file. If its process dies, a new one takes the rest."""
    command = [sys.executable, __file__, "--worker", name, "--folder", str(folder)]
    pending = iter(files)
    at_end = False
    with (folder / f"maskbench-{name}.log").open("w") as log:
        while not at_end:
            worker = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
            assert worker.stdin is not None and worker.stdout is not None
            with worker:
                at_end = True
                for file in pending:
                    print(file, file=worker.stdin, flush=True)
                    line = worker.stdout.readline()
                    told = json.loads(line) if line else {"ended": True}
                    yield {"file": file.name, **told}
                    if not line:
                        at_end = False
                        break


def percentile(sorted_times: List[float], share: float) -> float:
    return sorted_times[min(int(len(sorted_times) * share), len(sorted_times) - 1)]


def row(name: str, told: List[Dict[str, Any]]) -> str:
    """Returns an engine's line of the table."""
    taken = [one for one in told if "times" in one]
    wrong: List[Tuple[int, bool, int, str]] = [case for one in taken for case in one["wrong"]]
    counts = [
        sum(not one["wrong"] for one in taken),
        sum("refused" in one for one in told),
        sum("ended" in one for one in told),
        sum(valid for _, valid, _, _ in wrong),
        sum(not valid for _, valid, _, _ in wrong),
    ]
    firsts = sorted(one["first"] / 1e3 for one in taken) or [0.0]
    masks = sorted(ns / 1e3 for one in taken for ns in one["times"]) or [0.0]
    cells = [name, *(f"{count:,}" for count in counts)]
    cells += [f"{percentile(firsts, share):,.0f}" for share in (0.5, 0.99)]
    cells += [f"{mean(masks):,.1f}", f"{percentile(masks, 0.5):,.1f}"]
    cells += [f"{percentile(masks, share):,.0f}" for share in (0.99, 0.999, 1)]
    return "| " + " | ".join(cells) + " |"


HEADER = """\
| engine | pass | refused | ended | valid rejected | invalid accepted | first mask: p50 | p99 \
| masks: mean | p50 | p99 | p99.9 | max |"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="maskbench/data of a clone of jsonschemabench")
    parser.add_argument("--sample", type=int, help="so many schemas of all, the same each time")
    parser.add_argument("--engines", nargs="*", default=list(ENGINES), choices=list(ENGINES))
    parser.add_argument("--folder", type=Path, help="keep the downloads in this folder")
    parser.add_argument("--log", type=Path, help="write a line of JSON for each engine and schema")
    parser.add_argument("--worker", choices=list(ENGINES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        work(options.worker, options.folder)
        return 0
    files = sorted(options.data.glob("*.json")) if options.data is not None else []
    if not files:
        parser.error("--data: this folder has no schemas, *.json")
    if options.sample is not None:
        files = sorted(random.Random(1).sample(files, min(options.sample, len(files))))
    with common.folder(options.folder) as folder:
        prepare(folder)
        print(f"{len(files)} schemas\n\n{HEADER}")
        print("| --- |" + " ---: |" * (HEADER.count("|") - 2), flush=True)
        for name in options.engines:
            told = list(results(name, folder, files))
            print(row(name, told), flush=True)
            if options.log is not None:
                with options.log.open("a", encoding="utf-8") as log:
                    log.writelines(json.dumps({"engine": name, **one}) + "\n" for one in told)
    return 0


def prepare(folder: Path) -> None:
    """Fetches and builds what all engines need."""
    vocabulary.model(folder)
    command = ["cargo", "build", "--release", "--locked", "-q", "--lib"]
    subprocess.run(command, cwd=common.REPOSITORY, check=True)
    common.tool("llama_flags")
    place = folder / "maskbench"
    if not place.exists():
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
        common.download([*install, "--target", place, *PACKAGES])
        common.download([*install, "--target", place, "--no-deps", *ALONE])


if __name__ == "__main__":
    sys.exit(main())
