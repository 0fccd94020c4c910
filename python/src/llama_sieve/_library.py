"""The shared library: its path, the types of its functions, and its errors as exceptions.

Nothing here needs numpy, so that `run`, `doctor` and a `patch` that adds no samplers work without
it.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
from ctypes import c_bool, c_char_p, c_float, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, Type, Union

_HERE = Path(__file__).resolve().parent

PRELOAD = _HERE / "libllama_sieve_preload.so"
"""The library for LD_PRELOAD."""

_ELSEWHERE = {"win32": "llama_sieve_preload.dll", "darwin": "libllama_sieve.dylib"}
_FILE = _HERE / _ELSEWHERE[sys.platform] if sys.platform in _ELSEWHERE else PRELOAD


class Error(RuntimeError):
    """The base of all errors of the library, with the library's message."""

    code: int = 0
    """LLAMA_SIEVE_ERROR_* of llama_sieve.h; 0 if there is none."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


class InvalidError(Error, ValueError):
    """An invalid parameter, payload or size."""


class CopyError(InvalidError, TypeError):
    """An object whose elements cannot be used in place: numpy would have to copy them."""


class NotFoundError(Error, LookupError):
    """There is nothing with the requested name, or no preload library."""


class NoHostError(Error):
    """No llama.cpp was found in this process, or the given library is not one."""


class NoCandidateError(Error):
    """There is no token to choose.

    Either every logit or that of the selected token is minus infinity or NaN.
    """


class StateError(Error, ValueError):
    """A state cannot be saved, or saved bytes cannot be restored; the message says why."""


class BusyError(Error):
    """The object is in use by another thread, occurs twice in one call, or was disabled by an
    internal error."""


class NoLogitsError(Error):
    """The context has no logits at the requested output."""


class InternalError(Error):
    """An internal error of the library, or not enough memory."""


class BatchError(Error):
    """Not every sequence of a batch got a token."""

    def __init__(self, first: Error, tokens: Any) -> None:
        super().__init__(str(first), first.code)
        self.tokens = tokens
        """An array with each sequence's token, or its negative LLAMA_SIEVE_ERROR_*."""


_ERRORS: Dict[int, Type[Error]] = {
    -1: InvalidError,
    -2: NoHostError,
    -3: InternalError,
    -4: InvalidError,
    -5: NotFoundError,
    -6: InvalidError,
    -7: InvalidError,
    -8: NoCandidateError,
    -9: StateError,
    -10: BusyError,
    -11: NoLogitsError,
}


class LogitBias(ctypes.Structure):
    """struct llama_logit_bias."""

    _fields_ = [("token", c_int32), ("bias", c_float)]


class SieveParams(ctypes.Structure):
    """struct llama_sieve_params."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("temperature", c_float),
        ("top_k", c_int32),
        ("top_p", c_float),
        ("min_p", c_float),
        ("typical_p", c_float),
        ("top_n_sigma", c_float),
        ("min_keep", c_size_t),
        ("penalty_last_n", c_int32),
        ("penalty_repeat", c_float),
        ("penalty_freq", c_float),
        ("penalty_present", c_float),
        ("seed", c_uint64),
        ("mode", c_int32),
        ("rng", c_int32),
        ("method", c_int32),
        ("order", c_int32),
        ("bias", ctypes.POINTER(LogitBias)),
        ("n_bias", c_size_t),
    ]


class SieveStats(ctypes.Structure):
    """struct llama_sieve_stats."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("model_entropy", c_float),
        ("surprisal", c_float),
        ("sampling_entropy", c_float),
        ("n_vocab", c_int32),
        ("after_top_k", c_int32),
        ("after_typical", c_int32),
        ("after_top_p", c_int32),
        ("after_min_p", c_int32),
        ("after_top_n_sigma", c_int32),
    ]


