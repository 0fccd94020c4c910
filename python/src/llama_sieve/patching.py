"""Makes llama-cpp-python use this library's samplers, and undoes that.

llama-cpp-python looks up llama.cpp's functions through the handle of its own libllama, where
LD_PRELOAD has no effect. So its Python names are rebound to functions of this package. Those for
constructors make this library's sampler if it was found to equal the host's, and the host's own
otherwise.

Equality is tested: before the first sampler of a kind is made, both run on small arrays, and their
results must be equal, bit for bit. Only infill is not tested: a known build suffices. If argument
lists differ between builds (penalties, DRY), the list that llama-cpp-python itself declares
decides. With an unknown list, the host's own sampler is made.
"""

from __future__ import annotations

import ctypes
import importlib
import math
import os
import sys
import threading
from dataclasses import dataclass
from types import ModuleType
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    NoReturn,
    Optional,
    Set,
    Tuple,
)

from . import host
from ._library import InvalidError, error_of, last_error, library
from ._text import listed

if TYPE_CHECKING:
    from .extras import Constrain, Extras, Joined, Numbers

_I32, _U32, _F32, _SIZE = ctypes.c_int32, ctypes.c_uint32, ctypes.c_float, ctypes.c_size_t

# The type for any pointer.
_POINTER = ctypes.c_void_p

Types = Tuple[Any, ...]

# Converts the host's arguments to this library's.
Adapt = Callable[..., Tuple[Any, ...]]


def _same(*arguments: Any) -> Tuple[Any, ...]:
    return arguments


def _old_penalties(last_n: int, repeat: float, freq: float, present: float) -> Tuple[Any, ...]:
    """Adds the size of the vocabulary; 0 means unknown."""
    return 0, last_n, repeat, freq, present


def _old_dry(
    vocab: Any,
    n_ctx: int,
    multiplier: float,
    base: float,
    allowed: int,
    last_n: int,
    *breakers: Any,
) -> Tuple[Any, ...]:
    """Replaces -1, which means the size of the model's context in the host."""
    return (vocab, multiplier, base, allowed, n_ctx if last_n == -1 else last_n, *breakers)


@dataclass(frozen=True)
class Layout:
    """An argument list of some version of a host's constructor."""

    host: Types
    ours: Types
    adapt: Adapt = _same
    build: Optional[int] = None
    """A build with this list, if lists differ between builds or have pointers; otherwise None."""


def _plain(*types: Any) -> List[Layout]:
    return [Layout(types, types)]


_NEW_PENALTIES = (_I32, _I32, _F32, _F32, _F32)
_NEW_DRY = (_POINTER, _F32, _F32, _I32, _I32, _POINTER, _SIZE)

# The newest build that these lists were compared with, that of llama.cpp 0.6.0.
_NEWEST = 11_434

LAYOUTS: Dict[str, List[Layout]] = {
    "greedy": _plain(),
    "dist": _plain(_U32),
    "top-k": _plain(_I32),
    "top-p": _plain(_F32, _SIZE),
    "min-p": _plain(_F32, _SIZE),
    "typical": _plain(_F32, _SIZE),
    "temp": _plain(_F32),
    "temp-ext": _plain(_F32, _F32, _F32),
    "xtc": _plain(_F32, _F32, _SIZE, _U32),
    "top-n-sigma": _plain(_F32),
    "mirostat": _plain(_I32, _U32, _F32, _F32, _I32),
    "mirostat-v2": _plain(_U32, _F32, _F32),
    "penalties": [
        Layout(_NEW_PENALTIES, _NEW_PENALTIES, build=_NEWEST),
        Layout((_I32, _F32, _F32, _F32), _NEW_PENALTIES, _old_penalties, 10_257),
    ],
    "dry": [
        Layout(_NEW_DRY, _NEW_DRY, build=_NEWEST),
        Layout((_POINTER, _I32, *_NEW_DRY[1:]), _NEW_DRY, _old_dry, 10_272),
    ],
    "adaptive-p": _plain(_F32, _F32, _U32),
    "logit-bias": [Layout((_I32, _I32, _POINTER), (_I32, _I32, _POINTER), build=_NEWEST)],
    "infill": [Layout((_POINTER,), (_POINTER,), build=_NEWEST)],
}
"""The argument lists of each kind's constructor, the newest first."""


