"""The llama.cpp of this process: which one ours work in, and whether it does what ours do."""

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
"""The kinds of samplers that there are, by the names that llama_sampler_name reports."""

CERTIFY_ARGUMENTS = 8
"""Verdict's code where the host's build, and so the arguments, are not known."""

Host = Union[ctypes.CDLL, ModuleType, str, "os.PathLike[str]"]

_bound: Optional[ctypes.CDLL] = None


def _library_of(host: Host) -> ctypes.CDLL:
    if isinstance(host, ctypes.CDLL):
        return host
    if isinstance(host, ModuleType):
        # llama_cpp, or llama_cpp.llama_cpp.
        inner = getattr(host, "llama_cpp", host)
        found = getattr(inner, "_lib", None)
        if not isinstance(found, ctypes.CDLL):
            raise InvalidError(f"{host.__name__} is not llama-cpp-python: it has no library")
        return found
    return ctypes.CDLL(str(Path(host)))


def bind_host(host: Host) -> ctypes.CDLL:
    """Tells the library which llama.cpp to use.

    `host` is the module llama_cpp, a library that ctypes has loaded, or the path of one. Samplers
    that exist already keep the host they were made with. NoHostError if it is no llama.cpp.
    """
    global _bound
    found = _library_of(host)
    check(library.llama_sieve_bind_host(found._handle))
    # Kept, so that it stays loaded as long as samplers may call it.
    _bound = found
    return found


def bound_host() -> ctypes.CDLL:
    """The llama.cpp that is used; llama-cpp-python's if it was imported and none was bound."""
    if _bound is not None:
        return _bound
    module = sys.modules.get("llama_cpp")
    if module is None:
        raise NoHostError(
            "no llama.cpp is bound: import llama_cpp, or name one by llama_sieve.bind_host", -2
        )
    return bind_host(module)


def attach() -> int:
    """Gives this process the preload library, as if it had come by LD_PRELOAD.

    What its libraries import of llama.cpp's sampler functions is pointed at ours; call it when
    llama.cpp is loaded, and again when a library has come that uses it. llama-cpp-python imports
    nothing, but asks ctypes: for that there is `patch`. Returns the number of imports that were not
    ours yet. NoHostError where no llama.cpp is loaded as a shared library, NotFoundError where this
    system has no preload library.
    """
    return check(library.llama_sieve_attach(0))


def detach() -> int:
    """Undoes `attach`: what is made from now on is llama.cpp's. Samplers of ours that live go on.

    Returns the number of imports that are as they were, 0 where nothing was attached. BusyError
    where another thread does not come out of a call that samples.
    """
    return check(library.llama_sieve_detach())


@dataclass(frozen=True)
class Verdict:
    """Whether a host's sampler does what ours does."""

    kind: str
    equal: bool
    reason: str
    """"" where they are equal; else what differs, or why they could not be compared."""
    code: int
    """0, LLAMA_SIEVE_CERTIFY_* of llama_sieve.h, or a negative LLAMA_SIEVE_ERROR_*."""

    def __bool__(self) -> bool:
        return self.equal


def certify(kind: str, build: Optional[int] = None) -> Verdict:
    """Compares ours with the bound host's own sampler of a kind ("top-k"), bit for bit.

    `build` is the host's build number, where the arguments of its constructors depend on it and it
    cannot be found out; LLAMA_SIEVE_HOST goes first, and a build that the host's exports rule out
    is not believed.
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
    """How the bound host computes, where builds differ, as LLAMA_SIEVE_PROFILE takes it."""
    bound_host()
    text: bytes = library.llama_sieve_host_profile()
    return text.decode()


def unknown_build() -> str:
    """Why it is not known which build the bound host is; "" where it is."""
    kind = "logit-bias"
    verdict = certify(kind)
    # Of any kind whose arguments depend on it.
    return verdict.reason.split(f"{kind}: ")[-1] if verdict.code == CERTIFY_ARGUMENTS else ""


def pointer(thing: Any, attribute: str) -> int:
    """The address in an integer, a pointer of ctypes, or an object that has one as an attribute."""
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
    """A function of a host's, apart from what llama-cpp-python has made of it.

    `of` is the host that an object was made with; otherwise it is the one that is bound.
    """
    host = of or bound_host()
    try:
        address = ctypes.cast(getattr(host, name), ctypes.c_void_p).value
    except AttributeError:
        raise Error(f"this llama.cpp has no {name}") from None
    assert address is not None
    return ctypes.CFUNCTYPE(restype, *argtypes)(address)
