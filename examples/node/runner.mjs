// A streaming runner for hosts that hold a stream by its handle: a span of its output may be constrained by a token trie.
//
// The constraint is set before the span and taken out after it, also when the caller stops in the middle, by an AbortSignal or by leaving the loop. Where
// only one token can follow, nothing is sampled: the whole run goes to the model in one batch. Several streams may run at once, each with its own slot.
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
 * @property {string} prompt What the text continues.
 * @property {number} maxTokens
 * @property {TokenTreePayload} [tokenTreePayload] What may be written first; nothing is constrained without it.
 * @property {number} [tokenTreeMode] TRIE_SAMPLED | TRIE_COMPACT unless given.
 * @property {AbortSignal} [signal] Ends the generation before its next token.
 *
 * @typedef {object} Step One token, or a run of tokens that nobody had to sample.
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
     * @param {{ llama: any, sieve: any, model: any }} host What `loadLlama`, `loadSieve` and `loadModel` gave.
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
        // The context is as good a handle as any: it is compared, never followed.
        if (sieve.bindHandle(this.handle, this.#slot) !== 0) {
            throw new Failure(sieve.lastError());
        }
    }

    /** By which others may set the constraint, too. */
    get handle() {
        return this.#context;
    }

    /** Whether a constraint is at work. */
    get isConstrained() {
        return this.#sieve.isActive(this.#slot);
    }

    /** The name of the value that was completed last, or null. */
    get leaf() {
        return this.#sieve.leaf(this.#slot);
    }

    /**
     * Streams a text. The constraint holds for its first value, and is gone when the generator has ended, however it ends.
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

    /** Frees all; the generator must have ended. */
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
            // The host's own work goes on between tokens, and may abort this.
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
     * The text of these tokens; bytes of a character whose rest is yet to come are kept back.
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
