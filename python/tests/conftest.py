"""Fixtures of the tests. LLAMA_SIEVE_TEST_MODEL names a model; `ci/python` sets everything up."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from types import ModuleType
from typing import Any, Iterator

import numpy as np
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def missing(what: str) -> None:
    """Skips a test, or fails if LLAMA_SIEVE_REQUIRE_ALL is 1."""
    if os.environ.get("LLAMA_SIEVE_REQUIRE_ALL") == "1":
        pytest.fail(f"LLAMA_SIEVE_REQUIRE_ALL=1, but {what}")
    pytest.skip(what)


@pytest.fixture(scope="session")
def rng() -> np.random.Generator:
    return np.random.default_rng(int(os.environ.get("LLAMA_SIEVE_TEST_SEED", "42")))


@pytest.fixture(scope="session")
def llama_cpp() -> ModuleType:
    """Returns the module of llama-cpp-python."""
    try:
        return importlib.import_module("llama_cpp")
    except ImportError as error:
        missing(f"llama-cpp-python is not here: {error}")
        raise


@pytest.fixture(scope="session")
def model_path() -> Path:
    path = Path(os.environ.get("LLAMA_SIEVE_TEST_MODEL") or REPOSITORY / "models" / "kjv-tiny.gguf")
    if not path.is_file():
        missing(f"there is no model: {path}")
    return path


@pytest.fixture(scope="session")
def llm(llama_cpp: ModuleType, model_path: Path) -> Iterator[Any]:
    """Loads the small model."""
    # One thread, since two that wait for each other take minutes on a busy machine.
    threads = {"n_threads": 1, "n_threads_batch": 1}
    model = llama_cpp.Llama(model_path=str(model_path), n_ctx=256, verbose=False, **threads)
    yield model
    model.close()


@pytest.fixture(autouse=True)
def no_patch_is_left() -> Iterator[None]:
    yield
    from llama_sieve import patching

    while patching._current is not None:
        patching.unpatch()
