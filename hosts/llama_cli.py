#!/usr/bin/env python3
"""llama-cli with and without the preload library: `hosts/llama_cli.py`.

Both programs are built from the source package of hosts/llama_server.py. llama-cli is a chat on top
of an embedded server; llama-completion, which continues a text, is the former llama-cli.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Iterator

import common
import llama_server

# Each with the option that makes it exit by itself.
PROGRAMS = {"llama-cli": "--single-turn", "llama-completion": "--no-conversation"}


def rows(folder: Path, repeats: int) -> Iterator[common.Row]:
    preload, large = common.preload(), common.large_model(folder)
    with_it = common.REPOSITORY / "hosts" / "programs" / "with_llama_cli.py"
    for name, mode in PROGRAMS.items():
        program = llama_server.built(folder, name)
        command = [sys.executable, with_it, program, mode, common.SMALL_MODEL, large, common.PROMPT]
        row = common.Row(f"{name} 0.6.0", llama_server.BUILD)
        yield common.alternate(row, command, preload, repeats)


if __name__ == "__main__":
    sys.exit(common.main(__doc__, rows))
