"""Code that the scripts share: models, runs with and without ours, and the rows of the table."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, ContextManager, Dict, Iterator, List, Optional, Sequence, Tuple

REPOSITORY = Path(__file__).resolve().parents[1]
SMALL_MODEL = REPOSITORY / "models" / "kjv-tiny.gguf"
PROMPT = "And the LORD said unto"

# The settings of samplers, by the names that the hosts' programs use.
SETTINGS = ("defaults", "penalties", "top-p alone")


Recording = Callable[[], ContextManager[None]]

recording: Optional[Recording] = None
"""Makes a context in which a run with ours is recorded. None without the option --trace."""


UNREACHED = 3
"""The exit status if a package cannot be fetched."""


def download(command: List[object], cwd: Optional[Path] = None) -> None:
    """Runs a package manager through ci/fetch. Raises SystemExit(UNREACHED) if it fails."""
    fetch = [str(REPOSITORY / "ci" / "fetch"), *map(str, command)]
    ran = subprocess.run(fetch, cwd=cwd, check=False, stdout=sys.stderr)
    if ran.returncode != 0:
        print(f"cannot be had: {' '.join(map(str, command))}", file=sys.stderr)
        raise SystemExit(UNREACHED)


@dataclass
class Arm:
    """One run of a host."""

    texts: Dict[str, str]
    """The generated text, by model and setting."""
    rates: Dict[str, float]
    """Tokens per second of processor time, by model and setting."""
    report: str
    """The standard error of the run."""


@dataclass
class Row:
    """One host, with and without ours."""

    host: str
    build: str
    ours: List[str] = field(default_factory=list)
    aside: Dict[str, str] = field(default_factory=dict)
    """Why a sampler stayed the host's own, by its kind."""
    different: List[str] = field(default_factory=list)
    """The runs whose text differs."""
    rates: Dict[str, List[float]] = field(default_factory=dict)
    """Tokens per second without and with ours, by setting, on the large vocabulary."""
    problem: Optional[str] = None

    @property
    def good(self) -> bool:
        return self.problem is None and not self.different


def tool(name: str) -> Path:
    """Builds a program of vendor-llama-cpp and returns its path."""
    command = ["cargo", "build", "--release", "--locked", "-q", "-p", "vendor-llama-cpp"]
    subprocess.run([*command, "--bin", name], cwd=REPOSITORY, check=True)
    return target() / name


def target() -> Path:
    """Returns the folder of cargo's release builds."""
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--locked"]
    told = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True).stdout
    return Path(json.loads(told)["target_directory"]) / "release"


def preload() -> Path:
    """Builds the preload library and returns its path.

    It is built together with the tests' crates, so that cargo unifies the features of dependencies
    as it does for the tests, and the library is the one that they use. libllama_sieve.so is beside
    it.
    """
    command = ["cargo", "build", "--release", "--locked", "-q", "-p", "llama-sieve"]
    command += ["-p", "llama-sieve-preload", "-p", "test-crates"]
    subprocess.run(command, cwd=REPOSITORY, check=True)
    return target() / "libllama_sieve_preload.so"


def large_model(folder: Path, tokens: int = 128_256) -> Path:
    """Returns a model with one layer of random weights and a vocabulary of that many tokens."""
    path = folder / f"vocabulary-of-{tokens}.gguf"
    if not path.exists():
        command = [tool("write_test_model"), "--vocab", str(tokens), "--seed", "1", "--out", path]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return path


