#!/usr/bin/env python3
"""llama-cli with and without the preload library: `hosts/llama_cli.py`.

Built from the same source package as hosts/llama_server.py builds. llama-cli is a chat whose
answers come from a server inside; llama-completion, which goes on with a text, is what it was
before.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Iterator

import common
import llama_server

# With the option that makes each end by itself.
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