def _is_pointer(kind: Any) -> bool:
    return isinstance(kind, type) and (
        issubclass(kind, (ctypes._Pointer, ctypes.c_void_p, ctypes.c_char_p))
    )


def _matches(declared: Types, known: Types) -> bool:
    return len(declared) == len(known) and all(
        _is_pointer(d) if k is _POINTER else d is k for d, k in zip(declared, known)
    )


def layout_of(kind: str, declared: Iterable[Any]) -> Optional[Layout]:
    """Returns the argument list that a binding declares for a constructor, if it is known."""
    types = tuple(declared)
    return next((known for known in LAYOUTS[kind] if _matches(types, known.host)), None)


def symbol_of(kind: str) -> str:
    """Returns the constructor's name in the host: for "top-k", llama_sampler_init_top_k."""
    return "llama_sampler_init_" + kind.replace("-", "_")


@dataclass(frozen=True)
class Status:
    """The outcome for one kind of sampler."""

    kind: str
    ours: bool
    reason: str
    """Empty if it is ours; otherwise the reason why the host's own sampler is made."""


class _Constructor:
    """Replaces a constructor of the host."""

    def __init__(self, kind: str, original: Any, verbose: bool) -> None:
        self.kind = kind
        self.original = original
        self.active = True
        self._verbose = verbose
        self._layout = layout_of(kind, original.argtypes or ())
        self._ours: Any = None
        self._status: Optional[Status] = None
        self._lock = threading.Lock()
        for name in ("__name__", "__qualname__", "__doc__", "__module__", "__wrapped__"):
            if hasattr(original, name):
                setattr(self, name, getattr(original, name))

    # The attributes of ctypes functions, for code that reads them.
    @property
    def argtypes(self) -> Any:
        return self.original.argtypes

    @property
    def restype(self) -> Any:
        return self.original.restype

    def status(self) -> Status:
        """Returns the outcome for this kind, which is determined once."""
        with self._lock:
            if self._status is None:
                reason = self._reason()
                self._status = Status(self.kind, not reason, reason)
            return self._status

    def _reason(self) -> str:
        layout = self._layout
        if layout is None:
            return "llama-cpp-python declares an argument list that is not known"
        if self.kind == "infill":
            # It needs a vocabulary, which a trial does not have, so a known build must suffice.
            reason = host.unknown_build()
        else:
            reason = host.certify(self.kind, layout.build).reason
        if reason:
            return reason
        ours = getattr(library, f"llama_sieve_init_{self.kind.replace('-', '_')}")
        self._ours = _function(ours, ctypes.c_void_p, layout.ours)
        return ""

    def __call__(self, *arguments: Any) -> Any:
        made, reason = self._choose(arguments)
        if self._verbose:
            line = f"llama-sieve: patch: {self.kind}: " + (
                f"llama.cpp's own: {reason}" if reason else "ours"
            )
            print(line, file=sys.stderr, flush=True)
        return self.original(*arguments) if reason else made

    def _choose(self, arguments: Types) -> Tuple[Any, str]:
        """Returns this library's sampler, with the result type of the host's constructor, or the
        reason why there is none."""
        if not self.active:
            return None, "the patch was undone"
        status = self.status()
        if not status.ours:
            return None, status.reason
        declared = self.original.argtypes
        if len(arguments) != len(declared):
            return None, "another number of arguments"
        try:
            values = [_converted(kind, value) for kind, value in zip(declared, arguments)]
        except (TypeError, ctypes.ArgumentError):
            return None, "an argument of another type"
        if any(isinstance(value, float) and not math.isfinite(value) for value in values):
            return None, "an argument is not finite"
        assert self._layout is not None
        made = self._ours(*self._layout.adapt(*values))
        if not made:
            return None, last_error() or "ours could not be made"
        restype = self.original.restype
        return (made if restype is ctypes.c_void_p else ctypes.cast(made, restype)), ""


def _function(function: Any, restype: Any, argtypes: Types) -> Any:
    """Returns the function with these types, independent of the types set elsewhere."""
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return ctypes.CFUNCTYPE(restype, *argtypes)(address)


