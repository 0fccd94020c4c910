"""Tests constraints on the text: texts drawn from their masks, and their queries."""

from __future__ import annotations

import array
import collections
import ctypes
import json
import re
from ctypes import c_char_p, c_void_p

import jsonschema
import numpy as np
import pytest

import llama_sieve
from llama_sieve import Choice, Grammar, JsonSchema, Regex, Tags, host, samplers

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Z][a-z]{1,8}$"},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(autouse=True)
def bound(llama_cpp):
    llama_sieve.bind_host(llama_cpp)


def allowed(constraint):
    bits = constraint.mask().view(np.uint8)
    return np.flatnonzero(np.unpackbits(bits, count=constraint.n_vocab, bitorder="little"))


def ends(llm):
    return llm.token_eos()


def drawn(constraint, llm, rng, limit=400):
    """Returns a text of random tokens that the masks allow, up to a possible end; b"" if it is too
    long."""
    constraint.reset()
    tokens = []
    while len(tokens) < limit:
        choices = allowed(constraint)
        ending = ends(llm) in choices
        assert ending == constraint.complete
        if ending and (len(choices) == 1 or rng.random() < 0.3):
            return llm.detokenize(tokens, special=False)
        token = int(rng.choice(choices[choices != ends(llm)]))
        constraint.accept(token)
        assert constraint.error is None
        tokens.append(token)
    return b""


def tokens_of(llm, text):
    return llm.tokenize(text, add_bos=False, special=False)


@pytest.mark.parametrize("pattern", ["[a-z]{3,5}", "(yes|no)[.!]?", "-?[0-9]{1,3}([.][0-9])?"])
def test_what_a_pattern_lets_through_matches_it(llm, rng, pattern):
    constraint = Regex(llm, pattern)
    texts = {drawn(constraint, llm, rng).decode() for _ in range(20)}
    assert len(texts) > 3
    for text in texts:
        assert re.fullmatch(pattern, text), text


@pytest.mark.parametrize("flags", [{}, {"compact": True}, {"any_order": True}])
def test_what_a_schema_lets_through_is_valid(llm, rng, flags):
    constraint = JsonSchema(llm, SCHEMA, **flags)
    texts = {drawn(constraint, llm, rng) for _ in range(30)} - {b""}
    assert len(texts) > 3
    for text in texts:
        jsonschema.validate(json.loads(text), SCHEMA)
        assert not flags.get("compact") or b" " not in text


def test_valid_json_is_accepted_and_invalid_json_is_not(llm):
    constraint = JsonSchema(llm, json.dumps(SCHEMA))
    for age, valid in ((7, True), (120, True), (121, False), ("x", False)):
        text = json.dumps({"name": "Moses", "age": age}).encode()
        draft = [*tokens_of(llm, text), ends(llm)]
        assert (constraint.accepts(draft) == len(draft)) == valid, text


def test_a_schema_as_a_grammars_text_allows_the_same(llm, rng):
    text = llama_sieve.json_schema_to_gbnf(SCHEMA, compact=True)
    ours, read = JsonSchema(llm, SCHEMA, compact=True), Grammar(llm, text)
    for _ in range(40):
        assert read.mask().tolist() == ours.mask().tolist()
        choices = allowed(ours)
        if ours.complete:
            break
        token = int(rng.choice(choices))
        ours.accept(token)
        read.accept(token)
    with pytest.raises(llama_sieve.InvalidError, match="objects"):
        llama_sieve.json_schema_to_gbnf({"type": "objects"})


def test_the_language_of_llama_cpps_converter(llm):
    # llama.cpp's converter ignores "minProperties", orders properties differently, and allows no
    # space before a comma.
    schema = {"properties": {"b": {}, "a": {"type": "null"}}, "required": ["a"], "minProperties": 9}
    constraint = JsonSchema(llm, schema, llama_cpp=True)
    for text, accepted in (
        ('{"a": null, "b": 1}', True),
        ('{"b": 1, "a": null}', False),
        ('{"a": null , "b": 1}', False),
    ):
        draft = [*tokens_of(llm, text.encode()), ends(llm)]
        assert (constraint.accepts(draft) == len(draft)) == accepted, text
    text = llama_sieve.json_schema_to_gbnf(schema, llama_cpp=True)
    assert Grammar(llm, text).mask().tolist() == constraint.mask().tolist()
    with pytest.raises(llama_sieve.InvalidError, match="LLAMA_CPP.*ANY_ORDER"):
        JsonSchema(llm, schema, llama_cpp=True, any_order=True)


