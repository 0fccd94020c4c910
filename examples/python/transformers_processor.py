"""JSON by a schema in transformers' `generate`: a LogitsProcessor of ten lines.

    pip install ./python llama-cpp-python; python examples/python/transformers_processor.py

The vocabulary is that of a GGUF file of the same model; no more than its vocabulary is read:

    vocab = llama_cpp.Llama("model.gguf", vocab_only=True)
    processor = Constrained(lambda: JsonSchema(vocab, schema))
    model.generate(**inputs, logits_processor=[processor])

As a program, this file needs no transformers: a loop like that in `generate` calls the processor,
and the scores are those of the model in this repository.
"""

import ctypes
import json
import pathlib
import sys

import llama_cpp
import numpy as np

from llama_sieve import JsonSchema

try:
    from transformers import LogitsProcessor
except ImportError:  # A processor only needs to be callable with ids and scores.
    LogitsProcessor = object


class Constrained(LogitsProcessor):
    """Masks the tokens that a constraint does not allow, with one constraint for each row of the
    batch. Beam search is not supported."""

    def __init__(self, make):
        self.make, self.rows = make, []

    def __call__(self, input_ids, scores):
        for row, ids in zip(self.rows, input_ids):
            row.accept(int(ids[-1]))
        self.rows = self.rows or [self.make() for _ in scores]
        for row, logits in zip(self.rows, scores):
            row.mask_logits(logits)  # In place; for scores in another memory than the processor's,
        return scores  # row.mask() has the bits that are to be taken there.


SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["Moses", "Aaron"]}, "age": {"type": "integer", "maximum": 120}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def main():
    model = str(pathlib.Path(__file__).resolve().parents[2] / "models" / "kjv-tiny.gguf")
    llm = llama_cpp.Llama(model, n_ctx=256, n_threads=1, n_threads_batch=1, verbose=False)
    processor = Constrained(lambda: JsonSchema(llm, SCHEMA, compact=True))
    rng = np.random.default_rng(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    ids = llm.tokenize(b"And the LORD said unto")
    begin = len(ids)
    llm.eval(ids)
    while len(ids) < 200:
        logits = ctypes.cast(llm._ctx.get_logits(), ctypes.POINTER(ctypes.c_float))
        scores = np.ctypeslib.as_array(logits, shape=(1, llm.n_vocab())).copy()
        scores = processor(np.array([ids]), scores)[0].astype(np.float64)
        weights = np.exp(scores - scores.max())
        token = int(rng.choice(len(weights), p=weights / weights.sum()))
        if token == llm.token_eos():
            break
        ids.append(token)
        llm.eval([token])
    print(json.dumps(json.loads(llm.detokenize(ids[begin:], prev_tokens=ids[:begin]))))


if __name__ == "__main__":
    main()
