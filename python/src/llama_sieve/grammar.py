"""Constraints on the text: GBNF, JSON Schema, regular expressions, lists of strings, tags.

Each is a sampler for a chain, to be put before every sampler that truncates. Outside a chain it
serves engines that mask their logits themselves: `mask` or `mask_logits`, then `accept`.
"""

from __future__ import annotations

import ctypes
import json
from ctypes import c_char_p, c_int32, c_void_p
from operator import index
from typing import Any, Iterable, Optional, Sequence, Union

import numpy as np
from numpy.typing import NDArray

from . import host
from ._arrays import address, floats, vector
from ._library import (
    Error,
    InvalidError,
    check,
    error_of,
    int32,
    library,
    made,
    text_for_c,
    texts_for_c,
    unsigned,
)
from .samplers import Sampler

Text = Union[str, bytes]

_MAX_MASK_WORDS = 67_108_864
"""LLAMA_SIEVE_GRAMMAR_MAX_MASK_WORDS."""

_DEAD = {
    -20: "a token was accepted that the grammar does not allow",
    -21: "the generation was ended where the grammar does not allow it",
    -22: "the grammar asked for more work than its limits allow",
}


def _json(value: Any) -> bytes:
    """Returns a string unchanged, the JSON of a mapping or a bool, or the JSON Schema of a model or
    TypeAdapter of pydantic's."""
    if isinstance(value, (str, bytes)):
        return text_for_c(value, "JSON")
    for name in ("model_json_schema", "json_schema"):
        if hasattr(value, name):
            value = getattr(value, name)()
    return json.dumps(value).encode()


def _vocabulary(vocab: Any) -> int:
    """Returns the llama_vocab, also from an object with a `model`, such as llama_cpp.Llama."""
    if not hasattr(vocab, "vocab") and hasattr(vocab, "model"):
        get = host.host_function("llama_model_get_vocab", c_void_p, c_void_p)
        return host.pointer(get(host.pointer(vocab, "model")), "vocab")
    return host.pointer(vocab, "vocab")


def _flags(*flags: bool) -> int:
    """Returns the bits LLAMA_SIEVE_JSON_* for compact, closed, any_order, lenient and llama_cpp."""
    return sum(bit for bit, flag in zip((2, 4, 8, 16, 1), flags) if flag)


