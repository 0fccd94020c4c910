"""Tests how messages quote foreign texts."""

import pytest

import llama_sieve
from llama_sieve import metrics, patching
from llama_sieve._text import listed, quoted


def test_of_a_long_text_a_message_has_the_beginning():
    assert quoted("a" * 60) == ascii("a" * 60)
    assert quoted("\n" * 61) == ascii("\n" * 60) + "..."
    assert quoted(7) == "7"


def test_of_many_names_a_message_has_a_few():
    assert listed([]) == ""
    assert listed(["a", "b"]) == "'a', 'b'"
    names = [str(number) for number in range(10)]
    assert listed(names) == listed(names[:8]) + " and 2 more"


def test_what_is_refused_is_cut():
    long = "x" * 100_000
    with pytest.raises(llama_sieve.InvalidError) as refused:
        patching._known([f"{number}{long}" for number in range(20)])
    assert len(str(refused.value)) < 1000
    with pytest.raises(llama_sieve.InvalidError) as refused:
        metrics._base(long)
    assert len(str(refused.value)) < 1000
