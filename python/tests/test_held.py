"""Tests C objects after they were freed, copied or pickled: errors are clear, and freed memory is
not touched.

Code that might read freed memory runs in a separate process, whose allocator overwrites freed
memory.
"""

from __future__ import annotations

import copy
import ctypes
import os
import pickle
import shutil
import subprocess
import sys
import threading
import types

import numpy as np
import pytest
from test_samplers import V, chain_of

import llama_sieve
from llama_sieve import Chain, InvalidError, Perplexity, Sieve, TokenTrie, samplers, trie

VALUES = trie.payload({"ab": [5, 6], "x": [9, 10, 11]})

MAKERS = {
    "sieve": lambda: Sieve(seed=7),
    "perplexity": Perplexity,
    "chain": lambda: Chain(samplers.temp(0.7), samplers.dist(3)),
    "sampler": lambda: samplers.temp(0.7),
    "trie": lambda: TokenTrie(VALUES),
}

# The uses of each object, besides copying.
USES = {
    "sieve": [
        lambda it: it.sample(np.zeros(4, np.float32)),
        lambda it: it.accept(1),
        lambda it: it.reset(),
        lambda it: it.update(top_k=3),
        lambda it: it.candidates(),
        lambda it: it.stats,
        lambda it: it.save(),
        lambda it: it.set_dry_breakers(),
        lambda it: llama_sieve.sample_batch([it], np.zeros((1, 4), np.float32)),
    ],
    "perplexity": [
        lambda it: it.add(1.0),
        lambda it: it.value,
        lambda it: len(it),
        lambda it: it.reset(),
    ],
    "chain": [
        lambda it: it.sample(np.zeros(4, np.float32)),
        lambda it: it.sample_ctx(1),
        lambda it: it.candidates(),
        lambda it: it.accept(1),
        lambda it: it.reset(),
        lambda it: it.names,
        lambda it: samplers.temp(0.5).add_to(it),
        lambda it: llama_sieve.sample_chains([it], np.zeros((1, 4), np.float32)),
    ],
    "sampler": [
        lambda it: it.name,
        lambda it: it.pointer,
        lambda it: it.accept(1),
        lambda it: it.reset(),
        lambda it: it.release(),
        lambda it: it.add_to(Chain()),
        lambda it: Chain(it),
    ],
}
USES["trie"] = [
    *USES["sampler"],
    lambda it: it.set(VALUES),
    lambda it: it.clear(),
    lambda it: it.activate("value"),
    lambda it: it.active,
    lambda it: it.leaf,
    lambda it: it.forced(),
    lambda it: it.allowed(),
]
COPIES = [lambda it: it.clone(), copy.copy, copy.deepcopy]


@pytest.fixture(autouse=True)
def bound(llama_cpp):
    llama_sieve.bind_host(llama_cpp)


def typed(bindings, address):
    """Returns the address as a pointer for llama-cpp-python."""
    return ctypes.cast(address, ctypes.POINTER(bindings.llama_sampler))


def isolated(program):
    """Runs a program with an allocator that overwrites freed memory at once."""
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "MALLOC_PERTURB_": "165"},
    )
    assert ran.returncode == 0, f"{ran.returncode}: {ran.stderr}"
    return ran.stdout


@pytest.mark.parametrize("kind", MAKERS)
def test_none_is_pickled(kind):
    made = MAKERS[kind]()
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="cannot be pickled: (make|keep)"):
            pickle.dumps(made, protocol)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps({"inside": [made]})


@pytest.mark.parametrize("kind", MAKERS)
def test_after_its_end_every_use_is_an_error(kind):
    made = MAKERS[kind]()
    made.close()
    made.close()
    for use in USES[kind] + COPIES:
        with pytest.raises(InvalidError, match="is closed"):
            use(made)


@pytest.mark.parametrize("kind", MAKERS)
def test_a_second_thread_gets_an_error(kind):
    made = MAKERS[kind]()
    made._take()
    for use in [made.close, made.reset]:
        with pytest.raises(llama_sieve.BusyError):
            use()
    made._lock.release()
    made.reset()


@pytest.mark.parametrize("duplicate", COPIES)
@pytest.mark.parametrize("kind", MAKERS)
def test_a_copy_has_a_life_of_its_own(kind, duplicate):
    made = MAKERS[kind]()
    other = duplicate(made)
    assert type(other) is type(made) and other._address != made._address
    made.close()
    other.reset()
    other.close()


