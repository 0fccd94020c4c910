// The functions of llama.cpp and llama-sieve, declared for koffi.
import path from "node:path";

let koffi;

export const TRIE_GREEDY = 0; // LLAMA_SIEVE_TRIE_GREEDY
export const TRIE_SAMPLED = 1; // LLAMA_SIEVE_TRIE_SAMPLED
export const TRIE_COMPACT = 0x100; // LLAMA_SIEVE_TRIE_COMPACT

/** An error that is printed as a message, without a stack trace. */
export class Failure extends Error {}

/** Loads koffi. Must be awaited before a library is loaded. */
export async function loadKoffi() {
    try {
        koffi = (await import("koffi")).default;
    } catch {
        throw new Failure("koffi is missing: run npm install in examples/node");
    }
}

function open(file) {
    try {
        // Private to its user, which is koffi's default: our library finds libllama all the same.
        return koffi.load(path.resolve(file));
    } catch (error) {
        throw new Failure(`cannot load ${file}: ${error.message}`);
    }
}

/** Loads llama.cpp, and declares those of its functions that the examples call. */
export function loadLlama(file, shimFile) {
    const library = open(file);
    // After libllama, so that it uses the one that is loaded.
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
        isEog: library.func("bool llama_vocab_is_eog(void * vocab, int32_t token)"),
        piece: library.func(
            "int32_t llama_token_to_piece(void * vocab, int32_t token, _Out_ uint8_t * text, int32_t room, int32_t lstrip, bool special)",
        ),
        decode: shim.func("int32_t shim_decode(void * context, const int32_t * tokens, int32_t n)"),
        newChain: shim.func("void * shim_new_chain()"),
    };
}

/** Loads llama-sieve, and declares those of its functions that the examples call. */
export function loadSieve(file) {
    const library = open(file);
    return {
        newSlot: library.func("void * llama_sieve_init_trie_slot(void * vocab)"),
        set: library.func("int llama_sieve_trie_set(void * smpl, const char * json, size_t length, int mode)"),
        clear: library.func("void llama_sieve_trie_clear(void * smpl)"),
        bindHandle: library.func("int eliza_inference_bind_token_trie(void * handle, void * slot)"),
        setByHandle: library.func("void eliza_inference_set_token_trie(void * handle, const char * json, size_t length, int mode)"),
        clearByHandle: library.func("void eliza_inference_clear_token_trie(void * handle)"),
        isActive: library.func("bool llama_sieve_trie_is_active(void * smpl)"),
        leaf: library.func("const char * llama_sieve_trie_leaf(void * smpl)"),
        forced: library.func("size_t llama_sieve_trie_forced(void * smpl, _Out_ int32_t * tokens, size_t room)"),
        newTemp: library.func("void * llama_sieve_init_temp(float t)"),
        newDist: library.func("void * llama_sieve_init_dist(uint32_t seed)"),
        lastError: library.func("const char * llama_sieve_last_error()"),
    };
}

export function tokenize(llama, vocab, text, addSpecial) {
    const length = Buffer.byteLength(text);
    // Each token stands for at least one byte, and the model may add a token at either end.
    const tokens = new Int32Array(length + 2);
    const n = llama.tokenize(vocab, text, length, tokens, tokens.length, addSpecial, false);
    return [...tokens.subarray(0, n)];
}

/**
 * Returns the tokens of a value that follows the prompt and a space. The value is tokenized
 * together with the prompt, since some tokenizers treat the beginning of a text specially. It is
 * tokenized alone only where a token would span the border between the two.
 */
export function tokensBehind(llama, vocab, prompt, value) {
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
export function makeChain(llama, sieve, vocab, options) {
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

export function decode(llama, context, tokens) {
    if (llama.decode(context, Int32Array.from(tokens), tokens.length) !== 0) {
        throw new Failure("llama_decode failed");
    }
}

/** Returns the tokens that are the only possible continuation. */
export function forced(sieve, slot) {
    const tokens = new Int32Array(Number(sieve.forced(slot, null, 0)));
    if (tokens.length > 0) {
        sieve.forced(slot, tokens, tokens.length);
    }
    return [...tokens];
}