class SieveStages(ctypes.Structure):
    """struct llama_sieve_stages."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("stages", ctypes.POINTER(c_int32)),
        ("n_stages", c_size_t),
        ("dry_multiplier", c_float),
        ("dry_base", c_float),
        ("dry_allowed_length", c_int32),
        ("dry_penalty_last_n", c_int32),
        ("xtc_probability", c_float),
        ("xtc_threshold", c_float),
        ("dynatemp_range", c_float),
        ("dynatemp_exponent", c_float),
        ("mirostat_tau", c_float),
        ("mirostat_eta", c_float),
        ("mirostat_m", c_int32),
        ("adaptive_target", c_float),
        ("adaptive_decay", c_float),
    ]


class LoopParams(ctypes.Structure):
    """struct llama_sieve_loop_params."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("action", c_int32),
        ("max_period", c_int32),
        ("min_tokens", c_int32),
        ("temperature", c_float),
        ("tokens", ctypes.POINTER(c_int32)),
        ("n_tokens", c_size_t),
        ("vocab", c_void_p),
    ]


class CacheStats(ctypes.Structure):
    """struct llama_sieve_cache_stats."""

    _fields_ = [
        ("hits", c_uint64),
        ("misses", c_uint64),
        ("evictions", c_uint64),
        ("entries", c_uint64),
        ("bytes", c_uint64),
    ]


LOG_CALLBACK = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)

_PARAMS = ctypes.POINTER(SieveParams)

# The result and argument types of functions. Arrays and samplers are passed as addresses.
_SIGNATURES: Dict[str, Tuple[Any, List[Any]]] = {
    "version": (c_char_p, []),
    "simd": (c_char_p, []),
    "last_error": (c_char_p, []),
    "last_error_code": (c_int, []),
    "log_set": (None, [LOG_CALLBACK, c_void_p]),
    "bind_host": (c_int, [c_void_p]),
    "attach": (c_int, [c_uint32]),
    "detach": (c_int, []),
    "certify_build": (c_int, [c_char_p, c_int]),
    "host_profile": (c_char_p, []),
    "default_params": (SieveParams, []),
    "new": (c_void_p, [_PARAMS]),
    "clone": (c_void_p, [c_void_p]),
    "free": (None, [c_void_p]),
    "reset": (None, [c_void_p]),
    "set_params": (c_int, [c_void_p, _PARAMS]),
    "accept": (None, [c_void_p, c_int32]),
    "sample": (c_int32, [c_void_p, c_void_p, c_int32]),
    "sample_f16": (c_int32, [c_void_p, c_void_p, c_int32]),
    "sample_bf16": (c_int32, [c_void_p, c_void_p, c_int32]),
    "sample_ctx": (c_int32, [c_void_p, c_void_p, c_int32]),
    "candidates": (c_int, [c_void_p, c_void_p, c_size_t]),
    "measure": (c_int, [c_void_p, c_bool]),
    "last_stats": (c_int, [c_void_p, ctypes.POINTER(SieveStats)]),
    "default_stages": (SieveStages, []),
    "set_stages": (c_int, [c_void_p, ctypes.POINTER(SieveStages)]),
    "set_sampler": (c_int, [c_void_p, c_int32, c_void_p]),
    "set_dry_breakers": (c_int, [c_void_p, c_void_p, c_void_p, c_size_t]),
    "sample_batch": (c_int, [c_void_p, c_void_p, c_int32, c_size_t, c_void_p, c_int]),
    "init_sampler": (c_void_p, [_PARAMS]),
    "top_candidates": (c_int, [c_void_p, c_int32, c_int32, c_void_p]),
    "greedy": (c_int32, [c_void_p, c_int32]),
    "state_size": (c_size_t, [c_void_p]),
    "state_save": (c_int, [c_void_p, c_void_p, c_size_t]),
    "state_load": (c_int, [c_void_p, c_char_p, c_size_t]),
    "chain_sample": (c_int32, [c_void_p, c_void_p, c_int32]),
    "chain_sample_logits": (c_int32, [c_void_p, c_void_p, c_int32]),
    "chain_sample_f16": (c_int32, [c_void_p, c_void_p, c_int32]),
    "chain_sample_bf16": (c_int32, [c_void_p, c_void_p, c_int32]),
    "chain_sample_batch": (c_int, [c_void_p, c_void_p, c_int32, c_size_t, c_void_p, c_int]),
    "chain_candidates": (c_int, [c_void_p, c_void_p, c_size_t]),
    "entropy": (c_float, [c_void_p, c_int32, c_int]),
    "surprisal": (c_float, [c_void_p, c_int32, c_int32, c_int]),
    "candidates_entropy": (c_float, [c_void_p, c_size_t, c_int]),
    "candidates_surprisal": (c_float, [c_void_p, c_size_t, c_int32, c_int]),
    "ppl_new": (c_void_p, []),
    "ppl_add": (None, [c_void_p, c_float]),
    "ppl_value": (c_float, [c_void_p]),
    "ppl_count": (c_size_t, [c_void_p]),
    "ppl_reset": (None, [c_void_p]),
    "ppl_clone": (c_void_p, [c_void_p]),
    "ppl_free": (None, [c_void_p]),
    "get_seed": (c_uint32, [c_void_p]),
    "init_ban_strings": (c_void_p, [c_void_p, c_void_p, c_size_t, c_uint32]),
    "init_ban_strings_bias": (c_void_p, [c_void_p, c_void_p, c_size_t, c_uint32, c_float]),
    "ban_rewind": (c_int, [c_void_p]),
    "init_loop_breaker": (c_void_p, [ctypes.POINTER(LoopParams)]),
    "init_trie_slot": (c_void_p, [c_void_p]),
    "trie_set": (c_int, [c_void_p, c_char_p, c_size_t, c_int]),
    "trie_clear": (None, [c_void_p]),
    "trie_activate": (c_int, [c_void_p, c_char_p]),
    "trie_is_active": (c_bool, [c_void_p]),
    "trie_leaf": (c_char_p, [c_void_p]),
    "trie_forced": (c_size_t, [c_void_p, c_void_p, c_size_t]),
    "trie_allowed": (c_size_t, [c_void_p, c_void_p, c_size_t]),
    "trie_cache_stats": (None, [ctypes.POINTER(CacheStats)]),
    "init_grammar": (c_void_p, [c_void_p, c_char_p, c_char_p]),
    "init_json_schema": (c_void_p, [c_void_p, c_char_p, c_uint32]),
    "init_regex": (c_void_p, [c_void_p, c_char_p, c_uint32]),
    "init_choice": (c_void_p, [c_void_p, c_void_p, c_size_t]),
    "init_tags": (c_void_p, [c_void_p, c_char_p, c_uint32]),
    "json_schema_to_gbnf": (c_size_t, [c_char_p, c_uint32, c_void_p, c_size_t]),
    "vocab_forget": (None, [c_void_p]),
    "grammar_mask": (c_size_t, [c_void_p, c_void_p, c_size_t]),
    "grammar_is_complete": (c_bool, [c_void_p]),
    "grammar_error": (c_int, [c_void_p]),
    "grammar_rollback": (c_int, [c_void_p, c_size_t]),
    "grammar_accepts": (c_size_t, [c_void_p, c_void_p, c_size_t]),
    "grammar_forced": (c_size_t, [c_void_p, c_void_p, c_size_t]),
}


