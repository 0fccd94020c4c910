"""The command line: passes commands to the program llama-sieve, and runs those that need Python.

`trace` exists only here, `doctor` without a subject examines this Python's llama-cpp-python, and
`run` also patches llama-cpp-python in the program. Everything else, including messages and exit
codes, is the program's.
"""

from __future__ import annotations

import argparse
import sys
from typing import List, Optional

from . import _follow, _trace, doctor, launch
from ._text import printable

_MORE = """
With the Python package also:

  doctor [--json] what llama_sieve.patch() would do in this Python's llama-cpp-python
  run             llama-cpp-python is patched in the program, too
  trace [--output PAGE] [--follow] FILE [FILE]
                  make a page of a trace, which shows what each stage did to each token
"""


def _trace_parser() -> argparse.ArgumentParser:
    trace = argparse.ArgumentParser(
        prog="llama-sieve trace",
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
    return trace


def _page(arguments: List[str]) -> int:
    options = _trace_parser().parse_args(arguments)
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
    """Runs a command. Returns its exit status, unless the program replaces this process."""
    words = sys.argv[1:] if arguments is None else arguments
    name, rest = (words[0], words[1:]) if words else ("", [])
    if name == "trace":
        return _page(rest)
    if name == "doctor" and set(rest) <= {"--json"}:
        return doctor.tell("--json" in rest)
    if name in ("-h", "--help", "help"):
        status = launch.call(words)
        print(_MORE, end="")
        return status
    launch.become(words)


if __name__ == "__main__":
    sys.exit(main())