@contextlib.contextmanager
def folder(kept: Optional[Path]) -> Iterator[Path]:
    """Yields the folder for downloads: `kept`, or a temporary one that is removed afterwards."""
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept.resolve()
        return
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def arm(command: List[object], preloaded: Optional[Path], **environment: str) -> Arm:
    """Runs a host's program, which prints a line of JSON: {"texts": {...}, "rates": {...}}.

    With `preloaded`, that library is preloaded.
    """
    variables = {**os.environ, **environment, "LLAMA_SIEVE_VERBOSE": "1"}
    variables.pop("LD_PRELOAD", None)
    if preloaded is not None:
        variables["LD_PRELOAD"] = str(preloaded)
    ran = subprocess.run(
        list(map(str, command)),
        env=variables,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=3600,
        check=False,
    )
    lines = [line for line in ran.stdout.splitlines() if line.startswith('{"texts"')]
    if ran.returncode != 0 or not lines:
        print(ran.stderr, file=sys.stderr)
        why = (ran.stderr or ran.stdout).strip().splitlines()[-3:]
        raise RuntimeError(f"ended with {ran.returncode}: {' / '.join(why)}")
    answer = json.loads(lines[-1])
    return Arm(answer["texts"], answer["rates"], ran.stderr)


# The report on one sampler. Lines about attaching are left out.
_LINE = re.compile(
    r"^llama-sieve: (?:preload|patch): (?!attach\()([\w-]+)(?:\(.*?\))?: (.*)$", re.MULTILINE
)


_ORDINARY = ("switched off", "called by llama.cpp itself")
"""Reasons that are left out where another call of the same kind gives a more specific one."""


def samplers(report: str) -> Row:
    """Returns which samplers were ours and which were not, as LLAMA_SIEVE_VERBOSE reports them."""
    row = Row("", "")
    reasons: Dict[str, List[str]] = {}
    for kind, outcome in _LINE.findall(report):
        if outcome == "ours":
            row.ours.append(kind)
        else:
            reason = outcome.removeprefix("llama.cpp's own: ")
            reasons.setdefault(kind, []).append(reason.removeprefix(f"{kind}: "))
    row.ours = list(dict.fromkeys(row.ours))
    for kind, told in reasons.items():
        more = [reason for reason in dict.fromkeys(told) if reason not in _ORDINARY]
        if more:
            row.aside[kind] = "; ".join(more)
        elif kind not in row.ours:
            row.aside[kind] = told[0]
    return row


def compare(row: Row, without: List[Arm], with_ours: List[Arm]) -> Row:
    """Fills a row from the runs of both arms."""
    found = samplers(with_ours[-1].report)
    row.ours, row.aside = found.ours, found.aside
    expected = without[0].texts
    row.different = sorted(
        {
            name
            for one in without + with_ours
            for name in expected
            if one.texts[name] != expected[name]
        }
    )
    for name in without[0].rates:
        if name.startswith("large: "):
            best = [
                max(one.rates[name] for one in arms if name in one.rates)
                for arms in (without, with_ours)
            ]
            row.rates[name.removeprefix("large: ")] = best
    return row


def alternate(
    row: Row, command: List[object], preloaded: Path, repeats: int, **environment: str
) -> Row:
    """Runs a host with and without the preload library in turns; the fastest of each counts."""
    without = functools.partial(arm, command, None, **environment)
    with_ours = functools.partial(arm, command, preloaded, **environment)
    (compared,) = in_turns(without, [(row, with_ours)], repeats)
    return compared


def in_turns(
    without: Callable[[], Arm], with_ours: Sequence[Tuple[Row, Callable[[], Arm]]], repeats: int
) -> Iterator[Row]:
    """Runs a host without ours and with ours in one or more setups, and fills a row for each setup.

    All of them run once, then again, until `repeats` rounds are done.
    """
    arms: List[List[Arm]] = [[] for _ in range(1 + len(with_ours))]
    problem: Optional[str] = None
    setup = ""
    try:
        for _ in range(repeats):
            setup = "without ours"
            arms[0].append(without())
            for of_one, (row, run) in zip(arms[1:], with_ours):
                setup = f"with ours as {row.host}"
                of_one.append(run())
                of_one.extend(recorded(run))
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        problem = f"{setup}: {error}".replace("|", "/")
    for (row, _), of_one in zip(with_ours, arms[1:]):
        row.problem = problem
        yield row if problem else compare(row, arms[0], of_one)


def recorded(run: Callable[[], Arm]) -> Iterator[Arm]:
    """Runs a host once more with a trace, if --trace is given. Drops the rates: tracing takes
    time."""
    if recording is not None:
        with recording():
            yield dataclasses.replace(run(), rates={})


