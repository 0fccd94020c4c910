// Lets the model choose one of several values, from Node with koffi.
//
//     cargo build --release
//     cd examples/node && npm install
//     node constrained.mjs --llama-so $LLAMA/build/bin/libllama.so --sieve-so ../../target/release/libllama_sieve.so \
//         --shim-so ./libffi_shim.so --choices "Moses,Aaron,the LORD"
//
// The first lines of examples/ffi_shim.c say how to build libffi_shim.so. koffi can pass structs by
// value, but without the shim their declarations would have to be kept in step with llama.h by
// hand. The paths can also be given in the environment: LLAMA_SO, LLAMA_SIEVE_SO and LLAMA_SHIM_SO.
import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

import { Failure, TRIE_COMPACT, TRIE_SAMPLED, decode, forced, loadKoffi, loadLlama, loadSieve, makeChain, tokenize, tokensBehind } from "./libraries.mjs";

const USAGE = `usage: node constrained.mjs [options]
  --llama-so FILE   libllama.so (LLAMA_SO)
  --sieve-so FILE   libllama_sieve.so (LLAMA_SIEVE_SO)
  --shim-so FILE    libffi_shim.so, made as examples/ffi_shim.c says (LLAMA_SHIM_SO)
  --model FILE      a model in GGUF (models/kjv-tiny.gguf of this repository)
  --prompt TEXT     what the value continues ("And the LORD said unto")
  --choices A,B,C   the values, without the space in front ("Moses,Aaron,the LORD")
  --temp T          the temperature (0.8)
  --seed N          from 0 to 4294967295 (42)
  --help            this`;

function readOptions() {
    const text = (value) => ({ type: "string", default: value });
    const { values } = parseArgs({
        options: {
            "llama-so": text(process.env.LLAMA_SO ?? ""),
            "sieve-so": text(process.env.LLAMA_SIEVE_SO ?? ""),
            "shim-so": text(process.env.LLAMA_SHIM_SO ?? ""),
            model: text(fileURLToPath(new URL("../../models/kjv-tiny.gguf", import.meta.url))),
            prompt: text("And the LORD said unto"),
            choices: text("Moses,Aaron,the LORD"),
            temp: text("0.8"),
            seed: text("42"),
            help: { type: "boolean", default: false },
        },
    });
    if (values.help) {
        console.log(USAGE);
        process.exit(0);
    }
    for (const [option, variable] of [["llama-so", "LLAMA_SO"], ["sieve-so", "LLAMA_SIEVE_SO"], ["shim-so", "LLAMA_SHIM_SO"]]) {
        if (values[option] === "") {
            throw new Failure(`--${option} or ${variable} must name a library; this builds all three: eval "$(examples/ffi_paths.sh)"`);
        }
    }
    const choices = values.choices.split(",").map((choice) => choice.trim());
    if (choices.includes("")) {
        throw new Failure("--choices: an empty value is among them");
    }
    const [temp, seed] = [Number(values.temp), Number(values.seed)];
    if (values.temp.trim() === "" || !Number.isFinite(temp)) {
        throw new Failure(`--temp ${values.temp}: not a number`);
    }
    if (values.seed.trim() === "" || !Number.isInteger(seed) || seed < 0 || seed > 0xffffffff) {
        throw new Failure(`--seed ${values.seed}: not a whole number from 0 to 4294967295`);
    }
    return { ...values, choices, temp, seed };
}

/** Appends a value to the context, and returns its name. */
function choose(llama, sieve, context, chain, slot) {
    let batch = []; // The tokens that the model has not evaluated yet.
    while (sieve.isActive(slot)) {
        // Where only one token can follow, nothing is sampled: the whole run goes into one batch.
        const run = forced(sieve, slot);
        if (run.length > 0) {
            run.forEach((token) => llama.accept(chain, token));
            batch.push(...run);
            continue;
        }
        if (batch.length > 0) {
            decode(llama, context, batch);
        }
        batch = [llama.sample(chain, context, -1)];
    }
    // If one value is a prefix of another, the last token may already be the first one
    // after the value; the text continues with it.
    decode(llama, context, batch);
    const leaf = sieve.leaf(slot);
    if (leaf === null) {
        throw new Failure("no value was completed");
    }
    return leaf;
}

function run(options) {
    const llama = loadLlama(options["llama-so"], options["shim-so"]);
    const sieve = loadSieve(options["sieve-so"]);
    const model = llama.loadModel(options.model);
    if (model === null) {
        throw new Failure(`cannot load ${options.model}`);
    }
    const vocab = llama.getVocab(model);
    const prompt = tokenize(llama, vocab, options.prompt, true);
    if (prompt.length === 0) {
        throw new Failure("the prompt has no tokens");
    }
    const leaves = options.choices.map((name) => ({ name, tokens: tokensBehind(llama, vocab, options.prompt, name) }));
    const payload = JSON.stringify({ modelId: path.parse(options.model).name, descriptors: [{ path: "choice", leaves }] });
    const longest = Math.max(...leaves.map((leaf) => leaf.tokens.length));
    const context = llama.newContext(model, prompt.length + longest + 1);
    if (context === null) {
        throw new Failure("cannot make a context");
    }
    const { chain, slot } = makeChain(llama, sieve, vocab, options);

    decode(llama, context, prompt);
    if (sieve.set(slot, payload, Buffer.byteLength(payload), TRIE_SAMPLED | TRIE_COMPACT) !== 0) {
        throw new Failure(sieve.lastError());
    }
    const chosen = choose(llama, sieve, context, chain, slot);
    sieve.clear(slot);
    if (sieve.isActive(slot)) {
        throw new Failure("the slot is active although it was cleared");
    }

    llama.samplerFree(chain);
    llama.contextFree(context);
    llama.modelFree(model);
    return chosen;
}

/** Runs the program, and returns its exit code. */
async function main() {
    const complain = (error) => console.error(`constrained.mjs: ${error.message}`);
    let options;
    try {
        options = readOptions();
    } catch (error) {
        complain(error);
        return 2;
    }
    try {
        // koffi is loaded this late so that --help works without it.
        await loadKoffi();
        console.log(run(options));
        return 0;
    } catch (error) {
        if (!(error instanceof Failure)) {
            throw error;
        }
        complain(error);
        return 1;
    }
}

process.exitCode = await main();
