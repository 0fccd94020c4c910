// Lets the model choose one of some values, from Node with koffi.
//
//     cargo build --release
//     cd examples/node && npm install
//     node constrained.mjs --llama-so $LLAMA/build/bin/libllama.so --sieve-so ../../target/release/libllama_sieve.so \
//         --shim-so ./libffi_shim.so --choices "Moses,Aaron,the LORD"
//
// How to make libffi_shim.so is in the first lines of examples/ffi_shim.c, and why there is one: koffi can pass structs by value, but their declarations
// would have to be kept in step with llama.h by hand. The paths can also come from the environment: LLAMA_SO, LLAMA_SIEVE_SO and LLAMA_SHIM_SO.
import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

/** Loaded when it is needed, so that --help answers without it. */
let koffi;

const TRIE_SAMPLED = 1; // LLAMA_SIEVE_TRIE_SAMPLED
const TRIE_COMPACT = 0x100; // LLAMA_SIEVE_TRIE_COMPACT

/** What a user is told, without a stack trace. */
class Failure extends Error {}

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

function open(file) {
    try {
        // Private to its user, which is koffi's default: our library finds libllama all the same.
        return koffi.load(path.resolve(file));
    } catch (error) {
        throw new Failure(`cannot load ${file}: ${error.message}`);
    }
}

/** What is used of llama.cpp. */
function loadLlama(file, shimFile) {
    const library = open(file);
    // Behind libllama, so that it uses the one that is loaded.
    const shim = open(shimFile);
    return {
        getVocab: library.func("void * llama_model_get_vocab(void * model)"),
        tokenize: library.func(
            "int32_t llama_tokenize(void * vocab, const char * text, int32_t length, _Out_ int32_t * tokens, int32_t room, bool add_special, bool parse_special)",
        ),
        chainAdd: library.func("void llama_sampler_chain_add(void * chain, void * smpl)"),
        sample: library.func("int32_t llama_sampler_sample(void * smpl, void * context, int32_t index)"),
        accept: library.func("void llama_sampler_accept(void * smpl, int32_t token)"),
        samplerFree: library.func("void llama_sampler_free(void * smpl)"),
        contextFree: library.func("void llama_free(void * context)"),
        modelFree: library.func("void llama_model_free(void * model)"),
        loadModel: shim.func("void * shim_load_model(const char * path)"),
        newContext: shim.func("void * shim_new_context(void * model, int32_t n_ctx)"),
        decode: shim.func("int32_t shim_decode(void * context, const int32_t * tokens, int32_t n)"),
        newChain: shim.func("void * shim_new_chain()"),
    };
}

/** What is used of llama-sieve. */
function loadSieve(file) {
    const library = open(file);
    return {
        newSlot: library.func("void * llama_sieve_init_trie_slot(void * vocab)"),
        set: library.func("int llama_sieve_trie_set(void * smpl, const char * json, size_t length, int mode)"),
        clear: library.func("void llama_sieve_trie_clear(void * smpl)"),
        isActive: library.func("bool llama_sieve_trie_is_active(void * smpl)"),
        leaf: library.func("const char * llama_sieve_trie_leaf(void * smpl)"),
        forced: library.func("size_t llama_sieve_trie_forced(void * smpl, _Out_ int32_t * tokens, size_t room)"),
        newTemp: library.func("void * llama_sieve_init_temp(float t)"),
        newDist: library.func("void * llama_sieve_init_dist(uint32_t seed)"),
        lastError: library.func("const char * llama_sieve_last_error()"),
    };
}

function tokenize(llama, vocab, text, addSpecial) {
    const length = Buffer.byteLength(text);
    // A token is at least a byte, and the model may add one at either end.
    const tokens = new Int32Array(length + 2);
    const n = llama.tokenize(vocab, text, length, tokens, tokens.length, addSpecial, false);
    return [...tokens.subarray(0, n)];
}

/**
 * The tokens of a value where it continues the prompt, a space between them. Tokenized together with the prompt, since some tokenizers treat the beginning
 * of a text in a way of their own; alone only where a token would span the border.
 */
function tokensBehind(llama, vocab, prompt, value) {
    const space = prompt === "" || /\s$/.test(prompt) ? "" : " ";
    const first = tokenize(llama, vocab, prompt, true);
    const together = tokenize(llama, vocab, prompt + space + value, true);
    if (first.every((token, i) => together[i] === token)) {
        return together.slice(first.length);
    }
    return tokenize(llama, vocab, space + value, false);
}

/** The slot comes first, so that temperature and draw are among what it allows. The chain frees its members. */
function makeChain(llama, sieve, vocab, options) {
    const chain = llama.newChain();
    const slot = sieve.newSlot(vocab);
    for (const member of [slot, sieve.newTemp(options.temp), sieve.newDist(options.seed)]) {
        if (member === null) {
            throw new Failure(sieve.lastError());
        }
        llama.chainAdd(chain, member);
    }
    return { chain, slot };
}

function decode(llama, context, tokens) {
    if (llama.decode(context, Int32Array.from(tokens), tokens.length) !== 0) {
        throw new Failure("llama_decode failed");
    }
}

/** The tokens that must follow. */
function forced(sieve, slot) {
    const tokens = new Int32Array(Number(sieve.forced(slot, null, 0)));
    if (tokens.length > 0) {
        sieve.forced(slot, tokens, tokens.length);
    }
    return [...tokens];
}

/** Appends a value to the context, and returns its name. */
function choose(llama, sieve, context, chain, slot) {
    let batch = []; // What the model has not read yet.
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
    // Where one value begins another, the last token may be the first behind the value; the text goes on with it.
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

/** The exit code. */
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
        koffi = (await import("koffi")).default;
    } catch {
        complain(new Failure("koffi is missing: run npm install in examples/node"));
        return 1;
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

process.exitCode = await main();
