// Lets the model choose one of several values, from Bun with bun:ffi.
//
//     cargo build --release
//     cd examples/bun && npm install
//     npx bun constrained.ts --llama-so $LLAMA/build/bin/libllama.so --sieve-so ../../target/release/libllama_sieve.so \
//         --shim-so ./libffi_shim.so --choices "Moses,Aaron,the LORD"
//
// The first lines of examples/ffi_shim.c say how to build libffi_shim.so, which is needed because
// bun:ffi cannot pass structs by value. The paths can also be given in the environment: LLAMA_SO,
// LLAMA_SIEVE_SO and LLAMA_SHIM_SO.
import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

import { CString, dlopen, type FFIFunction, type Pointer, ptr } from "bun:ffi";

const TRIE_SAMPLED = 1; // LLAMA_SIEVE_TRIE_SAMPLED
const TRIE_COMPACT = 0x100; // LLAMA_SIEVE_TRIE_COMPACT

/** An error that is printed as a message, without a stack trace. */
class Failure extends Error {}

function readOptions() {
    const text = (value: string) => ({ type: "string" as const, default: value });
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
        },
    });
    for (const [option, variable] of [["llama-so", "LLAMA_SO"], ["sieve-so", "LLAMA_SIEVE_SO"], ["shim-so", "LLAMA_SHIM_SO"]] as const) {
        if (values[option] === "") {
            throw new Failure(`--${option} or ${variable} must name a library`);
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

type Options = ReturnType<typeof readOptions>;

function open<const Functions extends Record<string, FFIFunction>>(file: string, functions: Functions) {
    try {
        // Private to its user, which is what bun:ffi always does: our library finds libllama all the same.
        return dlopen(path.resolve(file), functions).symbols;
    } catch (error) {
        throw new Failure(`cannot load ${file}: ${(error as Error).message}`);
    }
}

/** Loads llama.cpp, and declares those of its functions that this program calls. */
function loadLlama(file: string, shimFile: string) {
    const library = open(file, {
        llama_model_get_vocab: { args: ["ptr"], returns: "ptr" },
        llama_tokenize: { args: ["ptr", "ptr", "i32", "ptr", "i32", "bool", "bool"], returns: "i32" },
        llama_sampler_chain_add: { args: ["ptr", "ptr"], returns: "void" },
        llama_sampler_sample: { args: ["ptr", "ptr", "i32"], returns: "i32" },
        llama_sampler_accept: { args: ["ptr", "i32"], returns: "void" },
        llama_sampler_free: { args: ["ptr"], returns: "void" },
        llama_free: { args: ["ptr"], returns: "void" },
        llama_model_free: { args: ["ptr"], returns: "void" },
    });
    // After libllama, so that it uses the one that is loaded.
    const shim = open(shimFile, {
        shim_load_model: { args: ["ptr"], returns: "ptr" },
        shim_new_context: { args: ["ptr", "i32"], returns: "ptr" },
        shim_decode: { args: ["ptr", "ptr", "i32"], returns: "i32" },
        shim_new_chain: { args: [], returns: "ptr" },
    });
    return { ...library, ...shim };
}

/** Loads llama-sieve, and declares those of its functions that this program calls. */
function loadSieve(file: string) {
    return open(file, {
        llama_sieve_init_trie_slot: { args: ["ptr"], returns: "ptr" },
        llama_sieve_trie_set: { args: ["ptr", "ptr", "u64", "i32"], returns: "i32" },
        llama_sieve_trie_clear: { args: ["ptr"], returns: "void" },
        llama_sieve_trie_is_active: { args: ["ptr"], returns: "bool" },
        llama_sieve_trie_leaf: { args: ["ptr"], returns: "ptr" },
        llama_sieve_trie_forced: { args: ["ptr", "ptr", "u64"], returns: "u64" },
        llama_sieve_init_temp: { args: ["f32"], returns: "ptr" },
        llama_sieve_init_dist: { args: ["u32"], returns: "ptr" },
        llama_sieve_last_error: { args: [], returns: "ptr" },
    });
}

type Llama = ReturnType<typeof loadLlama>;
type Sieve = ReturnType<typeof loadSieve>;

function lastError(sieve: Sieve): Failure {
    // The text is never NULL, and CString copies it at once, before another call changes it.
    return new Failure(new CString(sieve.llama_sieve_last_error() as Pointer).toString());
}

function tokenize(llama: Llama, vocab: Pointer, text: string, addSpecial: boolean): number[] {
    const bytes = Buffer.from(text + "\0");
    const length = bytes.length - 1;
    // Each token stands for at least one byte, and the model may add a token at either end.
    const tokens = new Int32Array(length + 2);
    const n = llama.llama_tokenize(vocab, ptr(bytes), length, ptr(tokens), tokens.length, addSpecial, false);
    return [...tokens.subarray(0, n)];
}

/**
 * Returns the tokens of a value that follows the prompt and a space. The value is tokenized
 * together with the prompt, since some tokenizers treat the beginning of a text specially. It is
 * tokenized alone only where a token would span the border between the two.
 */
function tokensBehind(llama: Llama, vocab: Pointer, prompt: string, value: string): number[] {
    const space = prompt === "" || /\s$/.test(prompt) ? "" : " ";
    const first = tokenize(llama, vocab, prompt, true);
    const together = tokenize(llama, vocab, prompt + space + value, true);
    if (first.every((token, i) => together[i] === token)) {
        return together.slice(first.length);
    }
    return tokenize(llama, vocab, space + value, false);
}

/** Makes a chain whose first member is the trie's slot, so that temperature and draw see only the
 * tokens that it allows. The chain frees its members. */
function makeChain(llama: Llama, sieve: Sieve, vocab: Pointer, options: Options) {
    const chain = llama.shim_new_chain() as Pointer;
    const slot = sieve.llama_sieve_init_trie_slot(vocab);
    for (const member of [slot, sieve.llama_sieve_init_temp(options.temp), sieve.llama_sieve_init_dist(options.seed)]) {
        if (member === null) {
            throw lastError(sieve);
        }
        llama.llama_sampler_chain_add(chain, member);
    }
    return { chain, slot: slot as Pointer };
}

function decode(llama: Llama, context: Pointer, tokens: number[]) {
    if (llama.shim_decode(context, ptr(Int32Array.from(tokens)), tokens.length) !== 0) {
        throw new Failure("llama_decode failed");
    }
}

/** Returns the tokens that are the only possible continuation. */
function forced(sieve: Sieve, slot: Pointer): number[] {
    const tokens = new Int32Array(Number(sieve.llama_sieve_trie_forced(slot, null, 0)));
    if (tokens.length > 0) {
        sieve.llama_sieve_trie_forced(slot, ptr(tokens), tokens.length);
    }
    return [...tokens];
}

/** Appends a value to the context, and returns its name. */
function choose(llama: Llama, sieve: Sieve, context: Pointer, chain: Pointer, slot: Pointer): string {
    let batch: number[] = []; // The tokens that the model has not evaluated yet.
    while (sieve.llama_sieve_trie_is_active(slot)) {
        // Where only one token can follow, nothing is sampled: the whole run goes into one batch.
        const run = forced(sieve, slot);
        if (run.length > 0) {
            run.forEach((token) => llama.llama_sampler_accept(chain, token));
            batch.push(...run);
            continue;
        }
        if (batch.length > 0) {
            decode(llama, context, batch);
        }
        batch = [llama.llama_sampler_sample(chain, context, -1)];
    }
    // If one value is a prefix of another, the last token may already be the first one
    // after the value; the text continues with it.
    decode(llama, context, batch);
    const leaf = sieve.llama_sieve_trie_leaf(slot);
    if (leaf === null) {
        throw new Failure("no value was completed");
    }
    return new CString(leaf).toString();
}

function run(options: Options): string {
    const llama = loadLlama(options["llama-so"], options["shim-so"]);
    const sieve = loadSieve(options["sieve-so"]);
    const model = llama.shim_load_model(ptr(Buffer.from(options.model + "\0"))) as Pointer | null;
    if (model === null) {
        throw new Failure(`cannot load ${options.model}`);
    }
    const vocab = llama.llama_model_get_vocab(model) as Pointer;
    const prompt = tokenize(llama, vocab, options.prompt, true);
    if (prompt.length === 0) {
        throw new Failure("the prompt has no tokens");
    }
    const leaves = options.choices.map((name) => ({ name, tokens: tokensBehind(llama, vocab, options.prompt, name) }));
    const payload = Buffer.from(JSON.stringify({ modelId: path.parse(options.model).name, descriptors: [{ path: "choice", leaves }] }));
    const longest = Math.max(...leaves.map((leaf) => leaf.tokens.length));
    const context = llama.shim_new_context(model, prompt.length + longest + 1) as Pointer | null;
    if (context === null) {
        throw new Failure("cannot make a context");
    }
    const { chain, slot } = makeChain(llama, sieve, vocab, options);

    decode(llama, context, prompt);
    if (sieve.llama_sieve_trie_set(slot, ptr(payload), payload.length, TRIE_SAMPLED | TRIE_COMPACT) !== 0) {
        throw lastError(sieve);
    }
    const chosen = choose(llama, sieve, context, chain, slot);
    sieve.llama_sieve_trie_clear(slot);
    if (sieve.llama_sieve_trie_is_active(slot)) {
        throw new Failure("the slot is active although it was cleared");
    }

    llama.llama_sampler_free(chain);
    llama.llama_free(context);
    llama.llama_model_free(model);
    return chosen;
}

/** Runs the program, and returns its exit code. */
function main(): number {
    const complain = (error: unknown) => console.error(`constrained.ts: ${(error as Error).message}`);
    let options: Options;
    try {
        options = readOptions();
    } catch (error) {
        complain(error);
        return 2;
    }
    try {
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

process.exitCode = main();
