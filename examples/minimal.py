"""The tokens of llama.cpp's default chain with seed 42, from the raw logits of a made-up model.

pip install ./python; python examples/minimal.py

Prints: 739 240 529 330 589 405 499 450
"""

import numpy as np

import llama_sieve

sieve = llama_sieve.Sieve(seed=42)
token = 0
for _ in range(8):
    logits = ((np.arange(1000) + token) * 7919 % 1024 / 16).astype(np.float32)  # This is the model.
    token = sieve.sample(logits)
    sieve.accept(token)
    print(token, end=" ")