def _converted(declared: Any, value: Any) -> Any:
    """Returns the argument as ctypes would pass it to the host: a number, or a pointer."""
    if not _is_pointer(declared):
        return declared(value).value if not isinstance(value, ctypes._SimpleCData) else value.value
    if value is None or isinstance(value, (int, ctypes.c_void_p)):
        return value
    if isinstance(value, ctypes.Array) or isinstance(value, ctypes._Pointer):
        return ctypes.cast(value, ctypes.c_void_p)
    # byref, c_char_p and the like are converted by ctypes itself.
    return ctypes.cast(declared.from_param(value), ctypes.c_void_p)


class _Forward:
    """Replaces another function of the host, until the patch is undone."""

    def __init__(self, original: Any, ours: Any) -> None:
        self.original = original
        self.active = True
        self._ours = ours
        self.argtypes, self.restype = original.argtypes, original.restype
        for name in ("__name__", "__qualname__", "__doc__", "__module__"):
            if hasattr(original, name):
                setattr(self, name, getattr(original, name))

    def __call__(self, *arguments: Any) -> Any:
        return (self._ours if self.active else self.original)(*arguments)


class _Sample(_Forward):
    """Replaces llama_sampler_sample, and raises an error if no token is left, where the host would
    return a banned token or end the process."""

    def __call__(self, *arguments: Any) -> Any:
        token = super().__call__(*arguments)
        if token < 0 and self.active:
            raise error_of(token)
        return token


def _typed_as(original: Any, name: str) -> Optional[Any]:
    """Returns this library's function `name` with the host's types; None if there is no such
    function."""
    if not hasattr(library, name):
        return None
    return _function(getattr(library, name), original.restype, original.argtypes)


# Other functions of the host, and those of this library that replace them.
_OTHERS = {
    "llama_sampler_get_seed": ("llama_sieve_get_seed", _Forward),
    "llama_sampler_sample": ("llama_sieve_chain_sample", _Sample),
}


def _known(kinds: Optional[Iterable[str]]) -> Set[str]:
    """Returns the requested kinds of samplers. InvalidError for an unknown name."""
    wanted = set(host.KINDS if kinds is None else kinds)
    unknown = wanted - set(host.KINDS)
    if unknown:
        raise InvalidError(f"no sampler of ours is named {listed(sorted(unknown, key=ascii))}")
    return wanted


class Patch:
    """A patch of llama-cpp-python, until `undo`. Also a context manager."""

    def __init__(
        self,
        module: ModuleType,
        kinds: Optional[Iterable[str]],
        verbose: bool,
        extras: Optional[Extras],
    ) -> None:
        wanted = _known(kinds)
        self.module = module
        self._depth = 1
        self._joined: Optional[Joined] = None
        self._stand_ins: Dict[str, Any] = {}
        host.bind_host(module)
        bindings = importlib.import_module(f"{module.__name__}.llama_cpp")
        for kind in host.KINDS:
            original = getattr(bindings, symbol_of(kind), None)
            if kind in wanted and hasattr(original, "argtypes"):
                self._stand_ins[symbol_of(kind)] = _Constructor(kind, original, verbose)
        if self._stand_ins:
            self._stand_for_others(bindings)
        if extras is not None:
            from .extras import Joined

            self._joined = Joined(module, extras)
        for name, stand_in in self._stand_ins.items():
            _replace(module, name, stand_in.original, stand_in)

    def _stand_for_others(self, bindings: ModuleType) -> None:
        for name, (ours, stand_in) in _OTHERS.items():
            original = getattr(bindings, name, None)
            typed = _typed_as(original, ours) if hasattr(original, "argtypes") else None
            if typed is not None:
                self._stand_ins[name] = stand_in(original, typed)

    def status(self) -> List[Status]:
        """Returns the outcome for each kind, which is tested now unless it already was."""
        constructors = [s for s in self._stand_ins.values() if isinstance(s, _Constructor)]
        return [constructor.status() for constructor in constructors]

    @property
    def fused(self) -> bool:
        """True if whole chains are sampled straight from the logits."""
        return "llama_sampler_sample" in self._stand_ins

    def undo(self) -> None:
        """Restores everything. Existing samplers stay unchanged."""
        global _current
        with _changes:
            self._undo()
            if _current is self:
                _current = None

    def _undo(self) -> None:
        if self._joined is not None:
            self._joined.undo()
        for name, stand_in in self._stand_ins.items():
            # Code that has kept or wrapped the stand-in gets the host's own function from now on.
            stand_in.active = False
            _replace(self.module, name, stand_in, stand_in.original)

    def __enter__(self) -> Patch:
        return self

    def __exit__(self, *_: object) -> None:
        with _changes:
            # Another patch may have been made since this one was undone.
            if _current is self:
                unpatch()

    def __reduce_ex__(self, _protocol: Any) -> NoReturn:
        raise TypeError("a Patch can be neither copied nor pickled: call patch() again")


