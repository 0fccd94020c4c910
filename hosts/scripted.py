"""Models that follow a script: token b comes after token a, with some noise.

A model of random weights never calls a tool. In these models the embedding of each token of the
script points in a direction of its own, and the rows of the output matrix give the largest logits
to the tokens that follow it in the script. All other tokens share a direction that leads back to
the script. The single layer mixes in a little of the earlier text, so that logits depend on all of
it. The vocabulary is a real one, with reserved tokens renamed to the special tokens of a template:
`<think>` is one token, as in the models that the template belongs to.
"""

from __future__ import annotations

import math
import random
import struct
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

import vocabulary

N_EMBD = 128
_N_FF = 64
_N_HEAD = 2

SIGNAL = 18.5
"""The logit of a token that must follow. Those of others have a standard deviation of 3, so that
the largest of 128,256 is about 13."""
_SPREAD = 3.0
# The component that all tokens outside the script share.
_OUTSIDE = 8.0
# Added to the diagonal of the normal equations, because some directions nearly coincide.
_RIDGE = 1e-3

_F32, _F16 = 0, 1
_ONE = 0x3C00
"""The exponent of 1.0 as a 16-bit float."""

Transitions = Sequence[Tuple[int, int]]


class _Matrix:
    """A matrix of random 16-bit floats of either sign, with magnitudes from 2^e up to 2^(e + 1)."""

    def __init__(self, source: random.Random, n_in: int, n_out: int, e: int) -> None:
        self.dimensions = (n_in, n_out)
        size = 2 * n_in * n_out
        repeated = int.from_bytes(struct.pack("<H", 0x83FF) * (n_in * n_out), "little")
        exponent = _ONE + (e << 10)
        exponents = int.from_bytes(struct.pack("<H", exponent) * (n_in * n_out), "little")
        bits = int.from_bytes(source.randbytes(size), "little") & repeated | exponents
        self.data = bytearray(bits.to_bytes(size, "little"))

    def row(self, i: int) -> List[float]:
        n = self.dimensions[0]
        return list(struct.unpack_from(f"<{n}e", self.data, 2 * n * i))

    def set_row(self, i: int, row: Sequence[float]) -> None:
        n = self.dimensions[0]
        struct.pack_into(f"<{n}e", self.data, 2 * n * i, *row)

    def set_column(self, i: int, value: float) -> None:
        stride = 2 * self.dimensions[0]
        for place, byte in enumerate(struct.pack("<e", value)):
            self.data[2 * i + place :: stride] = bytes([byte]) * self.dimensions[1]


def _length(row: Sequence[float]) -> float:
    return math.sqrt(sum(x * x for x in row) / len(row))


def _solved(matrix: List[List[float]], right: List[List[float]]) -> List[List[float]]:
    """Solves linear equations by elimination, for a positive definite matrix."""
    n = len(matrix)
    rows = [matrix[i] + right[i] for i in range(n)]
    for i in range(n):
        scale = 1 / rows[i][i]
        rows[i] = [x * scale for x in rows[i]]
        pivot = rows[i]
        for j in range(n):
            factor = rows[j][i]
            if j != i and factor != 0:
                rows[j] = [x - factor * y for x, y in zip(rows[j], pivot)]
    return [row[n:] for row in rows]


def _write_rows(
    embedding: _Matrix, output: _Matrix, follows: Transitions, entries: Sequence[int]
) -> None:
    """Fits the output rows to the script's transitions, by least squares over all its tokens."""
    counts: Dict[int, Dict[int, int]] = {}
    for a, b in follows:
        counts.setdefault(a, {})
        counts[a][b] = counts[a].get(b, 0) + 1
    embedding.set_column(0, _OUTSIDE)
    states: List[List[float]] = []
    wanted: List[Dict[int, float]] = []
    for token, successors in counts.items():
        row = embedding.row(token)
        row[0] = 0.0
        embedding.set_row(token, row)
        length = _length(row)
        states.append([x / length for x in row])
        total = sum(successors.values())
        wanted.append({b: SIGNAL + math.log(n / total) for b, n in successors.items()})
    outside = [0.0] * N_EMBD
    outside[0] = _OUTSIDE / _length([_OUTSIDE] + [1.53] * (N_EMBD - 1))
    states.append(outside)
    wanted.append({b: SIGNAL for b in entries})
    successors = sorted({b for one in wanted for b in one})
    gain = _SPREAD / (1.53 * math.sqrt(N_EMBD))
    squares = [[sum(s[i] * s[j] for s in states) for j in range(N_EMBD)] for i in range(N_EMBD)]
    for i in range(N_EMBD):
        squares[i][i] += _RIDGE * len(states)
    right = [
        [sum(s[i] * w.get(b, 0.0) for s, w in zip(states, wanted) if b in w) for b in successors]
        for i in range(N_EMBD)
    ]
    columns = _solved(squares, right)
    for k, b in enumerate(successors):
        output.set_row(b, [columns[i][k] / gain for i in range(N_EMBD)])


