"""Tests DRY, XTC, adaptive-p and grammars by keyword, in unmodified llama-cpp-python."""

from __future__ import annotations

import ctypes
import json
import re

import pytest

import llama_sieve

PROMPT = "And the LORD said unto the LORD, and the LORD said unto"
DRY = {"multiplier": 2.0, "allowed_length": 1, "last_n": 64}
XTC = {"p": 0.9, "t": 0.02}
ADAPTIVE = {"target": 0.3, "decay": 0.8}
SETTINGS = {"temperature": 1.1, "repeat_penalty": 1.1}


def text(llm, seed=5, **settings):
    answer = llm.create_completion(PROMPT, max_tokens=40, seed=seed, **{**SETTINGS, **settings})
    return answer["choices"][0]["text"]


def built_in(llama_cpp, llm, monkeypatch, **wanted):
    """Returns the text that llama.cpp's own samplers generate in such a chain."""
    b, internals = llama_cpp.llama_cpp, llama_cpp._internals

    def chain(self, top_k, top_p, min_p, typical_p, temp, repeat_penalty, **_):
        made = internals.LlamaSampler()
        made.add_penalties(self._n_vocab, self.last_n_tokens_size, repeat_penalty, 0.0, 0.0)
        if "dry" in wanted:
            words = ["\n", ":", '"', "*"]
            made.add_dry(self._model, 2.0, 1.75, 1, 64, words)
        if "grammar" in wanted:
            grammar = llama_cpp.LlamaGrammar.from_string(wanted["grammar"], verbose=False)
            made.add_grammar(self._model, grammar)
        made.add_top_k(top_k)
        made.add_typical(typical_p, 1)
        made.add_top_p(top_p, 1)
        made.add_min_p(min_p, 1)
        if "xtc" in wanted:
            made.add_xtc(0.9, 0.02, 1, self._seed)
        made.add_temp(temp)
        if "adaptive_p" in wanted:
            last = b.llama_sampler_init_adaptive_p(0.3, 0.8, self._seed)
            b.llama_sampler_chain_add(made.sampler, last)
        else:
            made.add_dist(self._seed)
        return made

    with monkeypatch.context() as changes:
        changes.setattr(llama_cpp.Llama, "_init_sampler", chain)
        return text(llm)


@pytest.mark.parametrize(
    "wanted",
    [
        {"dry": DRY},
        {"xtc": XTC},
        {"adaptive_p": ADAPTIVE},
        {"grammar": "root ::= [a-m ]+"},
        {"dry": DRY, "xtc": XTC, "adaptive_p": ADAPTIVE, "grammar": "root ::= [A-Za-z ,;:]+"},
    ],
    ids=["dry", "xtc", "adaptive-p", "grammar", "all"],
)
def test_the_text_is_that_of_llama_cpps_own_in_such_a_chain(llama_cpp, llm, monkeypatch, wanted):
    plain = text(llm)
    expected = built_in(llama_cpp, llm, monkeypatch, **wanted)
    assert expected != plain
    with llama_sieve.patch(**wanted):
        assert text(llm) == expected
    assert text(llm) == plain


def test_a_constraint_by_a_function(llm):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    made = []

    def constrain(of):
        made.append(llama_sieve.JsonSchema(of, schema, compact=True, closed=True))
        return made[-1]

    with llama_sieve.patch(grammar=constrain):
        for seed in (1, 2):
            found = llm.create_completion(PROMPT, max_tokens=60, seed=seed)["choices"][0]
            if found["finish_reason"] == "stop":
                assert isinstance(json.loads(found["text"])["a"], int)
            else:
                assert re.match(r'\{"a":-?\d*', found["text"])
    assert len(made) == 2


@pytest.mark.parametrize("settings", [{"temperature": 0.0}, {"mirostat_mode": 2}])
def test_without_a_temperature_neither_xtc_nor_adaptive_p_join(llm, settings):
    plain = text(llm, **settings)
    with llama_sieve.patch(xtc=XTC, adaptive_p=ADAPTIVE):
        assert text(llm, **settings) == plain