def test_a_model_of_pydantics_is_a_schema(llm):
    class Model:
        @classmethod
        def model_json_schema(cls):
            return SCHEMA

    class Adapter:
        def json_schema(self):
            return SCHEMA

    masks = [JsonSchema(llm, schema).mask().tolist() for schema in (SCHEMA, Model, Adapter())]
    assert masks[0] == masks[1] == masks[2]


def test_a_choice_gives_each_value_and_nothing_else(llm, rng):
    values = ["Moses", "Aaron", "Aaronic", "the LORD"]
    constraint = Choice(llm, values)
    assert {drawn(constraint, llm, rng).decode() for _ in range(60)} == set(values)


def test_a_grammar_allows_what_llama_cpps_own_allows(llm, llama_cpp, rng):
    text = 'root ::= "In the " ("beginning" | "end") [.,]? item*\nitem ::= " " [a-z]{1,4}'
    ours = Grammar(llm, text)
    vocab = host.pointer(llm._model.vocab, "vocab")
    make = host.host_function("llama_sampler_init_grammar", c_void_p, c_void_p, c_char_p, c_char_p)
    theirs = samplers.Sampler(make(vocab, text.encode(), b"root"))
    apply = theirs._function("apply", None, c_void_p)
    for _ in range(12):
        data = (llama_cpp.llama_token_data * ours.n_vocab)()
        for token in range(ours.n_vocab):
            data[token].id = token
        array = llama_cpp.llama_token_data_array(
            data=data, size=len(data), selected=-1, sorted=False
        )
        with theirs._used() as pointer:
            apply(pointer, ctypes.addressof(array))
        kept = [item.id for item in data if item.logit != -np.inf]
        assert kept == allowed(ours).tolist()
        token = int(rng.choice([t for t in kept if t != ends(llm)]))
        ours.accept(token)
        theirs.accept(token)


def test_tags_open_spans_in_free_text(llm):
    constraint = Tags(llm, {"tags": [{"begin": "<n>", "regex": "[0-9]+", "end": "</n>"}]})
    free = tokens_of(llm, b"and he said ")
    assert constraint.accepts(free) == len(free)
    constraint.accept(*tokens_of(llm, b"he said <n>"))
    assert constraint.accepts(tokens_of(llm, b"x")) == 0
    draft = tokens_of(llm, b"12</n> and more")
    assert constraint.accepts(draft) == len(draft)


def test_tokens_are_taken_back_and_bytes_are_forced(llm):
    constraint = JsonSchema(llm, SCHEMA, compact=True)
    assert constraint.forced() == b'{"name":"'
    before = constraint.mask().tolist()
    tokens = tokens_of(llm, constraint.forced())
    constraint.accept(*tokens)
    assert constraint.forced() == b"" and constraint.mask().tolist() != before
    constraint.rollback(len(tokens))
    assert constraint.mask().tolist() == before
    with pytest.raises(llama_sieve.InvalidError):
        constraint.rollback(1)
    for wrong in (-1, 2**64):
        with pytest.raises(llama_sieve.InvalidError, match="rollback"):
            constraint.rollback(wrong)


def test_a_token_that_is_not_allowed_ends_it_until_it_is_taken_back(llm):
    constraint = Regex(llm, "a+")
    [wrong] = tokens_of(llm, b"z")
    constraint.accept(wrong)
    assert constraint.error is not None and constraint.error.code == -20
    assert not constraint.complete
    constraint.rollback(1)
    assert constraint.error is None


def test_logits_are_masked_in_place(llm):
    constraint = Choice(llm, ["a", "b"])
    logits = np.zeros(constraint.n_vocab + 3, np.float32)
    constraint.mask_logits(logits)
    assert np.flatnonzero(logits == 0).tolist() == allowed(constraint).tolist()
    assert set(logits.tolist()) == {0.0, -np.inf}


class WithArray:
    """An object with only `__array__`, which returns a copy, or its memory, as a tensor in main
    memory does."""

    def __init__(self, elements, copied):
        self.elements, self.copied = elements, copied

    def __array__(self, dtype=None, copy=None):
        return self.elements.copy() if self.copied else self.elements