class _Functions(ctypes.CDLL):
    """The functions of a library: those that it exports, and those that it returns by name.

    The preload library, which is the only library in a wheel for systems that have one, does not
    export the functions of llama_sieve.h: if it were preloaded, it would hide a program's own
    libllama_sieve.
    """

    def __getitem__(self, name: Any) -> Any:
        try:
            return super().__getitem__(name)
        except AttributeError:
            give = super().__getitem__("llama_sieve_preload_function")
        give.restype = c_void_p
        give.argtypes = [c_char_p]
        address = give(name.encode())
        if not address:
            raise AttributeError(f"{self._name} has no function {name}")
        return self._FuncPtr(address)


def _load() -> _Functions:
    path = Path(os.environ.get("LLAMA_SIEVE_LIBRARY") or _FILE)
    try:
        library = _Functions(str(path))
    except OSError as error:
        text = f"llama_sieve: the library could not be loaded: {error}"
        if "libgcc_s" in text:
            # A wheel cannot include it, since it must be the same one that llama.cpp uses.
            text += ". It needs gcc's libgcc_s.so.1: install it (Alpine: apk add libgcc)"
        raise ImportError(text) from error
    for name, (restype, argtypes) in _SIGNATURES.items():
        function = getattr(library, f"llama_sieve_{name}")
        function.restype = restype
        function.argtypes = argtypes
    return library


library = _load()
"""The loaded library: the wheel's, or the file that `LLAMA_SIEVE_LIBRARY` names."""


def function(name: str) -> Any:
    """Returns the library's function `llama_sieve_NAME`."""
    return getattr(library, f"llama_sieve_{name}")