def write(
    path: Path,
    folder: Path,
    marks: Dict[str, bool],
    end: str,
    follows: Transitions,
    entries: Sequence[int],
    context: int,
) -> None:
    """Writes a model. `marks` maps the texts of special tokens to true for a control token."""
    texts, kinds, merges = vocabulary.texts(folder)
    names = renamed(texts, marks)
    for text, i in names.items():
        texts[i] = text
        kinds[i] = vocabulary.CONTROL if marks[text] else vocabulary.USER_DEFINED
    source = random.Random(1)
    n = len(texts)
    embedding = _Matrix(source, N_EMBD, n, 0)
    output = _Matrix(source, N_EMBD, n, 0)
    _write_rows(embedding, output, follows, entries)
    matrices = {"token_embd": embedding, "output": output}
    for name, n_in, n_out, e in (
        ("attn_q", N_EMBD, N_EMBD, -4),
        ("attn_k", N_EMBD, N_EMBD, -4),
        ("attn_v", N_EMBD, N_EMBD, -4),
        ("attn_output", N_EMBD, N_EMBD, -7),
        ("ffn_gate", N_EMBD, _N_FF, -4),
        ("ffn_up", N_EMBD, _N_FF, -4),
        ("ffn_down", _N_FF, N_EMBD, -6),
    ):
        matrices[f"blk.0.{name}"] = _Matrix(source, n_in, n_out, e)
    gain = _SPREAD / (1.53 * math.sqrt(N_EMBD))
    vectors = {"output_norm": gain, "blk.0.attn_norm": 1.0, "blk.0.ffn_norm": 1.0}
    tensors = [
        vocabulary.Tensor(f"{name}.weight", matrix.dimensions, _F16, bytes(matrix.data))
        for name, matrix in matrices.items()
    ]
    tensors += [
        vocabulary.Tensor(
            f"{name}.weight", (N_EMBD,), _F32, struct.pack(f"<{N_EMBD}f", *[value] * N_EMBD)
        )
        for name, value in vectors.items()
    ]
    ends = names | {text: i for i, text in enumerate(texts)}
    values = {
        "general.architecture": vocabulary.string("llama"),
        "llama.vocab_size": vocabulary.number(n),
        "llama.context_length": vocabulary.number(context),
        "llama.embedding_length": vocabulary.number(N_EMBD),
        "llama.block_count": vocabulary.number(1),
        "llama.feed_forward_length": vocabulary.number(_N_FF),
        "llama.attention.head_count": vocabulary.number(_N_HEAD),
        "llama.rope.dimension_count": vocabulary.number(N_EMBD // _N_HEAD),
        "llama.attention.layer_norm_rms_epsilon": vocabulary.real(1e-5),
        "tokenizer.ggml.model": vocabulary.string("gpt2"),
        "tokenizer.ggml.pre": vocabulary.string("llama-bpe"),
        "tokenizer.ggml.tokens": vocabulary.strings(texts),
        "tokenizer.ggml.token_type": vocabulary.numbers(kinds),
        "tokenizer.ggml.merges": vocabulary.strings(merges),
        "tokenizer.ggml.bos_token_id": vocabulary.number(ends["<|begin_of_text|>"]),
        "tokenizer.ggml.eos_token_id": vocabulary.number(ends[end]),
        "tokenizer.ggml.add_bos_token": vocabulary.boolean(False),
    }
    vocabulary.write_gguf(path, values, tensors)


def renamed(texts: Sequence[str], marks: Dict[str, bool]) -> Dict[str, int]:
    """Returns the reserved token that takes each text that the vocabulary lacks."""
    there = set(texts)
    wanted = [text for text in marks if text not in there]
    reserved = (i for i, text in enumerate(texts) if text.startswith("<|reserved_special_token_"))
    return dict(zip(wanted, reserved))