def test_a_processor_of_the_users_stays_where_it_is(llama_cpp, llm):
    """llama-cpp-python removes the processor by its index before it frees the chain."""

    def only(ids, logits):
        logits[:] = logits
        logits[:100] = -float("inf")
        return logits

    processors = llama_cpp.LogitsProcessorList([only])
    with llama_sieve.patch(dry=DRY, xtc=XTC):
        chain = llm._init_sampler(logits_processor=processors)
        names = names_of(llama_cpp, chain)
        chain.close()
    ours = ["penalties", "dry", "top-k", "typical", "top-p", "min-p", "xtc", "temp", "dist"]
    assert names == ours and len(chain.custom_samplers) == 1


def names_of(llama_cpp, wrapper):
    b = llama_cpp.llama_cpp
    count = b.llama_sampler_chain_n(wrapper.sampler)
    # A user's own sampler has no name.
    own = [at for at, _ in wrapper.custom_samplers]
    found = [i for i in range(count) if i not in own]
    members = [b.llama_sampler_chain_get(wrapper.sampler, i) for i in found]
    name = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)
    name = name(ctypes.cast(b._lib.llama_sampler_name, ctypes.c_void_p).value)
    return [name(member).decode().lstrip("?") for member in members]


@pytest.mark.parametrize(
    "wanted, says",
    [
        ({"dry": 0.8}, "a mapping of arguments of samplers.dry"),
        ({"dry": {3: 1}}, "no names of arguments"),
        ({"xtc": [1, 2]}, "a mapping of arguments of samplers.xtc"),
        ({"grammar": 7}, "a grammar in GBNF"),
    ],
)
def test_what_cannot_be_is_refused_at_once(llama_cpp, wanted, says):
    original = llama_cpp.Llama._init_sampler
    with pytest.raises(llama_sieve.InvalidError, match=says):
        llama_sieve.patch(**wanted)
    assert llama_cpp.Llama._init_sampler is original


@pytest.mark.parametrize(
    "wanted, says",
    [
        ({"dry": {"multiplied": 1}}, "multiplied"),
        ({"adaptive_p": {}}, "target"),
        ({"grammar": "root :="}, "expected .::=."),
        ({"grammar": lambda llm: 3}, "no constraint, but a int"),
        ({"grammar": lambda llm: llama_sieve.samplers.greedy()}, "no constraint, but a Sampler"),
    ],
)
def test_what_cannot_be_made_is_told_by_the_text_that_asks_for_it(llm, wanted, says):
    plain = text(llm)
    with llama_sieve.patch(**wanted), pytest.raises(llama_sieve.InvalidError, match=says):
        text(llm)
    assert text(llm) == plain


def test_a_constraint_that_a_chain_has_is_refused(llm):
    constraint = llama_sieve.Grammar(llm, "root ::= [a-z]+")
    with llama_sieve.patch(grammar=lambda _: constraint):
        chain = llm._init_sampler()
        with pytest.raises(llama_sieve.InvalidError, match="already belongs to a chain|given away"):
            llm._init_sampler()
        chain.close()


def test_only_the_outermost_patch_may_have_any(llama_cpp):
    original = llama_cpp.Llama._init_sampler
    with llama_sieve.patch(dry=DRY):
        with llama_sieve.patch():
            assert llama_cpp.Llama._init_sampler is not original
        with pytest.raises(llama_sieve.InvalidError, match="outermost"):
            llama_sieve.patch(xtc=XTC)
        kept = llama_cpp.Llama._init_sampler
    assert llama_cpp.Llama._init_sampler is original
    assert kept is not original


def test_a_stand_in_that_was_kept_makes_the_plain_chain(llama_cpp, llm):
    with llama_sieve.patch(dry=DRY):
        kept = llama_cpp.Llama._init_sampler
    assert "dry" not in names_of(llama_cpp, kept(llm))
