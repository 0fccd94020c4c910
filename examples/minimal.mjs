// The tokens of llama.cpp's default chain with seed 42, from the raw logits of a made-up model.
// cargo build --release && npm install koffi && node examples/minimal.mjs
// Prints: 739 240 529 330 589 405 499 450
import koffi from "koffi";

const library = koffi.load("target/release/libllama_sieve.so");
koffi.struct("llama_sieve_params", {
    struct_size: "size_t", temperature: "float", top_k: "int32_t", top_p: "float", min_p: "float",
    typical_p: "float", top_n_sigma: "float", min_keep: "size_t", penalty_last_n: "int32_t",
    penalty_repeat: "float", penalty_freq: "float", penalty_present: "float", seed: "uint64_t",
    mode: "int", rng: "int", method: "int", order: "int", bias: "void *", n_bias: "size_t",
});
const defaults = library.func("llama_sieve_params llama_sieve_default_params()");
const create = library.func("void * llama_sieve_new(const llama_sieve_params * params)");
const sample = library.func("int llama_sieve_sample(void * sieve, float * logits, int n_vocab)");
const accept = library.func("void llama_sieve_accept(void * sieve, int token)");

const sieve = create({ ...defaults(), seed: 42 });
for (let n = 0, token = 0; n < 8; n++) {
    const logit = (_, i) => (((i + token) * 7919) % 1024) / 16; // This is the model.
    token = sample(sieve, Float32Array.from({ length: 1000 }, logit), 1000);
    accept(sieve, token);
    process.stdout.write(`${token} `);
}
