// The tokens of llama.cpp's default chain with seed 42, from the raw logits of a made-up model.
// npm run build --prefix node && npm install --no-save ./node && node examples/minimal.mjs
// Prints: 739 240 529 330 589 405 499 450
import { Sieve } from "llama-sieve";

const sieve = new Sieve({ seed: 42 });
for (let n = 0, token = 0; n < 8; n++) {
    const logit = (_, i) => (((i + token) * 7919) % 1024) / 16; // This is the model.
    token = sieve.sample(Float32Array.from({ length: 1000 }, logit));
    sieve.accept(token);
    process.stdout.write(`${token} `);
}