def exports(name: str) -> bool:
    """Returns True if the library has a function with this full name."""
    return hasattr(library, name)


def last_error() -> str:
    """Returns the text of this thread's last error; "" if there was none."""
    text: bytes = library.llama_sieve_last_error()
    return text.decode("utf-8", "replace")


def error_of(code: int) -> Error:
    """Returns the exception for a negative number that a function returned."""
    text = last_error() or f"error {code}"
    return _ERRORS.get(code, Error)(text, code)


def check(code: int) -> int:
    """Returns the number, or raises its exception if it is negative."""
    if code < 0:
        raise error_of(code)
    return code


def made(handle: Optional[int]) -> int:
    """Returns the handle, or raises the reason why there is none."""
    if handle:
        return handle
    raise error_of(library.llama_sieve_last_error_code() or -4)


def utf8(text: Union[str, bytes], what: str) -> bytes:
    """Returns the bytes of a text; InvalidError if it is neither a string nor bytes, or has half of
    a surrogate pair."""
    if isinstance(text, (bytes, bytearray)):
        return bytes(text)
    if not isinstance(text, str):
        raise InvalidError(f"{what} is of type {type(text).__name__}, neither str nor bytes")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        half = ascii(text[error.start])
        message = (
            f"{what}: {half} at {error.start} is half of a surrogate pair: give UTF-8 as bytes"
        )
        raise InvalidError(message) from None


def texts_for_c(texts: Iterable[Union[str, bytes]], what: str) -> List[bytes]:
    """Returns the texts for C. A single string is an error: it would be taken letter by letter."""
    if isinstance(texts, (str, bytes, bytearray)):
        raise InvalidError(f"{what}s: one text is given, where a list of texts is expected")
    return [text_for_c(text, what) for text in texts]


def text_for_c(text: Union[str, bytes], what: str) -> bytes:
    """Returns the text for C, where NUL would end it: it must not contain one."""
    found = utf8(text, what)
    if b"\0" in found:
        raise InvalidError(f"{what}: a NUL is in the text")
    return found


def int32(value: int, what: str) -> int:
    """Returns the number, checked since ctypes would silently truncate a larger one."""
    if not -(2**31) <= value < 2**31:
        raise InvalidError(f"{what}: {value} does not fit into 32 bits")
    return value


def unsigned(value: int, bits: int, what: str) -> int:
    """Returns the number, checked since ctypes would silently truncate a larger or negative one."""
    if not 0 <= value < 2**bits:
        raise InvalidError(f"{what}: {value} does not fit into {bits} bits without sign")
    return value


_receive: Optional[Callable[[int, str], None]] = None


def _deliver(level: int, text: Optional[bytes], _user: Any) -> None:
    message = (text or b"").decode("utf-8", "replace")
    receive = _receive
    if receive is not None:
        receive(level, message)
    elif sys.stderr is not None:
        sys.stderr.write(f"llama-sieve: {message}\n")


_DELIVER = LOG_CALLBACK(_deliver)
"""The only callback that C ever gets: a thread could still enter one after it was replaced."""


def set_log(receive: Optional[Callable[[int, str], None]]) -> None:
    """Sends the library's messages to `receive(level, text)`, from all threads; None: to stderr.

    The levels are those of ggml: 2 information, 3 warning, 4 error. An exception that `receive`
    raises is reported by sys.unraisablehook.
    """
    global _receive
    _receive = receive
    if receive is None:
        library.llama_sieve_log_set(LOG_CALLBACK(), None)
        return
    # The library outlives the interpreter, which must then no longer get its messages.
    atexit.unregister(_quiet)
    atexit.register(_quiet)
    library.llama_sieve_log_set(_DELIVER, None)


def _quiet() -> None:
    set_log(None)


def version() -> str:
    """Returns the version of the library, "major.minor.patch"."""
    text: bytes = library.llama_sieve_version()
    return text.decode()


def simd() -> str:
    """Returns the instruction set in use: "avx512", "avx2", "neon" or "scalar".

    If expf, exp or logf of the C library does not return the same bits as the vector form, the C
    library's function is called. Its name then follows ", scalar": "avx512, scalar expf exp logf"
    on Windows.
    """
    text: bytes = library.llama_sieve_simd()
    return text.decode()
