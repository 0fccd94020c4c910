"""Adds samplers to each chain of llama-cpp-python's `Llama`."""

from __future__ import annotations

from ctypes import c_char_p, c_int32, c_void_p
from types import ModuleType
from typing import Any, Callable, Dict, List, Mapping, Optional, Union

from . import host, samplers
from ._library import InvalidError
from ._text import listed
from .grammar import Constraint, Grammar
from .samplers import Sampler

Numbers = Mapping[str, Any]
Constrain = Union[str, Callable[[Any], Constraint]]

# The members after which DRY and a grammar are inserted, and those before which XTC is.
_BEFORE_FILTERS = {"penalties", "dry", "logit-bias", "grammar"}
_TEMPERATURES = {"temp", "temp-ext"}


def _made(name: str, make: Callable[..., Sampler], numbers: Numbers, **given: Any) -> Sampler:
    """Returns the sampler with these arguments; InvalidError for an unknown argument."""
    try:
        return make(**{**given, **numbers})
    except TypeError as error:
        raise InvalidError(f"{name}: {error}") from None


def _checked(name: str, numbers: Optional[Numbers]) -> Optional[Dict[str, Any]]:
    if numbers is None:
        return None
    if not isinstance(numbers, Mapping):
        raise InvalidError(
            f"{name}: a mapping of arguments of samplers.{name} is needed, "
            f"this is a {type(numbers).__name__}"
        )
    unknown = [key for key in numbers if not isinstance(key, str)]
    if unknown:
        raise InvalidError(f"{name}: {listed(unknown)} are no names of arguments")
    return dict(numbers)


class Extras:
    """The additional samplers of a patch: see `patch`."""

    def __init__(
        self,
        dry: Optional[Numbers],
        xtc: Optional[Numbers],
        adaptive_p: Optional[Numbers],
        grammar: Optional[Constrain],
    ) -> None:
        self._dry = _checked("dry", dry)
        self._xtc = _checked("xtc", xtc)
        self._adaptive_p = _checked("adaptive_p", adaptive_p)
        if not (grammar is None or isinstance(grammar, str) or callable(grammar)):
            raise InvalidError(
                "grammar: a grammar in GBNF is needed, or a function that makes a constraint of a "
                f"Llama, such as lambda llm: JsonSchema(llm, schema); this is a "
                f"{type(grammar).__name__}"
            )
        self._grammar = grammar

    def _seed(self, llm: Any) -> int:
        return int(llm._seed) & 0xFFFFFFFF

    def _behind_penalties(self, llm: Any) -> List[Sampler]:
        made = []
        if self._dry is not None:
            made.append(_made("dry", samplers.dry, self._dry, vocab=llm._model))
        if self._grammar is not None:
            make = self._grammar
            constraint = Grammar(llm, make) if isinstance(make, str) else make(llm)
            if not isinstance(constraint, Constraint):
                raise InvalidError(
                    "grammar: the function has made no constraint, but a "
                    f"{type(constraint).__name__}"
                )
            made.append(constraint)
        return made

    def _before_temperature(self, llm: Any) -> List[Sampler]:
        if self._xtc is None:
            return []
        return [_made("xtc", samplers.xtc, self._xtc, min_keep=1, seed=self._seed(llm))]

    def _instead_of_dist(self, llm: Any) -> List[Sampler]:
        if self._adaptive_p is None:
            return []
        numbers = self._adaptive_p
        make = samplers.adaptive_p
        return [_made("adaptive_p", make, numbers, decay=0.9, seed=self._seed(llm))]

    def join(self, llm: Any, wrapper: Any) -> None:
        """Adds the samplers to the chain that a Llama has just made, each at its position."""
        chain = _Members(wrapper)
        # Made before anything is moved, so that a failure leaves the chain unchanged.
        early = self._behind_penalties(llm)
        draws = chain.has(_TEMPERATURES) and chain.names[-1] == "dist"
        xtc = self._before_temperature(llm) if draws else []
        last = self._instead_of_dist(llm) if draws else []
        for sampler in [*early, *xtc, *last]:
            sampler._check_free()
        if last:
            chain.drop_last()
        if xtc:
            chain.insert(chain.first_of(_TEMPERATURES), xtc)
        chain.insert(chain.behind(_BEFORE_FILTERS), early)
        chain.insert(len(chain.names), last)


class _Members:
    """The members of a chain of llama-cpp-python."""

    def __init__(self, wrapper: Any) -> None:
        self._chain = host.pointer(wrapper, "sampler")
        function = host.host_function
        self._add = function("llama_sampler_chain_add", None, c_void_p, c_void_p)
        self._remove = function("llama_sampler_chain_remove", c_void_p, c_void_p, c_int32)
        self._free = function("llama_sampler_free", None, c_void_p)
        get = function("llama_sampler_chain_get", c_void_p, c_void_p, c_int32)
        count = function("llama_sampler_chain_n", c_int32, c_void_p)(self._chain)
        name = function("llama_sampler_name", c_char_p, c_void_p)
        # llama-cpp-python remembers the positions of these members, and removes them itself. They
        # have no names.
        customs = [at for at, _ in getattr(wrapper, "custom_samplers", ())]
        self._fixed = max(customs, default=-1) + 1
        found = [b"custom" if i in customs else name(get(self._chain, i)) for i in range(count)]
        # "?top-k" is a sampler that is switched off.
        self.names = [text.decode("utf-8", "replace").lstrip("?") for text in found]

    def has(self, kinds: Any) -> bool:
        return any(name in kinds for name in self.names)

    def first_of(self, kinds: Any) -> int:
        return next(at for at, name in enumerate(self.names) if name in kinds)

    def behind(self, kinds: Any) -> int:
        """Returns the position after the fixed members, and after the members of these kinds that
        follow."""
        at = self._fixed
        while at < len(self.names) and self.names[at] in kinds:
            at += 1
        return at

    def drop_last(self) -> None:
        self._free(self._remove(self._chain, len(self.names) - 1))
        self.names.pop()

    def insert(self, at: int, made: List[Sampler]) -> None:
        """Inserts samplers at a position; later members are removed and added again."""
        if not made:
            return
        names = [sampler.name.lstrip("?") for sampler in made]
        later = [self._remove(self._chain, at) for _ in self.names[at:]]
        for pointer in [*(sampler.release() for sampler in made), *later]:
            self._add(self._chain, pointer)
        self.names[at:at] = names


class Joined:
    """Adds the extras to every chain that a module's `Llama` makes, until `undo`."""

    def __init__(self, module: ModuleType, extras: Extras) -> None:
        self._llama = getattr(module, "Llama", None)
        original = getattr(self._llama, "_init_sampler", None)
        if original is None:
            raise InvalidError(
                f"dry, xtc, adaptive_p and grammar need llama-cpp-python 0.3 or later: "
                f"{module.__name__} has no Llama._init_sampler"
            )
        self._original = original
        self._active = True

        def init_sampler(llm: Any, *arguments: Any, **named: Any) -> Any:
            wrapper = original(llm, *arguments, **named)
            if self._active:
                extras.join(llm, wrapper)
            return wrapper

        self._stand_in = init_sampler
        self._llama._init_sampler = init_sampler  # type: ignore[union-attr]

    def undo(self) -> None:
        # Code that has wrapped it gets the original's chains from now on.
        self._active = False
        if getattr(self._llama, "_init_sampler", None) is self._stand_in:
            self._llama._init_sampler = self._original  # type: ignore[union-attr]
