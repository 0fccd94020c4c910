"""Runs the snippet of the repository's README, unchanged, and the minimal example."""

from __future__ import annotations

import re
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
    # One thread, since two that wait for each other take minutes on a busy machine.
    assert "seed=42," in snippet
    snippet = snippet.replace("seed=42,", "seed=42, n_threads=1, n_threads_batch=1,")
    command = [sys.executable, "-c", snippet]
    output = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert output.returncode == 0, output.stderr
    assert output.stdout.strip(), output.stderr


def test_the_minimal_example_prints_what_it_says() -> None:
    """tests/examples compares the example's output with the tokens of llama.cpp's own chain."""
    example = REPOSITORY / "examples" / "minimal.py"
    if not example.is_file():
        missing("this is not the repository: its examples are not there")
    [says] = re.findall("^Prints: (.*)$", example.read_text("utf-8"), re.MULTILINE)
    output = subprocess.run([sys.executable, example], capture_output=True, text=True, check=False)
    assert (output.stdout.strip(), output.stderr) == (says, "")
