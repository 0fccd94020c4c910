"""The snippet of the repository's README, as it stands there."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

from conftest import REPOSITORY, missing


def test_the_snippet_runs(llama_cpp: ModuleType) -> None:
    readme = REPOSITORY / "README.md"
    if not (REPOSITORY / "models" / "kjv-tiny.gguf").is_file():
        missing("this is not the repository: its model is not there")
    [snippet] = readme.read_text("utf-8").split("```python\n")[1:]
    snippet = snippet.split("```")[0]
    # One thread: two that wait for each other take minutes on a busy machine.
    assert "seed=42," in snippet
    snippet = snippet.replace("seed=42,", "seed=42, n_threads=1, n_threads_batch=1,")
    command = [sys.executable, "-c", snippet]
    output = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert output.returncode == 0, output.stderr
    assert output.stdout.strip(), output.stderr
