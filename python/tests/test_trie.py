"""Tests the token trie, alone and in a chain of llama-cpp-python."""

from __future__ import annotations

import pytest

import llama_sieve
from llama_sieve import trie

VALUES = {"ab": [5, 6], "abc": [5, 6, 7], "x": [9, 10, 11]}


@pytest.fixture
def constraint(llama_cpp):
    llama_sieve.bind_host(llama_cpp)
    made = llama_sieve.TokenTrie(trie.payload(VALUES))
    yield made
    made.close()


def test_what_may_follow_follows_what_came(constraint):
    assert constraint.active and constraint.leaf is None
    assert constraint.allowed().tolist() == [5, 9]
    assert constraint.forced().tolist() == []
    constraint.accept(9)
    assert constraint.forced().tolist() == [10, 11]
    constraint.accept(10, 11)
    assert not constraint.active and constraint.leaf == "x"
    constraint.activate("value")
    assert constraint.allowed().tolist() == [5, 9]
    constraint.clear()
    assert not constraint.active


def test_bad_constraints_are_errors_and_change_nothing(constraint):
    with pytest.raises(llama_sieve.InvalidError, match="line 1 column 1"):
        constraint.set("{")
    with pytest.raises(llama_sieve.NotFoundError, match="nowhere"):
        constraint.activate("nowhere")
    assert constraint.allowed().tolist() == [5, 9]
    constraint.set({"descriptors": [{"path": "p", "leaves": [{"name": "n", "tokens": [3]}]}]})
    assert constraint.forced().tolist() == [3]
    before = llama_sieve.trie_cache().hits
    constraint.set(trie.payload(VALUES))
    assert llama_sieve.trie_cache().hits == before + 1
    constraint.close()
    with pytest.raises(llama_sieve.InvalidError, match="closed"):
        constraint.release()


def test_tokens_outside_of_the_vocabulary_are_refused(llm):
    vocab = llm._model.vocab
    with pytest.raises(llama_sieve.InvalidError, match="999999"):
        llama_sieve.TokenTrie(trie.payload({"far": [999_999]}), vocab=vocab)


def test_a_model_says_one_of_the_values(llm, llama_cpp):
    names = ["Moses", "Aaron", "David"]
    tokens = {name: llm.tokenize(f" {name}".encode(), add_bos=False) for name in names}
    internals = llama_cpp._internals
    prompt = llm.tokenize(b"And the LORD said unto")
    for seed in range(5):
        chain = internals.LlamaSampler()
        constraint = llama_sieve.TokenTrie(trie.payload(tokens), vocab=llm._model.vocab)
        constraint.add_to(chain)
        chain.add_temp(0.8)
        chain.add_dist(seed)
        llm.reset()
        llm.eval(prompt)
        said = []
        while constraint.active:
            said.append(chain.sample(llm._ctx, -1))
            llm.eval([said[-1]])
        assert constraint.leaf in names
        assert said == tokens[constraint.leaf]
        chain.close()
