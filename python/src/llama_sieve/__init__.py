"""llama.cpp's samplers, faster, with the same tokens.

`Sieve` samples from raw logits in numpy arrays; `entropy`, `surprisal` and `Perplexity` measure
them; `TokenTrie` lets only a set of values through; `patch()` makes llama-cpp-python sample with
all this. `python -m llama_sieve` runs other programs with it, and tells what it would do for them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._arrays import CANDIDATE as CANDIDATE
    from ._library import (
        BusyError as BusyError,
    )
    from ._library import (
        Error as Error,
    )
    from ._library import (
        InternalError as InternalError,
    )
    from ._library import (
        InvalidError as InvalidError,
    )
    from ._library import (
        NoCandidateError as NoCandidateError,
    )
    from ._library import (
        NoHostError as NoHostError,
    )
    from ._library import (
        NoLogitsError as NoLogitsError,
    )
    from ._library import (
        NotFoundError as NotFoundError,
    )
    from ._library import (
        StateError as StateError,
    )
    from ._library import (
        last_error as last_error,
    )
    from ._library import (
        set_log as set_log,
    )
    from ._library import (
        simd as simd,
    )
    from ._library import (
        version as version,
    )
    from .host import KINDS as KINDS
    from .host import Verdict as Verdict
    from .host import bind_host as bind_host
    from .host import certify as certify
    from .metrics import (
        Perplexity as Perplexity,
    )
    from .metrics import (
        candidates_entropy as candidates_entropy,
    )
    from .metrics import (
        candidates_surprisal as candidates_surprisal,
    )
    from .metrics import (
        entropy as entropy,
    )
    from .metrics import (
        surprisal as surprisal,
    )
    from .patching import Patch as Patch
    from .patching import patch as patch
    from .patching import unpatch as unpatch
    from .sieve import (
        RANDOM_SEED as RANDOM_SEED,
    )
    from .sieve import (
        BatchError as BatchError,
    )
    from .sieve import (
        Method as Method,
    )
    from .sieve import (
        Mode as Mode,
    )
    from .sieve import (
        Order as Order,
    )
    from .sieve import (
        Params as Params,
    )
    from .sieve import (
        Rng as Rng,
    )
    from .sieve import (
        Sieve as Sieve,
    )
    from .sieve import (
        Stats as Stats,
    )
    from .sieve import (
        greedy as greedy,
    )
    from .sieve import (
        sample_batch as sample_batch,
    )
    from .sieve import (
        top_candidates as top_candidates,
    )
    from .trie import TokenTrie as TokenTrie
    from .trie import trie_cache as trie_cache

# Loaded when they are first asked for: without numpy, patching and running still work.
_WHERE = {
    "_arrays": "CANDIDATE",
    "_library": "BusyError Error InternalError InvalidError NoCandidateError NoHostError "
    "NoLogitsError NotFoundError StateError last_error set_log simd version",
    "host": "KINDS Verdict bind_host certify",
    "metrics": "Perplexity candidates_entropy candidates_surprisal entropy surprisal",
    "patching": "Patch patch unpatch",
    "sieve": "RANDOM_SEED BatchError Method Mode Order Params Rng Sieve Stats greedy "
    "sample_batch top_candidates",
    "trie": "TokenTrie trie_cache",
}
_MODULE_OF = {name: module for module, names in _WHERE.items() for name in names.split()}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
