"""Converts arrays to addresses, without copying."""

from __future__ import annotations

from typing import Any, Callable, List, Tuple

import numpy as np
from numpy.typing import NDArray

from ._library import BatchError, CopyError, InvalidError, error_of, function

CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
"""One candidate: struct llama_token_data."""

_UNWRITTEN = np.iinfo(np.int32).min
"""The token of a sequence for which the library has written neither a token nor an error."""

_SUFFIXES = {
    "float32": "",
    "float16": "_f16",
    # The name of the type in ml_dtypes; numpy has no bfloat16.
    "bfloat16": "_bf16",
}


def vector(array: Any, what: str = "logits") -> NDArray[Any]:
    """Returns the array itself, or a numpy view of its memory: one contiguous row.

    Nothing is ever copied: an array that would need a copy raises an error that says so.
    """
    view = array if type(array) is np.ndarray else _view(array, what)
    if view.ndim != 1:
        raise InvalidError(f"{what}: an array of one dimension is needed, this has {view.ndim}")
    if not view.flags.c_contiguous:
        raise InvalidError(
            f"{what}: the array is not contiguous; numpy.ascontiguousarray copies it"
        )
    if not view.flags.aligned:
        raise InvalidError(f"{what}: the array is not aligned to its elements; .copy() aligns it")
    if view.size >= 2**31:
        raise InvalidError(f"{what}: {view.size} elements are too many")
    return view


def _view(array: Any, what: str) -> NDArray[Any]:
    """Returns a numpy view of memory that the object owns; CopyError if there is none."""
    name, advice = type(array).__name__, "give a numpy array or a tensor in main memory"
    if isinstance(array, (list, tuple)):
        raise CopyError(f"{what}: a {name} would be copied; {advice}")
    try:
        view, again = np.asarray(array), np.asarray(array)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise CopyError(f"{what}: a {name} is no array of numpy's: {error}; {advice}") from error
    # Both views are alive, so two copies would have different addresses.
    if address(view) != address(again):
        raise CopyError(f"{what}: a {name} would be copied; {advice}")
    return view


def floats(array: Any, what: str = "logits") -> NDArray[np.float32]:
    """Returns the array as `vector` does, but only for float32."""
    view = vector(array, what)
    if view.dtype != np.float32:
        raise InvalidError(f"{what}: float32 is needed, this is {view.dtype}; .astype copies it")
    return view


def candidates(array: Any) -> NDArray[Any]:
    """Returns the array as `vector` does, for candidates."""
    view = vector(array, "candidates")
    if view.dtype != CANDIDATE:
        raise InvalidError(f"candidates: llama_sieve.CANDIDATE is needed, this is {view.dtype}")
    return view


def rows(arrays: Any, number: int) -> List[NDArray[np.float32]]:
    """Returns rows of logits of equal length, one for each sequence."""
    found = [floats(row) for row in arrays]
    if len(found) != number:
        raise InvalidError(f"{number} sequences, but {len(found)} rows of logits")
    if len({row.size for row in found}) > 1:
        raise InvalidError("logits: the rows are of different length")
    return found


def _suffix(view: NDArray[Any]) -> str:
    suffix = _SUFFIXES.get(view.dtype.name) if view.dtype.isnative else None
    if suffix is None:
        raise InvalidError(
            f"logits: float32, float16 or bfloat16 is needed, this is {view.dtype}; "
            ".astype copies it"
        )
    return suffix


def sample_function(view: NDArray[Any]) -> Callable[..., int]:
    """Returns the function that samples for a sieve from logits of this type."""
    sample: Callable[..., int] = function("sample" + _suffix(view))
    return sample


def chain_function(view: NDArray[Any]) -> Callable[..., int]:
    """Returns the function that samples for a chain from logits of this type."""
    sample: Callable[..., int] = function("chain_sample" + (_suffix(view) or "_logits"))
    return sample


def address(view: NDArray[Any]) -> int:
    """Returns the address of the view's first element."""
    data: Tuple[int, bool] = view.__array_interface__["data"]
    return data[0]


def tokens_of_batch(n: int) -> NDArray[np.int32]:
    """Returns an array for the tokens of a batch of `n` sequences."""
    return np.full(n, _UNWRITTEN, np.int32)


def batch(code: int, tokens: NDArray[np.int32]) -> NDArray[np.int32]:
    """Returns the tokens of a batch, given the number that the library has returned.

    Raises BatchError if a sequence has no token, or the error of the call if nothing was sampled.
    """
    if code >= 0:
        return tokens
    error = error_of(code)
    if (tokens == _UNWRITTEN).any():
        raise error
    raise BatchError(error, tokens)