def test_copies_are_llama_cpps_clones(llama_cpp, rng):
    b = llama_cpp.llama_cpp
    ours, theirs = samplers.dist(11), b.llama_sampler_init_dist(11)
    logits = rng.normal(0, 3, V).astype(np.float32)

    def drawn(sampler):
        data = np.zeros(V, llama_sieve.CANDIDATE)
        data["id"], data["logit"] = np.arange(V), logits
        array = b.llama_token_data_array(
            data=data.ctypes.data_as(b.llama_token_data_p), size=V, selected=-1
        )
        b.llama_sampler_apply(typed(b, sampler), ctypes.byref(array))
        return array.selected

    assert [drawn(ours.pointer) for _ in range(3)] == [drawn(theirs) for _ in range(3)]
    twin, clone = copy.deepcopy(ours), b.llama_sampler_clone(theirs)
    assert twin.name == ours.name == "dist"
    assert [drawn(twin.pointer) for _ in range(5)] == [drawn(clone) for _ in range(5)]
    b.llama_sampler_free(clone)
    b.llama_sampler_free(theirs)


def test_a_copied_trie_is_one():
    first = TokenTrie(VALUES, compact=True)
    first.accept(9)
    other = copy.copy(first)
    assert other.forced().tolist() == [10, 11] and other._mode == first._mode
    first.clear()
    assert other.active and not first.active
    other.set(trie.payload({"q": [3]}))
    assert other.forced().tolist() == [3]


def test_a_copied_perplexity_has_the_same_tokens():
    first = Perplexity()
    first.add(1.5)
    for other in (copy.copy(first), copy.deepcopy(first), copy.deepcopy([first])[0]):
        assert len(other) == 1 and other.value == first.value
        other.add(2.5)
    assert len(first) == 1
    first.close()
    assert repr(first) == "Perplexity(closed)"


def test_a_subclass_keeps_what_it_has():
    class Named(Sieve):
        pass

    first = Named(seed=3)
    first.title = "mine"
    other = copy.copy(first)
    assert type(other) is Named and other.title == "mine" and other.params == first.params


def test_what_a_chain_has_lives_as_long_as_it(rng):
    member, constraint = samplers.temp(0.5), TokenTrie(VALUES)
    chain = Chain(constraint, member)
    # The chain is kept while one of its members may be used.
    kept = chain
    del chain
    assert member.name == "temp" and constraint.allowed().tolist() == [5, 9]
    with pytest.raises(InvalidError, match="already"):
        member.release()
    twin = copy.copy(member)
    kept.close()
    for use in USES["trie"][:4] + USES["trie"][7:] + COPIES:
        with pytest.raises(InvalidError, match="chain is closed"):
            use(constraint)
    with pytest.raises(InvalidError, match="chain is closed"):
        member.reset()
    assert Chain(twin).names == ["temp"]
    member.close()
    with pytest.raises(InvalidError, match="sampler is closed"):
        member.reset()


def test_what_another_chain_has_lives_as_long_as_that(llama_cpp):
    chain = llama_cpp._internals.LlamaSampler()
    constraint = TokenTrie(VALUES)
    constraint.add_to(chain)
    assert constraint.allowed().tolist() == [5, 9]
    chain.close()
    for use in USES["trie"][:4] + USES["trie"][7:] + COPIES:
        with pytest.raises(InvalidError, match="is closed"):
            use(constraint)


def test_of_a_bare_address_nobody_knows_how_long_it_lives(llama_cpp):
    b = llama_cpp.llama_cpp
    given, released, held = samplers.temp(0.5), samplers.temp(0.5), samplers.temp(0.5)
    chain = chain_of(b, [given])
    b.llama_sampler_free(typed(b, released.release()))
    holder = types.SimpleNamespace(sampler=chain)
    held.add_to(holder)
    assert held.name == "temp"
    for sampler in (given, released):
        for use in USES["sampler"][:4] + COPIES:
            with pytest.raises(InvalidError, match="nobody here knows how long it lives"):
                use(sampler)
    holder.sampler = None
    b.llama_sampler_free(chain)
    with pytest.raises(InvalidError, match="closed"):
        held.reset()


def test_nothing_is_given_away_by_a_chain_that_cannot_be():
    fine, closed = samplers.temp(0.5), samplers.temp(0.5)
    closed.close()
    owned = samplers.temp(0.5)
    chain = Chain(owned)
    for wrong in ([fine, closed], [fine, fine], [fine, owned]):
        with pytest.raises(InvalidError):
            Chain(*wrong)
    assert Chain(fine).names == chain.names == ["temp"]


@pytest.mark.parametrize("address", [0, -1, 2**64, True])
def test_what_is_no_address_is_an_error(address):
    for use in (samplers.Sampler, lambda it: Sieve().sample_ctx(it), samplers.temp(1).add_to):
        with pytest.raises(InvalidError):
            use(address)


