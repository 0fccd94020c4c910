"""llama.cpp's samplers, faster, with the same tokens.

`Sieve` samples from raw logits in numpy arrays; `entropy`, `surprisal` and `Perplexity` measure
them; `samplers` makes samplers for a llama.cpp chain. `JsonSchema`, `Grammar`, `Regex`, `Choice`,
`Tags` and `TokenTrie` constrain the generated text, and `BanStrings` keeps texts out of it.
`patch()` makes llama-cpp-python use this library's samplers. `python -m llama_sieve` runs other
programs with them, and reports which samplers would be replaced.
"""

from __future__ import annotations

import importlib
import os
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._arrays import (
        CANDIDATE,
    )
    from ._library import (
        BatchError,
        BusyError,
        Error,
        InternalError,
        InvalidError,
        NoCandidateError,
        NoHostError,
        NoLogitsError,
        NotFoundError,
        StateError,
        last_error,
        set_log,
        simd,
        version,
    )
    from .bans import (
        BanStrings,
        BanStringsBias,
    )
    from .chain import (
        Chain,
        sample_chains,
    )
    from .grammar import (
        Choice,
        Constraint,
        Grammar,
        JsonSchema,
        Regex,
        Tags,
        forget_vocab,
        json_schema_to_gbnf,
    )
    from .host import (
        KINDS,
        Verdict,
        attach,
        bind_host,
        certify,
        detach,
    )
    from .metrics import (
        Perplexity,
        candidates_entropy,
        candidates_surprisal,
        entropy,
        surprisal,
    )
    from .patching import (
        Patch,
        Status,
        patch,
        unpatch,
    )
    from .samplers import (
        Sampler,
    )
    from .sieve import (
        RANDOM_SEED,
        Method,
        Mode,
        Order,
        Params,
        Rng,
        Sieve,
        Stage,
        Stages,
        Stats,
        greedy,
        sample_batch,
        top_candidates,
    )
    from .trie import (
        TokenTrie,
        TrieCache,
        trie_cache,
    )

__all__ = [
    "BanStrings",
    "BanStringsBias",
    "BatchError",
    "BusyError",
    "CANDIDATE",
    "Chain",
    "Choice",
    "Constraint",
    "Error",
    "Grammar",
    "InternalError",
    "InvalidError",
    "JsonSchema",
    "KINDS",
    "Method",
    "Mode",
    "NoCandidateError",
    "NoHostError",
    "NoLogitsError",
    "NotFoundError",
    "Order",
    "Params",
    "Patch",
    "Perplexity",
    "RANDOM_SEED",
    "Regex",
    "Rng",
    "Sampler",
    "Sieve",
    "Stage",
    "Stages",
    "StateError",
    "Stats",
    "Status",
    "Tags",
    "TokenTrie",
    "TrieCache",
    "Verdict",
    "attach",
    "bind_host",
    "candidates_entropy",
    "candidates_surprisal",
    "certify",
    "detach",
    "entropy",
    "forget_vocab",
    "greedy",
    "json_schema_to_gbnf",
    "last_error",
    "patch",
    "sample_batch",
    "sample_chains",
    "set_log",
    "simd",
    "surprisal",
    "top_candidates",
    "trie_cache",
    "unpatch",
    "version",
]

# Loaded at first use, so that patching and running work without numpy.
_MODULES = {
    "_arrays": ("CANDIDATE",),
    "_library": (
        "BatchError",
        "BusyError",
        "Error",
        "InternalError",
        "InvalidError",
        "NoCandidateError",
        "NoHostError",
        "NoLogitsError",
        "NotFoundError",
        "StateError",
        "last_error",
        "set_log",
        "simd",
        "version",
    ),
    "bans": ("BanStrings", "BanStringsBias"),
    "chain": (
        "Chain",
        "sample_chains",
    ),
    "grammar": (
        "Choice",
        "Constraint",
        "Grammar",
        "JsonSchema",
        "Regex",
        "Tags",
        "forget_vocab",
        "json_schema_to_gbnf",
    ),
    "host": (
        "KINDS",
        "Verdict",
        "attach",
        "bind_host",
        "certify",
        "detach",
    ),
    "metrics": (
        "Perplexity",
        "candidates_entropy",
        "candidates_surprisal",
        "entropy",
        "surprisal",
    ),
    "patching": (
        "Patch",
        "Status",
        "patch",
        "unpatch",
    ),
    "samplers": ("Sampler",),
    "sieve": (
        "RANDOM_SEED",
        "Method",
        "Mode",
        "Order",
        "Params",
        "Rng",
        "Sieve",
        "Stage",
        "Stages",
        "Stats",
        "greedy",
        "sample_batch",
        "top_candidates",
    ),
    "trie": (
        "TokenTrie",
        "TrieCache",
        "trie_cache",
    ),
}


# Held while a module is loaded. Otherwise a child that is forked meanwhile could wait forever for
# the loading thread.
_loading = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_loading.acquire,
        after_in_parent=_loading.release,
        after_in_child=_loading.release,
    )


def __getattr__(name: str) -> Any:
    with _loading:
        if name in _MODULES and not name.startswith("_"):
            value: Any = importlib.import_module(f".{name}", __name__)
        else:
            module = next((module for module, names in _MODULES.items() if name in names), None)
            if module is None:
                raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
            value = getattr(importlib.import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