def _replace(module: ModuleType, name: str, old: Any, new: Any) -> None:
    """Rebinds the name in the package and its modules, wherever it refers to the old function."""
    prefix = module.__name__ + "."
    for path, found in list(sys.modules.items()):
        ours = path == module.__name__ or path.startswith(prefix)
        if ours and found is not None and found.__dict__.get(name) is old:
            setattr(found, name, new)


_changes = threading.RLock()
_current: Optional[Patch] = None


def _extras(*wanted: Any) -> Optional[Extras]:
    """Returns the requested additional samplers; None, without importing numpy, if there are
    none."""
    if all(extra is None for extra in wanted):
        return None
    from .extras import Extras

    return Extras(*wanted)


def patch(
    module: Optional[ModuleType] = None,
    *,
    kinds: Optional[Iterable[str]] = None,
    verbose: Optional[bool] = None,
    dry: Optional[Numbers] = None,
    xtc: Optional[Numbers] = None,
    adaptive_p: Optional[Numbers] = None,
    grammar: Optional[Constrain] = None,
) -> Patch:
    """Makes llama-cpp-python use this library's samplers, from the next sampler on: the same text,
    faster.

    `module` is llama_cpp, which is imported if it is not given. Only one module can be patched at a
    time: InvalidError for another. `kinds` limits the patch to some of `KINDS`. `verbose` prints a
    line on stderr for each new sampler; it is the default if the environment variable
    LLAMA_SIEVE_VERBOSE is set to anything but 0. The patch is undone by `unpatch()`, or at the end
    of `with patch():`. Patches nest, and only the outermost has an effect. Functions that were
    imported by name before (`from llama_cpp import llama_sampler_init_top_k`) are not replaced.

    The other arguments add samplers to each chain that `Llama` makes from then on, at the positions
    of llama.cpp's own programs. `dry`, `xtc` and `adaptive_p` are mappings of the arguments that
    `samplers` has for them, such as `dry={"multiplier": 0.8}`; the default seeds are the Llama's.
    XTC, and adaptive-p, which replaces the draw, need a temperature: with `temperature=0` or
    mirostat they have no effect. `grammar` is a text in GBNF, or a function that makes a constraint
    for a Llama: `lambda llm: JsonSchema(llm, schema)`. Only the outermost patch may have any of
    these.

    ImportError without llama-cpp-python, NoHostError if its llama.cpp is older than b4662.
    """
    global _current
    if verbose is None:
        verbose = os.environ.get("LLAMA_SIEVE_VERBOSE", "") not in ("", "0")
    extras = _extras(dry, xtc, adaptive_p, grammar)
    with _changes:
        if module is None:
            module = _current.module if _current else importlib.import_module("llama_cpp")
        if _current is not None:
            _known(kinds)
            if module is not _current.module:
                raise InvalidError(
                    f"{_current.module!r} is patched, and only one can be: unpatch() before "
                    f"{module!r}"
                )
            if extras is not None:
                raise InvalidError(
                    "llama-cpp-python is patched, and dry, xtc, adaptive_p and grammar are for the "
                    "outermost patch: unpatch() before"
                )
            _current._depth += 1
            return _current
        _current = Patch(module, kinds, verbose, extras)
        return _current


def unpatch() -> None:
    """Undoes the last `patch()`. Does nothing if there is none."""
    with _changes:
        if _current is None:
            return
        _current._depth -= 1
        if _current._depth == 0:
            _current.undo()