@pytest.mark.parametrize("make", [collections.deque, collections.UserList, list, tuple, "copied"])
def test_what_would_be_written_into_a_copy_is_an_error(llm, make):
    constraint = Choice(llm, ["a", "b"])
    make = (lambda elements: WithArray(elements, True)) if make == "copied" else make
    logits, words = make(np.zeros(constraint.n_vocab, np.float32)), make(np.full(64, 7, np.uint32))
    for name, call in (
        ("logits", lambda: constraint.mask_logits(logits)),
        ("mask", lambda: constraint.mask(words)),
    ):
        with pytest.raises(TypeError, match=f"{name}: .* would be copied; give a numpy array"):
            call()


def test_what_shares_its_memory_is_written_in_place(llm):
    constraint = Choice(llm, ["a", "b"])
    expected = np.zeros(constraint.n_vocab, np.float32)
    constraint.mask_logits(expected)
    numbers = np.zeros(constraint.n_vocab, np.float32)
    for shared in (
        WithArray(numbers, False),
        array.array("f", numbers),
        memoryview(numbers.copy()),
        (ctypes.c_float * numbers.size)(),
    ):
        constraint.mask_logits(shared)
        written = shared.elements if isinstance(shared, WithArray) else shared
        assert list(written) == expected.tolist()


def test_masks_are_written_in_place(llm):
    constraint = Choice(llm, ["a", "b"])
    mask = constraint.mask()
    for kind in (np.uint32, np.int32):
        out = np.full(mask.size + 2, 7, kind)
        assert constraint.mask(out) is out
        assert out[:-2].view(np.uint32).tolist() == mask.tolist() and not out[-2:].any()
    short = np.zeros(1, np.uint32)
    assert constraint.mask(short).tolist() == mask[:1].tolist()


def test_bad_arguments_are_errors_in_words(llm):
    constraint = Choice(llm, ["a"])
    fixed = constraint.mask()
    fixed.flags.writeable = False
    for call, match in (
        (lambda: Regex(llm, "a\0b"), "NUL"),
        (lambda: Regex(llm, "(a"), "pattern|regex"),
        (lambda: Choice(llm, []), "no value"),
        (lambda: Grammar(llm, "root ::= x"), "x"),
        (lambda: JsonSchema(llm, {"$ref": "http://example.com/a"}), "example.com"),
        (lambda: JsonSchema(llm, False), "value"),
        (lambda: Tags(llm, {"tags": [{}]}), "begin"),
        (lambda: Regex(0, "a"), "NULL"),
        (lambda: Regex("x", "a"), "no pointer"),
        (lambda: constraint.mask(np.zeros(4, np.float32)), "uint32"),
        (lambda: constraint.mask(np.zeros((2, 2), np.uint32)), "one dimension"),
        (lambda: constraint.mask(fixed), "written"),
        (lambda: constraint.mask(np.zeros(65, np.uint8)[1:].view(np.uint32)), "aligned"),
        (lambda: constraint.mask([np.uint32(0)] * 64), "list"),
        (lambda: constraint.mask_logits(np.zeros(8193, np.uint8)[1:].view(np.float32)), "aligned"),
        (lambda: constraint.mask_logits(np.zeros(4)), "float32"),
        (lambda: constraint.mask_logits([np.float32(1)] * 2048), "a list would be copied"),
    ):
        with pytest.raises(llama_sieve.InvalidError, match=match):
            call()
    constraint.close()
    with pytest.raises(llama_sieve.InvalidError, match="closed"):
        constraint.mask()


def test_a_copy_goes_on_alone(llm):
    constraint = Choice(llm, ["ab", "cd"])
    [a] = tokens_of(llm, b"a")
    constraint.accept(a)
    other = constraint.clone()
    assert isinstance(other, Choice) and other.mask().tolist() == constraint.mask().tolist()
    other.reset()
    assert other.mask().tolist() != constraint.mask().tolist()


def test_it_constrains_a_chain(llm, rng):
    constraint = Choice(llm, ["Moses", "Aaron"])
    chain = llama_sieve.Chain(constraint, samplers.temp(1.0), samplers.dist(3))
    tokens = []
    while True:
        logits = rng.normal(0, 3, constraint.n_vocab).astype(np.float32)
        token = chain.sample(logits)
        if token == ends(llm):
            break
        chain.accept(token)
        tokens.append(token)
    assert llm.detokenize(tokens) in (b"Moses", b"Aaron")
    llama_sieve.forget_vocab(llm)


def logits_for(llm, rng, texts):
    """Returns random logits that favour the tokens of one of the texts."""
    logits = np.full(llm.n_vocab(), -20, np.float32)
    logits[rng.integers(0, len(logits), 40)] = 0
    logits[tokens_of(llm, texts[rng.integers(len(texts))].encode())] = 5
    return logits