HEADER = """\
| host | llama.cpp | ours | its own, and why | straight | same text | tokens/s without | with ours |
| --- | --- | --- | --- | --- | --- | --- | --- |"""

_SAMPLE = ("llama_sampler_sample", "common_sampler_sample")
"""Functions that sample a token. Where ours replace them, tokens come straight from the logits."""


def markdown(row: Row) -> str:
    """Returns the row as a line of the Markdown table."""
    if row.problem is not None:
        return f"| {row.host} | {row.build} | | {row.problem} | | | | |"
    reasons: Dict[str, List[str]] = {}
    for kind, reason in row.aside.items():
        if kind in row.ours:
            # Other calls of this kind were ours.
            reason = f"in some calls: {reason}"
        reasons.setdefault(reason, []).append(kind)
    aside = "; ".join(f"{', '.join(kinds)}: {reason}" for reason, kinds in reasons.items())
    aside = aside.replace("|", "\\|")
    same = "yes" if not row.different else "NO: " + ", ".join(row.different)
    rates = [
        ", ".join(f"{name} {pair[side]:.0f}" for name, pair in row.rates.items()) for side in (0, 1)
    ]
    kinds = [kind for kind in row.ours if kind not in _SAMPLE]
    straight = "yes" if set(row.ours) & set(_SAMPLE) else "no"
    cells = [row.host, row.build, ", ".join(kinds) or "none", aside, straight, same, *rates]
    return "| " + " | ".join(cells) + " |"


def options(description: Optional[str]) -> argparse.ArgumentParser:
    """Returns a parser with the options that all scripts have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--folder", type=Path, help="keep the downloads in this folder")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each arm (default 3)")
    parser.add_argument("--expect", default="", help="these samplers must be ours: top-k,dist")
    parser.add_argument("--no-header", action="store_true", help="rows alone")
    return parser


def may_trace(parser: argparse.ArgumentParser) -> None:
    """Adds the option --trace, which `tracing` reads."""
    said = "run each with ours once more, recorded, and check that"
    parser.add_argument("--trace", action="store_true", help=said)


@contextlib.contextmanager
def tracing(folder: Path, options: argparse.Namespace) -> Iterator[Callable[[], bool]]:
    """Makes runs with ours record traces if --trace is given. Yields a check of these traces."""
    global recording
    if not options.trace:
        yield lambda: True
        return
    from traces import Traces

    traces = Traces(folder)
    recording = traces.recording
    try:
        yield traces.hold
    finally:
        recording = None


def show(rows: Iterator[Row], options: argparse.Namespace) -> int:
    """Prints rows as they come. Returns 1 if a host failed or its text or samplers differ."""
    if not options.no_header:
        print(HEADER)
    wanted = set(filter(None, options.expect.split(",")))
    good = True
    for row in rows:
        print(markdown(row), flush=True)
        missing = wanted - set(row.ours)
        if missing:
            print(f"{row.host}: not ours: {', '.join(sorted(missing))}", file=sys.stderr)
        good &= row.good and not missing
    if not good:
        print("a host went wrong, or its text or its samplers are others", file=sys.stderr)
    return 0 if good else 1


def main(
    description: Optional[str],
    rows: Callable[..., Iterator[Row]],
    versions: Sequence[str] = (),
    name: str = "VERSION",
) -> int:
    """Prints the table of a script and returns its exit status.

    `rows` is called with the folder and the number of repeats. If the script has `versions`, the
    list of those to run, by default all, comes before them.
    """
    parser = options(description)
    may_trace(parser)
    if versions:
        parser.add_argument("versions", nargs="*", default=list(versions), metavar=name)
    asked = parser.parse_args()
    of_versions = [asked.versions] if versions else []
    with folder(asked.folder) as kept, tracing(kept, asked) as hold:
        status = show(rows(*of_versions, kept, asked.repeats), asked)
        return status if hold() else 1
