// A streaming runner for hosts that identify a stream by a handle: a span of the output may be constrained by a token trie.
//
// The constraint is set before the span and removed after it, even if the caller stops within the
// span, by an AbortSignal or by leaving the loop. Where only one token can follow, nothing is
// sampled: the whole run goes to the model in one batch. Several streams may run at once, each with
// its own slot.
//
// The types are in JSDoc, which TypeScript reads (`npm run types`), since Node before 22.6 does not run TypeScript.
//
//     node --test examples/node          runs runner.test.mjs, with LLAMA_SO, LLAMA_SIEVE_SO and LLAMA_SHIM_SO set
import { Buffer } from "node:buffer";

import { Failure, TRIE_COMPACT, TRIE_SAMPLED, decode, forced, makeChain, tokenize } from "./libraries.mjs";

/**
 * @typedef {{ name: string, tokens: number[] }} TokenTreeLeaf
 * @typedef {{ path: string, leaves: TokenTreeLeaf[] }} TokenTreeDescriptor
 * @typedef {{ modelId?: string, descriptors: TokenTreeDescriptor[] }} TokenTreePayload
 *
 * @typedef {object} GenerateArgs
 * @property {string} prompt The text to continue.
 * @property {number} maxTokens
 * @property {TokenTreePayload} [tokenTreePayload] The values, one of which must come first; without
 * it nothing is constrained.
 * @property {number} [tokenTreeMode] TRIE_SAMPLED | TRIE_COMPACT unless given.
 * @property {AbortSignal} [signal] Ends the generation before its next token.
 *
 * @typedef {object} Step One token, or a run of forced tokens, which were not sampled.
 * @property {number[]} tokens
 * @property {string} text
 * @property {boolean} forced
 */

/** One sequence: a context, a chain that begins with a slot for a constraint, and the handle that the slot is bound to. */
export class Stream {
    #llama;
    #sieve;
    #vocab;
    #context;
    #chain;
    #slot;
    #used = false;
    #utf8 = new TextDecoder();

    /**
     * @param {{ llama: any, sieve: any, model: any }} host The results of `loadLlama`, `loadSieve`
     * and `loadModel`.
     * @param {{ nCtx?: number, temp?: number, seed?: number }} options
     */
    constructor({ llama, sieve, model }, { nCtx = 256, temp = 0.8, seed = 42 } = {}) {
        this.#llama = llama;
        this.#sieve = sieve;
        this.#vocab = llama.getVocab(model);
        this.#context = llama.newContext(model, nCtx);
        if (this.#context === null) {
            throw new Failure("cannot make a context");
        }
        ({ chain: this.#chain, slot: this.#slot } = makeChain(llama, sieve, this.#vocab, { temp, seed }));
        // Any unique pointer can be the handle, since it is compared and never dereferenced. Here
        // it is the context's.
        if (sieve.bindHandle(this.handle, this.#slot) !== 0) {
            throw new Failure(sieve.lastError());
        }
    }

    /** The handle by which other code may set the constraint as well. */
    get handle() {
        return this.#context;
    }

    /** True while a constraint is active. */
    get isConstrained() {
        return this.#sieve.isActive(this.#slot);
    }

    /** The name of the value that was completed last, or null. */
    get leaf() {
        return this.#sieve.leaf(this.#slot);
    }

    /**
     * Streams a text. The constraint applies to its first value, and is removed when the generator
     * ends, for whatever reason.
     *
     * @param {GenerateArgs} args
     * @returns {AsyncGenerator<Step, void, void>}
     */
    async *generate({ prompt, maxTokens, tokenTreePayload, tokenTreeMode = TRIE_SAMPLED | TRIE_COMPACT, signal }) {
        if (this.#used) {
            throw new Failure("a stream has one text: make another");
        }
        this.#used = true;
        const tokens = tokenize(this.#llama, this.#vocab, prompt, true);
        decode(this.#llama, this.#context, tokens);
        if (tokenTreePayload !== undefined) {
            this.#constrain(tokenTreePayload, tokenTreeMode);
        }
        try {
            yield* this.#steps(maxTokens, signal);
        } finally {
            this.#sieve.clearByHandle(this.handle);
        }
    }

    /** Frees all objects; the generator must have ended. */
    close() {
        this.#sieve.bindHandle(this.handle, null);
        this.#llama.samplerFree(this.#chain);
        this.#llama.contextFree(this.#context);
    }

    /**
     * @param {TokenTreePayload} payload
     * @param {number} mode
     */
    #constrain(payload, mode) {
        const json = JSON.stringify(payload);
        this.#sieve.setByHandle(this.handle, json, Buffer.byteLength(json), mode);
        if (!this.isConstrained) {
            throw new Failure(this.#sieve.lastError());
        }
    }

    /**
     * @param {number} maxTokens
     * @param {AbortSignal} [signal]
     * @returns {AsyncGenerator<Step, void, void>}
     */
    async *#steps(maxTokens, signal) {
        let left = maxTokens;
        while (left > 0) {
            // Lets other tasks of the program run between tokens; one of them may abort this
            // generation.
            await new Promise(setImmediate);
            signal?.throwIfAborted();
            const run = this.isConstrained ? forced(this.#sieve, this.#slot).slice(0, left) : [];
            const isForced = run.length > 0;
            if (isForced) {
                run.forEach((token) => this.#llama.accept(this.#chain, token));
            } else {
                run.push(this.#llama.sample(this.#chain, this.#context, -1));
                if (this.#llama.isEog(this.#vocab, run[0])) {
                    return;
                }
            }
            decode(this.#llama, this.#context, run);
            left -= run.length;
            yield { tokens: run, text: this.#text(run), forced: isForced };
        }
    }

    /**
     * Returns the text of these tokens. Bytes of an incomplete character are kept for the next
     * call.
     *
     * @param {number[]} tokens
     */
    #text(tokens) {
        const bytes = new Uint8Array(256);
        const pieces = tokens.map((token) => {
            const n = this.#llama.piece(this.#vocab, token, bytes, bytes.length, 0, true);
            return this.#utf8.decode(bytes.subarray(0, Math.max(n, 0)), { stream: true });
        });
        return pieces.join("");
    }
}