class Constraint(Sampler):
    """A sampler that allows only tokens after which the text can still match a grammar.

    Compiled constraints are cached in the process, so making one again is cheap. After a token that
    is not allowed the constraint is dead until `reset` or `rollback`: only tokens that end the
    generation are allowed then, and `error` says why. `vocab` is a llama_vocab, or an object that
    has one as `vocab` or a llama_model as `model`, such as a llama_cpp.Llama.
    """

    _kind = "constraint"

    def __init__(self, name: str, vocab: Any, *arguments: Any) -> None:
        """Makes the sampler by `llama_sieve_init_NAME`."""
        host.bound_host()
        pointer = _vocabulary(vocab)
        count = host.host_function("llama_vocab_n_tokens", c_int32, c_void_p)
        self.n_vocab: int = count(pointer)
        """Number of tokens of the vocabulary."""
        super().__init__(made(getattr(library, f"llama_sieve_init_{name}")(pointer, *arguments)))

    def mask(self, out: Optional[Any] = None) -> NDArray[Any]:
        """Returns a bitmap of the allowed tokens: bit t % 32 of word t // 32 is for token t.

        It is written into `out`, a contiguous row of uint32 or int32 of any length: an array, or a
        torch tensor in main memory. Words after the vocabulary's last become 0. If `out` is None,
        the result is a new array.
        """
        words = np.empty(-(-self.n_vocab // 32), np.uint32) if out is None else vector(out, "mask")
        if words.dtype not in (np.uint32, np.int32):
            raise InvalidError(f"mask: uint32 or int32 is needed, this is {words.dtype}")
        if not words.flags.writeable:
            raise InvalidError("mask: the array cannot be written")
        if words.size > _MAX_MASK_WORDS:
            raise InvalidError(f"mask: {words.size} words are more than {_MAX_MASK_WORDS}")
        with self._used() as pointer:
            library.llama_sieve_grammar_mask(pointer, address(words), words.size)
        return words

    def mask_logits(self, logits: Any) -> None:
        """Sets the logits of tokens that are not allowed to minus infinity.

        `logits` is a contiguous row of float32: an array, or a torch tensor in main memory. Logits
        after the vocabulary's last token, which some models have, become minus infinity, too.
        """
        view = floats(logits)
        if not view.flags.writeable:
            raise InvalidError("logits: the array cannot be written")
        words = self.mask(np.empty(-(-view.size // 32), np.uint32))
        allowed = np.unpackbits(words.view(np.uint8), count=view.size, bitorder="little")
        view[allowed == 0] = -np.inf

    @property
    def complete(self) -> bool:
        """True if the text so far matches the whole grammar, so that it may end."""
        with self._used() as pointer:
            complete: bool = library.llama_sieve_grammar_is_complete(pointer)
        return complete

    @property
    def error(self) -> Optional[Error]:
        """The reason why the constraint is dead; None while it is not."""
        with self._used() as pointer:
            code = library.llama_sieve_grammar_error(pointer)
        return Error(_DEAD[code], code) if code in _DEAD else error_of(code) if code else None

    def rollback(self, n_tokens: int) -> None:
        """Takes back the last accepted tokens, at most 1,024, such as a draft that an engine has
        rejected."""
        count = unsigned(index(n_tokens), 64, "rollback")
        with self._used() as pointer:
            check(library.llama_sieve_grammar_rollback(pointer, count))

    def accepts(self, tokens: Sequence[int]) -> int:
        """Returns how many tokens of a draft are allowed, one after the other. Changes nothing."""
        draft = [int32(index(token), "token") for token in tokens]
        array = (c_int32 * len(draft))(*draft)
        with self._used() as pointer:
            allowed: int = library.llama_sieve_grammar_accepts(pointer, array, len(draft))
        return allowed

    def forced(self) -> bytes:
        """Returns the bytes that must follow, whatever tokens spell them; b"" if there is a choice.

        A tokenizer may merge the last bytes with later text. To be exact, tokenize the bytes, and
        let the model sample the last token.
        """
        ask = library.llama_sieve_grammar_forced
        with self._used() as pointer:
            found = (ctypes.c_char * ask(pointer, None, 0))()
            ask(pointer, found, len(found))
        return bytes(found.raw)


class Grammar(Constraint):
    """The text matches a grammar in GBNF, llama.cpp's notation: see docs/grammar.md."""

    def __init__(self, vocab: Any, grammar: Text, root: Text = "root") -> None:
        """`root` names the rule that the complete text matches."""
        super().__init__("grammar", vocab, text_for_c(grammar, "grammar"), text_for_c(root, "root"))


class JsonSchema(Constraint):
    """The text is JSON valid against a schema, drafts 4 to 2020-12: see docs/json-schema.md."""

    def __init__(
        self,
        vocab: Any,
        schema: Any,
        *,
        compact: bool = False,
        closed: bool = False,
        any_order: bool = False,
        lenient: bool = False,
        llama_cpp: bool = False,
    ) -> None:
        """`schema` is a mapping, a bool, JSON in a string, or a model or TypeAdapter of pydantic's.

        `compact` allows no white space. With `closed`, objects whose schema names properties have
        no others, unless the schema says which. `any_order` allows properties in any order. With
        `lenient`, keywords that cannot be enforced are ignored with a warning instead of an
        InvalidError. `llama_cpp`, which excludes the other options, allows the texts of llama.cpp's
        own converter, which llama-server uses for `json_schema` and which enforces less.
        """
        flags = _flags(compact, closed, any_order, lenient, llama_cpp)
        super().__init__("json_schema", vocab, _json(schema), flags)


class Regex(Constraint):
    """The whole text matches a regular expression, in the syntax of Rust's crate regex."""

    def __init__(self, vocab: Any, pattern: Text) -> None:
        super().__init__("regex", vocab, text_for_c(pattern, "pattern"), 0)


class Choice(Constraint):
    """The text is one of some strings, spelled by any tokens. (`TokenTrie` takes specific
    tokens.)"""

    def __init__(self, vocab: Any, values: Iterable[Text]) -> None:
        texts = texts_for_c(values, "value")
        super().__init__("choice", vocab, (c_char_p * len(texts))(*texts), len(texts))


class Tags(Constraint):
    """Free text in which a begin tag opens a span that satisfies a schema, or matches a pattern or
    a grammar.

    This is the form of tool calls: see docs/grammar.md.
    """

    def __init__(self, vocab: Any, description: Any) -> None:
        """`description` is a mapping or JSON in a string.

        `{"tags": [{"begin": "<n>", "regex": "[0-9]+", "end": "</n>"}], "required": False}`
        """
        super().__init__("tags", vocab, _json(description), 0)


def json_schema_to_gbnf(
    schema: Any,
    *,
    compact: bool = False,
    closed: bool = False,
    any_order: bool = False,
    lenient: bool = False,
    llama_cpp: bool = False,
) -> str:
    """Returns the grammar of a schema's texts in GBNF, for a server. No llama.cpp is needed.

    The arguments are those of `JsonSchema`.
    """
    convert = library.llama_sieve_json_schema_to_gbnf
    text, flags = _json(schema), _flags(compact, closed, any_order, lenient, llama_cpp)
    size = convert(text, flags, None, 0)
    if not size:
        raise error_of(library.llama_sieve_last_error_code())
    found = ctypes.create_string_buffer(size)
    convert(text, flags, found, size)
    return found.value.decode()


def forget_vocab(vocab: Any) -> None:
    """Frees the data kept for a vocabulary. Call it before its model is freed.

    Otherwise another model at the same address could be mistaken for it.
    """
    library.llama_sieve_vocab_forget(_vocabulary(vocab))
