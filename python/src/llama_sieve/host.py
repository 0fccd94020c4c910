"""The llama.cpp of this process: selects the one that samplers use, and compares its samplers with
this library's."""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass
from operator import index
from pathlib import Path
from types import ModuleType
from typing import Any, Optional, Union

from ._library import (
    Error,
    InvalidError,
    NoHostError,
    check,
    int32,
    last_error,
    library,
    text_for_c,
)

KINDS = (
    "greedy",
    "dist",
    "top-k",
    "top-p",
    "min-p",
    "typical",
    "temp",
    "temp-ext",
    "xtc",
    "top-n-sigma",
    "mirostat",
    "mirostat-v2",
    "penalties",
    "dry",
    "adaptive-p",
    "logit-bias",
    "infill",
)
"""The kinds of llama.cpp's samplers that `patch` replaces, named as by llama_sampler_name."""

CERTIFY_ARGUMENTS = 8
"""The code of a Verdict if the host's build, and so its constructors' arguments, are unknown."""

Host = Union[ctypes.CDLL, ModuleType, str, "os.PathLike[str]"]

_bound: Optional[ctypes.CDLL] = None


def _library_of(host: Host) -> ctypes.CDLL:
    if isinstance(host, ctypes.CDLL):
        return host
    if isinstance(host, ModuleType):
        # The module llama_cpp, or llama_cpp.llama_cpp.
        inner = getattr(host, "llama_cpp", host)
        found = getattr(inner, "_lib", None)
        if not isinstance(found, ctypes.CDLL):
            raise InvalidError(f"{host.__name__} is not llama-cpp-python: it has no library")
        return found
    return ctypes.CDLL(str(Path(host)))


def bind_host(host: Host) -> ctypes.CDLL:
    """Selects the llama.cpp that the library uses.

    `host` is the module llama_cpp, a library that ctypes has loaded, or the path of one. Existing
    samplers keep the host that they were made with. NoHostError if it is not a llama.cpp.
    """
    global _bound
    found = _library_of(host)
    check(library.llama_sieve_bind_host(found._handle))
    # Kept, so that it stays loaded as long as samplers may call it.
    _bound = found
    return found


def bound_host() -> ctypes.CDLL:
    """Returns the llama.cpp in use: the bound one, or llama-cpp-python's if that was imported and
    none was bound."""
    if _bound is not None:
        return _bound
    module = sys.modules.get("llama_cpp")
    if module is None:
        raise NoHostError(
            "no llama.cpp is bound: import llama_cpp, or name one by llama_sieve.bind_host", -2
        )
    return bind_host(module)


def attach() -> int:
    """Loads the preload library into this process, as LD_PRELOAD would.

    The process's imports of llama.cpp's sampler functions are redirected to this library. Call it
    when llama.cpp is loaded, and again when another library that uses it has been loaded.
    llama-cpp-python does not import these functions but looks them up by ctypes: use `patch` for
    it. Returns the number of imports that were newly redirected. NoHostError if no llama.cpp is
    loaded as a shared library, NotFoundError if this system has no preload library: it is for Linux
    on x86-64 and aarch64, and for Windows on x86-64.
    """
    return check(library.llama_sieve_attach(0))


def detach() -> int:
    """Undoes `attach`: samplers made from now on are llama.cpp's. Existing samplers of this library
    keep working.

    Returns the number of imports that were restored, 0 if nothing was attached. BusyError if
    another thread does not return from a call that samples.
    """
    return check(library.llama_sieve_detach())


@dataclass(frozen=True)
class Verdict:
    """The result of comparing a host's sampler with this library's."""

    kind: str
    equal: bool
    reason: str
    """Empty if they are equal; otherwise the difference, or why they could not be compared."""
    code: int
    """0, LLAMA_SIEVE_CERTIFY_* of llama_sieve.h, or a negative LLAMA_SIEVE_ERROR_*."""

    def __bool__(self) -> bool:
        return self.equal


def certify(kind: str, build: Optional[int] = None) -> Verdict:
    """Compares this library's sampler of a kind ("top-k") with the bound host's own, bit for bit.

    `build` is the host's build number, needed if the arguments of its constructors depend on it and
    it cannot be determined. LLAMA_SIEVE_HOST takes precedence, and a number that the host's exports
    rule out is ignored.
    """
    bound_host()
    number = 0 if build is None else int32(index(build), "build")
    code = library.llama_sieve_certify_build(text_for_c(kind, "kind"), number)
    reason = last_error() if code else ""
    if code == 0:
        return Verdict(kind, True, "", code)
    if kind not in KINDS:
        raise InvalidError(reason, code)
    return Verdict(kind, False, reason or f"code {code}", code)


def profile() -> str:
    """Returns the profile of the bound host, which describes how its build computes, in the form of
    LLAMA_SIEVE_PROFILE."""
    bound_host()
    text: bytes = library.llama_sieve_host_profile()
    return text.decode()


def unknown_build() -> str:
    """Returns the reason why the build of the bound host is unknown; "" if it is known."""
    # A kind that is compared only if the build is known, since its arguments include a pointer.
    kind = "logit-bias"
    verdict = certify(kind)
    return verdict.reason.split(f"{kind}: ")[-1] if verdict.code == CERTIFY_ARGUMENTS else ""


def pointer(thing: Any, attribute: str) -> int:
    """Returns the address in an integer, a ctypes pointer, or an object that has one of these as an
    attribute."""
    found = getattr(thing, attribute, thing)
    if isinstance(found, ctypes.c_void_p):
        found = found.value
    elif isinstance(found, ctypes._Pointer):
        found = ctypes.cast(found, ctypes.c_void_p).value
    try:
        address = index(found)
    except TypeError:
        raise InvalidError(
            f"{type(thing).__name__} is no pointer, and has none as {attribute}"
        ) from None
    if address == 0:
        raise InvalidError(f"the {attribute} is NULL")
    if isinstance(found, bool) or not 0 < address < 2**64:
        raise InvalidError(f"{found} is no address of a {attribute}")
    return address


def host_function(name: str, restype: Any, *argtypes: Any, of: Optional[ctypes.CDLL] = None) -> Any:
    """Returns a function of a host, independent of llama-cpp-python's declaration of it.

    `of` is the host that an object was made with; the default is the bound one.
    """
    host = of or bound_host()
    try:
        address = ctypes.cast(getattr(host, name), ctypes.c_void_p).value
    except AttributeError:
        raise Error(f"this llama.cpp has no {name}") from None
    assert address is not None
    return ctypes.CFUNCTYPE(restype, *argtypes)(address)