def test_candidates_are_the_samplings_of_this_thread(rng):
    chain = Chain(samplers.temp(0.8), samplers.dist(3))
    first, second = (rng.normal(0, 3, 100).astype(np.float32) for _ in range(2))
    chain.sample(first)
    thread = threading.Thread(target=chain.sample, args=(second,))
    thread.start()
    thread.join()
    # The first array may have been freed.
    with pytest.raises(InvalidError, match="another thread"):
        chain.candidates()


def test_each_goes_on_with_the_llama_cpp_that_it_was_made_with(llama_cpp, tmp_path, rng):
    path = tmp_path / "libother.so"
    shutil.copy(llama_cpp.llama_cpp._lib._name, path)
    sampler, chain = samplers.temp(0.5), Chain(samplers.top_k(3))
    other = llama_sieve.bind_host(path)
    assert other._handle != sampler._library._handle
    assert copy.copy(sampler).name == "temp" and chain.names == ["top-k"]
    with pytest.raises(InvalidError, match="different llama.cpp"):
        Chain(sampler)
    assert Chain(samplers.temp(0.5)).names == ["temp"]
    llama_sieve.bind_host(llama_cpp)
    assert Chain(sampler).names == ["temp"]


SETUP = """
import atexit, copy, gc, pickle
late = []
atexit.register(lambda: [use() for use in late])
import llama_cpp, llama_sieve
from llama_sieve import samplers, Chain, Perplexity, Sieve
llama_sieve.bind_host(llama_cpp)
"""


def test_a_copy_outlives_what_it_was_made_of():
    program = (
        SETUP
        + """
temp = samplers.temp(0.5)
other = copy.copy(temp)
del temp
gc.collect()
made = [samplers.penalties(64, 1.2) for _ in range(50)]
print(other.name)
"""
    )
    assert isolated(program) == "temp\n"


def test_what_is_used_while_the_interpreter_ends_is_still_there():
    """Functions that were registered first run at exit after all others."""
    program = (
        SETUP
        + """
objects = [samplers.temp(0.5), Chain(), Perplexity(), Sieve()]
late += [lambda it=it: print(it.reset()) for it in objects]
"""
    )
    assert isolated(program).splitlines() == ["None"] * 4


def test_a_thread_that_goes_on_sampling_behind_the_end_of_the_program():
    program = """
import threading, time
import llama_cpp
import numpy as np
import llama_sieve
from llama_sieve import samplers

llama_sieve.bind_host(llama_cpp)
chain = llama_sieve.Chain(samplers.top_p(0.95), samplers.typical(0.9), samplers.dist(1))
logits = np.random.default_rng(0).normal(0, 3, 128_256).astype(np.float32)

def work():
    while True:
        chain.sample(logits)

threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)
print("the end")
"""
    for _ in range(3):
        assert isolated(program) == "the end\n"


def test_a_child_that_is_forked_while_another_thread_loads_a_module_loads_it():
    program = """
import os, threading, time
import llama_sieve

def load():
    llama_sieve.TokenTrie

thread = threading.Thread(target=load)
thread.start()
time.sleep(0.002)
child = os.fork()
if child == 0:
    llama_sieve.TokenTrie
    os._exit(0)
for _ in range(3000):
    if os.waitpid(child, os.WNOHANG) != (0, 0):
        print("came back")
        break
    time.sleep(0.1)
else:
    os.kill(child, 9)
thread.join()
"""
    for _ in range(3):
        assert isolated(program) == "came back\n"


def test_receivers_of_messages_are_replaced_while_others_are_called():
    """Callbacks are replaced by several threads, and by themselves. C never calls one that no
    longer exists."""
    program = """
import ctypes, sys, threading
import llama_sieve
from llama_sieve import _library

sys.setswitchinterval(1e-5)
heard = 0

def receiver():
    def receive(level, text):
        global heard
        heard += 1
        if heard % 3 == 0:
            llama_sieve.set_log(receiver())
    return receive

def log():
    for _ in range(3000):
        _library.library.eliza_inference_clear_token_trie(ctypes.c_void_p(1))

def replace():
    while not done.is_set():
        llama_sieve.set_log(receiver())

done = threading.Event()
llama_sieve.set_log(receiver())
setters = [threading.Thread(target=replace) for _ in range(2)]
loggers = [threading.Thread(target=log) for _ in range(3)]
for thread in setters + loggers:
    thread.start()
for thread in loggers:
    thread.join()
done.set()
for thread in setters:
    thread.join()
assert heard > 1000, heard
"""
    isolated(program)


def test_modules_are_there_without_being_imported():
    isolated("import llama_sieve; llama_sieve.samplers.top_k; llama_sieve.metrics.entropy")
