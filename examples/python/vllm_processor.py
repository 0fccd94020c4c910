"""JSON by a schema, request by request, in vLLM: a logits processor of its V1 interface.

    vllm serve MODEL --logits-processors vllm_processor:Constrained

with this file on PYTHONPATH, and LLAMA_SIEVE_VOCAB naming a GGUF file of the same model, of which
no more than the vocabulary is read. A request passes its schema in `vllm_xargs`, or, in Python, by
`SamplingParams(extra_args={"json_schema": '{"type": "object"}'})`. vLLM has structured output of
its own; this example shows how to use our constraints in an engine whose batches change.

The interface is that of `vllm.v1.sample.logits_processor` (vLLM 0.10 to 0.31, later ones with
VLLM_USE_V2_MODEL_RUNNER=0). The class also works without vLLM, with any caller.
"""

import os

import llama_cpp
import numpy as np

from llama_sieve import JsonSchema, json_schema_to_gbnf

try:
    from vllm.v1.sample.logits_processor import LogitsProcessor
except ImportError:
    LogitsProcessor = object


class Constrained(LogitsProcessor):
    @classmethod
    def validate_params(cls, params):
        """Rejects an invalid schema with a ValueError when the request is made, instead of in the
        engine."""
        schema = (params.extra_args or {}).get("json_schema")
        if schema is not None:
            json_schema_to_gbnf(schema)

    def __init__(self, vllm_config, device, is_pin_memory):
        path = os.environ["LLAMA_SIEVE_VOCAB"]
        self.vocab = llama_cpp.Llama(path, vocab_only=True, verbose=False)
        # For each row: the constraint, the list to which vLLM appends the request's tokens, and how
        # many of these the constraint has accepted.
        self.rows = {}

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        if batch_update is None:
            return
        for row in batch_update.removed:
            self.rows.pop(row, None)
        for row, params, _prompt, output in batch_update.added:
            self.rows.pop(row, None)
            schema = (params.extra_args or {}).get("json_schema")
            if schema is not None:
                self.rows[row] = [JsonSchema(self.vocab, schema, compact=True), output, 0]
        for source, target, direction in batch_update.moved:
            moved, other = self.rows.pop(source, None), self.rows.pop(target, None)
            if moved is not None:
                self.rows[target] = moved
            if other is not None and direction.name == "SWAP":
                self.rows[source] = other

    def apply(self, logits):
        for row, state in self.rows.items():
            constraint, output, known = state
            constraint.accept(*output[known:])
            state[2] = len(output)
            words = constraint.mask(np.empty(-(-logits.shape[1] // 32), np.uint32))
            bits = np.unpackbits(words.view(np.uint8), count=logits.shape[1], bitorder="little")
            logits[row, np.flatnonzero(bits == 0)] = -np.inf
        return logits