def test_a_banned_text_never_appears(llm, rng):
    texts = ["the LORD", " of ", "And ", "unto Moses"]
    for fold_case in (False, True):
        ban = llama_sieve.BanStrings(llm, texts, fold_case=fold_case)
        assert ban.rewind() == 0
        written, rewinds = b"", set()
        with llama_sieve.Chain(ban, samplers.dist(1)) as chain:
            for _ in range(400):
                token = chain.sample(logits_for(llm, rng, texts))
                chain.accept(token)
                written += llm.detokenize([token], special=False)
                rewinds.add(ban.rewind())
        read = written.lower() if fold_case else written
        for text in texts:
            text = text.lower() if fold_case else text
            assert text.encode() not in read
        assert len(rewinds) > 1
    with pytest.raises(llama_sieve.InvalidError, match="text 1 is empty"):
        llama_sieve.BanStrings(llm, ["a", ""])


@pytest.mark.parametrize("fold_case", [False, True])
def test_a_banned_expression_never_matches(llm, rng, fold_case):
    patterns = [r"M[a-z]+s", r"the (LORD|king)", r"[0-9]{2}"]
    reads = re.compile("|".join(patterns), re.IGNORECASE if fold_case else 0)
    texts = ["Moses", "MOSES", "the LORD", "the king", "12", "Mars", "the lord"]
    ban = llama_sieve.BanStrings(llm, patterns, fold_case=fold_case, regex=True)
    written, n_wanted = "", 0
    with llama_sieve.Chain(ban, samplers.dist(1)) as chain:
        for _ in range(400):
            token = chain.sample(logits_for(llm, rng, texts))
            chain.accept(token)
            text = llm.detokenize([token], special=False).decode("latin-1")
            n_wanted += text.isalpha()
            written += text
            assert reads.search(written[-100:]) is None
    assert n_wanted > 50
    with pytest.raises(llama_sieve.InvalidError, match="text 0"):
        llama_sieve.BanStrings(llm, ["a$"], regex=True)


@pytest.mark.parametrize("fold_case", [False, True])
def test_begun_texts_are_biased_by_their_share(llm, rng, fold_case):
    texts, bias = ["the LORD", "unto Moses", "thereof"], -6.0
    pieces = [llm.detokenize([token], special=False) for token in range(llm.n_vocab())]
    as_read = bytes.upper if fold_case else bytes
    wanted = [as_read(text.encode()) for text in texts]

    def share(written, piece):
        both, n = as_read(written + piece), len(written)
        if any(both.find(text, max(0, n - len(text) + 1)) >= 0 for text in wanted if piece):
            return 1
        if not piece:
            return 0
        begun = range(len(piece) + 1, max(map(len, wanted)))
        matched = [(m, text) for text in wanted for m in begun if both.endswith(text[:m])]
        return max((m / len(text) for m, text in matched if m < len(text)), default=0)

    sampler = llama_sieve.BanStringsBias(llm, texts, bias, fold_case=fold_case)
    n_parts = 0
    with llama_sieve.Chain(sampler, samplers.greedy()) as chain:
        written = b""
        for _ in range(60):
            logits = logits_for(llm, rng, texts)
            logits += rng.random(len(logits), np.float32)
            shares = np.array([share(written, piece) for piece in pieces])
            token = chain.sample(logits)
            assert token == np.argmax(logits + (bias * shares).astype(np.float32))
            n_parts += shares.max() > 0
            # The texts go on in spite of the bias.
            follow = tokens_of(llm, texts[rng.integers(len(texts))].encode())
            for next_token in [token, *follow[: rng.integers(len(follow))]]:
                chain.accept(next_token)
                written += pieces[next_token]
    assert n_parts > 20
    for wrong in (float("nan"), float("-inf")):
        with pytest.raises(llama_sieve.InvalidError, match="bias is"):
            llama_sieve.BanStringsBias(llm, texts, wrong)


def test_other_types_are_no_texts(llm):
    for use, says in (
        (lambda: Choice(llm, "yes"), "values: one text is given"),
        (lambda: llama_sieve.BanStrings(llm, "the"), "bans: one text is given"),
        (lambda: Choice(llm, ["a", 0]), "value is of type int, neither str nor bytes"),
        (lambda: Regex(llm, [97]), "pattern is of type list"),
        (lambda: Grammar(llm, False), "grammar is of type bool"),
    ):
        with pytest.raises(llama_sieve.InvalidError, match=says):
            use()
