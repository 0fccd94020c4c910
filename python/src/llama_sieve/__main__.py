"""The command line: `python -m llama_sieve run`, `doctor` and `trace`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from typing import List, Optional

from . import _elf, _follow, _trace, doctor, launch
from ._library import simd, version
from ._text import printable


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m llama_sieve",
        description="llama.cpp's samplers, faster, with the same tokens.",
    )
    parser.add_argument("--version", action="version", version=f"llama-sieve {version()}, {simd()}")
    commands = parser.add_subparsers(dest="command", required=True)

    run = commands.add_parser(
        "run",
        help="run a program with ours in place of llama.cpp's samplers",
        description="Runs a program that nobody recompiled: it gets the preload library, and "
        "llama-cpp-python in it is patched. What would give other tokens stays llama.cpp's own.",
    )
    run.add_argument("--verbose", action="store_true", help="a line for each sampler, on stderr")
    run.add_argument(
        "--only",
        metavar="KINDS",
        help="only these samplers, such as top-k,dist; off: none of the preload library's",
    )
    run.add_argument("program", nargs=argparse.REMAINDER, help="-- program arguments")

    look = commands.add_parser(
        "doctor",
        help="tell which llama.cpp something has, what would be ours in it, and why not",
        description="Tells which llama.cpp something has, what would be ours in it, and why not. "
        "Exits with 0 if any sampler would be ours, 1 if none, 2 for what cannot be looked at.",
    )
    look.add_argument("--json", action="store_true", help="for programs to read")
    look.add_argument(
        "subject",
        nargs="?",
        help="number of a process, or a library or program; without it, this Python's "
        "llama-cpp-python",
    )

    trace = commands.add_parser(
        "trace",
        help="make a page of a trace, which shows what each stage did to each token",
        description="Makes one HTML page of what LLAMA_SIEVE_TRACE has written; with two files it "
        "shows both beside each other, from the first token on that differs.",
    )
    trace.add_argument("files", nargs="+", metavar="FILE", help="a trace, or two")
    trace.add_argument("--output", "-o", metavar="PAGE", help="its name; otherwise FILE.html")
    trace.add_argument(
        "--follow",
        action="store_true",
        help="serve the page on 127.0.0.1 while the trace is written, and print its address, "
        "which is a secret",
    )
    return parser


def _run(options: argparse.Namespace) -> int:
    command: List[str] = options.program
    if command[:1] == ["--"]:
        command = command[1:]
    if not command:
        print("llama-sieve: run: which program? (run -- program arguments)", file=sys.stderr)
        return 2
    if options.verbose:
        os.environ["LLAMA_SIEVE_VERBOSE"] = "1"
    if options.only is not None:
        os.environ["LLAMA_SIEVE_PRELOAD"] = options.only
    launch.run(command)


def _doctor(options: argparse.Namespace) -> int:
    try:
        report = doctor.of(options.subject)
    except (OSError, ValueError, _elf.NotElf) as error:
        print(f"llama-sieve: doctor: {printable(error)}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(dataclasses.asdict(report), default=str, indent=2))
    else:
        print(printable(doctor.text(report)))
    return 0 if report.helps else 1


def _page(options: argparse.Namespace) -> int:
    files: List[str] = options.files
    if len(files) > 2:
        print("llama-sieve: trace: one file or two, no more", file=sys.stderr)
        return 2
    if options.follow:
        return _served(files, options.output)
    to = options.output or f"{files[0]}.html"
    try:
        _trace.write(files, to)
    except (OSError, _trace.NoTrace) as error:
        print(f"llama-sieve: trace: {printable(error)}", file=sys.stderr)
        return 2
    print(printable(to))
    return 0


def _served(files: List[str], output: Optional[str]) -> int:
    if output is not None:
        print("llama-sieve: trace: --follow writes no page; leave out --output", file=sys.stderr)
        return 2
    try:
        for file in files:
            _follow.lines(file, _follow.Place())
        _follow.serve(files)
    except (OSError, _trace.NoTrace) as error:
        print(f"llama-sieve: trace: {printable(error)}", file=sys.stderr)
        return 2
    return 0


def main(arguments: Optional[List[str]] = None) -> int:
    """Returns the exit status."""
    options = _parser().parse_args(arguments)
    commands = {"run": _run, "doctor": _doctor, "trace": _page}
    return commands[options.command](options)


if __name__ == "__main__":
    sys.exit(main())
