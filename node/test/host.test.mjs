// Tests that need a llama.cpp: LLAMA_SO names libllama, LLAMA_SHIM_SO the library of
// examples/ffi_shim.c, which loads a model, and LLAMA_MODEL the model.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import koffi from "koffi";
import {
    BanStrings,
    BanStringsBias,
    Chain,
    Choice,
    Grammar,
    InvalidError,
    JsonSchema,
    LlamaSieveError,
    Regex,
    Sieve,
    Tags,
    TokenTrie,
    bindHost,
    forgetVocab,
    samplers,
} from "llama-sieve";

let llama;
let model;
before(() => {
    bindHost(process.env.LLAMA_SO);
    const library = koffi.load(process.env.LLAMA_SO);
    const shim = koffi.load(process.env.LLAMA_SHIM_SO);
    llama = {
        vocabOf: library.func("void * llama_model_get_vocab(void * model)"),
        piece: library.func(
            "int llama_token_to_piece(void * vocab, int token, _Out_ uint8_t * text, int room, " +
                "int lstrip, bool special)",
        ),
        isEog: library.func("bool llama_vocab_is_eog(void * vocab, int token)"),
        contextFree: library.func("void llama_free(void * context)"),
        modelFree: library.func("void llama_model_free(void * model)"),
        newContext: shim.func("void * shim_new_context(void * model, int n_ctx)"),
        decode: shim.func("int shim_decode(void * context, const int * tokens, int n)"),
    };
    model = shim.func("void * shim_load_model(const char * path)")(process.env.LLAMA_MODEL);
    assert.notEqual(model, null);
});
after(() => {
    forgetVocab({ model });
    llama.modelFree(model);
});

/** Returns made-up logits. */
function logitsOf(n, seed) {
    return Float32Array.from({ length: n }, (_, i) => Math.sin((i + 1) * (seed + 1)) * 5);
}

/** Returns the tokens that a bitmap allows. */
function tokensOf(mask, n) {
    return Array.from({ length: n }, (_, t) => t).filter((t) => (mask[t >>> 5] >>> (t & 31)) & 1);
}

/** Returns the bytes of a token. */
function pieceOf(vocab, token) {
    const piece = new Uint8Array(64);
    return piece.subarray(0, llama.piece(vocab, token, piece, piece.length, 0, true));
}

/** Returns the text that a chain with this constraint generates from made-up logits. */
function written(constraint, limit = 200) {
    const vocab = llama.vocabOf(model);
    const chain = new Chain(constraint, samplers.temp(1.5), samplers.dist(3));
    const bytes = [];
    for (let n = 0; n < limit; n++) {
        const token = chain.sample(logitsOf(constraint.nVocab, n));
        if (llama.isEog(vocab, token)) {
            break;
        }
        chain.accept(token);
        bytes.push(...pieceOf(vocab, token));
    }
    chain.close();
    return Buffer.from(bytes).toString();
}

test("a chain gives the tokens of a sieve with its parameters", () => {
    const chain = new Chain(
        samplers.penalties(64, 1.1),
        samplers.topK(40),
        samplers.topP(0.95),
        samplers.minP(0.05),
        samplers.temp(0.8),
        samplers.dist(11),
    );
    const sieve = new Sieve({ seed: 11, penaltyRepeat: 1.1 });
    for (let n = 0; n < 30; n++) {
        const logits = logitsOf(500, n);
        const token = chain.sample(logits);
        assert.equal(sieve.sample(logits), token);
        assert.ok(chain.candidates().some(({ id }) => id === token));
        chain.accept(token);
        sieve.accept(token);
    }
    assert.equal(chain.name, "chain");
    chain.close();
});

test("candidates are not computed from an array that is not there any more", () => {
    const chain = new Chain(samplers.dist(7));
    const resized = (buffer) => buffer.resize(4);
    const transferred = (buffer) => structuredClone(buffer, { transfer: [buffer] });
    // No buffer can be resized before Node 20.
    const all = "resize" in ArrayBuffer.prototype ? [resized, transferred] : [transferred];
    for (const change of all) {
        const buffer = new ArrayBuffer(4000, { maxByteLength: 4000 });
        chain.sample(new Float32Array(buffer));
        change(buffer);
        assert.throws(() => chain.candidates(), InvalidError);
    }
    chain.close();
});

test("every sampler is made, and named as llama.cpp's", () => {
    const made = {
        greedy: samplers.greedy(),
        dist: samplers.dist(1),
        "top-k": samplers.topK(40),
        "?top-k": samplers.topK(0),
        "top-p": samplers.topP(0.9),
        "min-p": samplers.minP(0.1, 2),
        typical: samplers.typical(0.9),
        temp: samplers.temp(0.8),
        "temp-ext": samplers.tempExt(0.8, 0.3, 1),
        xtc: samplers.xtc(0.5, 0.1, 1, 3),
        "top-n-sigma": samplers.topNSigma(1),
        mirostat: samplers.mirostat(1000, 1, 5, 0.1),
        "mirostat-v2": samplers.mirostatV2(1, 5, 0.1),
        penalties: samplers.penalties(64, 1.1),
        dry: samplers.dry(0.8, { vocab: { model } }),
        "adaptive-p": samplers.adaptiveP(0.5, 0.9, 1),
        "logit-bias": samplers.logitBias({ 3: 1 }),
    };
    for (const [name, sampler] of Object.entries(made)) {
        assert.equal(sampler.name, name);
        sampler.accept(1, 2);
        sampler.reset();
        sampler.close();
    }
    samplers.tailFree(0.9).close();
    samplers.softmax().close();
    samplers.topA(0.2).close();
    samplers.epsilonCutoff(0.01).close();
    samplers.etaCutoff(0.01).close();
    samplers.pLess().close();
    samplers.topH(0.4).close();
    samplers.minK(2).close();
    samplers.quadratic(0.3).close();
    samplers.loopBreaker({ action: "temperature", temperature: 2 }).close();
    samplers.loopBreaker({ action: "end", vocab: { model } }).close();
    assert.throws(() => samplers.loopBreaker({ maxPeriod: 1025 }), /max_period/);
});

test("a loop is broken at its third copy", () => {
    const logits = new Float32Array(50).fill(0);
    logits[3] = 2;
    logits[4] = 1;
    const chain = new Chain(samplers.loopBreaker({ minTokens: 1 }), samplers.greedy());
    chain.accept(3, 3);
    assert.equal(chain.sample(logits), 3);
    chain.accept(3);
    assert.equal(chain.sample(logits), 4);
    chain.close();
    const forcing = samplers.loopBreaker({ action: "force", tokens: [7, 8], minTokens: 3 });
    const other = new Chain(forcing, samplers.greedy());
    other.accept(3, 3, 3);
    assert.equal(other.sample(logits), 7);
    other.accept(7);
    assert.equal(other.sample(logits), 8);
    other.close();
});

test("a sampler in a slot is a stage of a sieve", () => {
    const logits = new Float32Array(50).fill(0);
    logits[3] = 9;
    logits[4] = 8;
    const sieve = new Sieve({ seed: 1 });
    sieve.setStages([1, "topK", 0]);
    const breaker = samplers.loopBreaker({ minTokens: 1 });
    sieve.setSampler(1, breaker);
    breaker.close();
    sieve.setSampler(0, samplers.topA(0.2));
    sieve.sample(logits);
    const ids = sieve.candidates().map((candidate) => candidate.id);
    assert.deepEqual(ids, [3, 4]);
    for (let i = 0; i < 3; i++) {
        sieve.accept(3);
    }
    const state = sieve.save();
    const clone = sieve.clone();
    for (const each of [sieve, clone]) {
        assert.notEqual(each.sample(logits), 3);
    }
    sieve.reset();
    sieve.load(state);
    assert.notEqual(sieve.sample(logits), 3);
    sieve.setSampler(1);
    assert.throws(() => sieve.load(state), /other stages/);
    assert.throws(() => sieve.setSampler(16, samplers.topA(0.2)), /slot/);
    assert.throws(() => sieve.setSampler(0, samplers.dist(1)), /dist draws/);
    assert.throws(() => sieve.setSampler(0, clone), /is a Sampler/);
    sieve.setStages();
    sieve.close();
    clone.close();
});

test("a banned text never appears", () => {
    const ban = new BanStrings({ model }, ["the LORD", "Moses"], { foldCase: true });
    assert.equal(ban.rewind(), 0);
    const logits = logitsOf(2048, 5);
    const chain = new Chain(ban, samplers.dist(1));
    for (let i = 0; i < 50; i++) {
        chain.accept(chain.sample(logits));
    }
    assert.ok(ban.rewind() >= 0);
    chain.close();
    assert.throws(() => new BanStrings({ model }, ["a", ""]), /text 1 is empty/);
    const expression = new BanStrings({ model }, ["M[a-z]+s"], { regex: true });
    assert.equal(expression.rewind(), 0);
    expression.close();
    assert.throws(() => new BanStrings({ model }, ["a$"], { regex: true }), /text 0/);
});

test("a text that has begun is biased", () => {
    const vocab = llama.vocabOf(model);
    const pieces = Array.from({ length: 2048 }, (_, token) => pieceOf(vocab, token));
    const letters = pieces.map((piece) => Buffer.from(piece).toString());
    const [t, h, e] = ["t", "h", "e"].map((letter) => letters.indexOf(letter));
    const logits = new Float32Array(2048);
    logits[h] = 5;
    logits[e] = 4.9;
    const chosen = (bias, options) => {
        const sampler = new BanStringsBias({ model }, ["THX", "tq"], bias, options);
        const chain = new Chain(sampler, samplers.greedy());
        const first = chain.sample(logits);
        chain.accept(t);
        const then = chain.sample(logits);
        chain.close();
        return [first, then];
    };
    assert.deepEqual(chosen(-3), [h, h]);
    // Two thirds of 0.3 are more than a tenth.
    assert.deepEqual(chosen(-0.3, { foldCase: true }), [h, e]);
    assert.deepEqual(chosen(-0.12, { foldCase: true }), [h, h]);
    for (const bias of [NaN, -Infinity]) {
        assert.throws(() => new BanStringsBias({ model }, ["a"], bias), /bias is/);
    }
    assert.throws(() => new BanStringsBias({ model }, ["a"], "1"), /bias: .* is not a number/);
});

test("a chain samples a context's logits, and accepts", () => {
    const context = llama.newContext(model, 64);
    assert.equal(llama.decode(context, Int32Array.of(1, 5, 9), 3), 0);
    const chain = new Chain(samplers.topK(1), samplers.greedy());
    const token = chain.sampleContext(context);
    assert.ok(token >= 0);
    assert.equal(chain.sampleContext({ context }, -1), token);
    chain.close();
    llama.contextFree(context);
});

test("texts follow their constraints", () => {
    const schema = {
        type: "object",
        properties: {
            name: { enum: ["Moses", "Aaron"] },
            age: { type: "integer", minimum: 0, maximum: 999 },
        },
        required: ["name", "age"],
        additionalProperties: false,
    };
    const value = JSON.parse(written(new JsonSchema({ model }, schema, { compact: true })));
    assert.deepEqual(Object.keys(value), ["name", "age"]);
    assert.ok(schema.properties.name.enum.includes(value.name) && Number.isInteger(value.age));
    assert.match(written(new Regex({ model }, "[a-c]{3}-[0-9]+")), /^[a-c]{3}-[0-9]+$/);
    const names = ["Moses", "Joshua the son of Nun"];
    assert.ok(names.includes(written(new Choice({ model }, names))));
    assert.match(written(new Grammar({ model }, 'root ::= "a" b\nb ::= [0-9]')), /^a[0-9]$/);
    const tags = { tags: [{ begin: "<n>", regex: "[0-9]+", end: "</n>" }], required: true };
    assert.doesNotMatch(written(new Tags({ model }, tags), 100), /<n>[^0-9]/);
});

test("a constraint answers for the text so far", () => {
    const constraint = new Choice(llama.vocabOf(model), ["same text", "same end"]);
    assert.equal(Buffer.from(constraint.forced()).toString(), "same ");
    const mask = constraint.mask();
    const allowed = tokensOf(mask, constraint.nVocab);
    assert.ok(allowed.length > 0 && allowed.length < 20);
    const logits = new Float32Array(constraint.nVocab + 3).fill(1);
    constraint.maskLogits(logits);
    assert.deepEqual([...logits.keys()].filter((t) => logits[t] === 1), allowed);
    assert.equal(constraint.accepts([allowed[0], constraint.nVocab - 1]), 1);
    assert.equal(constraint.complete, false);
    assert.equal(constraint.error, null);
    const banned = [...Array(constraint.nVocab).keys()].find((token) => !allowed.includes(token));
    constraint.accept(banned);
    assert.match(constraint.error, /does not allow/);
    constraint.rollback(1);
    assert.equal(constraint.error, null);
    assert.deepEqual(constraint.mask(), mask);
    constraint.close();
});

test("a trie lets its values through", () => {
    const leaves = [
        { name: "two", tokens: [5, 6] },
        { name: "one", tokens: [9] },
    ];
    const payload = { descriptors: [{ path: "x", leaves }] };
    const trie = new TokenTrie(payload);
    const chain = new Chain(trie, samplers.greedy());
    assert.deepEqual([...trie.allowed()], [5, 9]);
    const logits = new Float32Array(1000);
    logits[5] = 1;
    assert.equal(chain.sample(logits), 5);
    chain.accept(5);
    assert.deepEqual([...trie.forced()], [6]);
    chain.accept(6);
    assert.equal(trie.leaf, "two");
    assert.equal(trie.active, false);
    trie.activate("x");
    assert.equal(trie.active, true);
    assert.throws(() => trie.activate("y"), LlamaSieveError);
    trie.clear();
    assert.equal(trie.active, false);
    chain.close();
    assert.throws(() => trie.leaf, InvalidError);
});

test("what cannot be is refused, and nothing is lost", () => {
    const member = samplers.topK(3);
    assert.throws(() => new Chain(member, member), /twice/);
    assert.throws(() => new Chain(member, {}), /Sampler/);
    const chain = new Chain(member);
    assert.throws(() => new Chain(member), /already belongs to a chain/);
    member.close();
    assert.equal(member.name, "top-k");
    assert.throws(() => chain.candidates(), InvalidError);
    assert.throws(() => chain.sample(new Float32Array(4)), LlamaSieveError);
    chain.close();
    assert.throws(() => member.name, /closed/);
    for (const vocab of [null, 5, 0n, {}, "vocab"]) {
        assert.throws(() => new Regex(vocab, "a"), /vocab: a pointer/);
    }
    assert.throws(() => new Regex({ model }, "("), (error) => error.code < 0);
    assert.throws(() => new Regex({ model }, "a\0"), /NUL/);
    assert.throws(() => new Choice({ model }, ["\ud800"]), /surrogate/);
    assert.throws(() => new Choice({ model }, "abc"), /values: a list of strings is expected/);
    assert.throws(() => new BanStrings({ model }, "the"), /texts: a list of strings is expected/);
    assert.throws(() => new JsonSchema({ model }, { type: "text" }), /type/);
    assert.throws(() => new JsonSchema({ model }, { maximum: Infinity }), /Infinity at "maximum"/);
    assert.throws(() => new TokenTrie("{"), LlamaSieveError);
    assert.throws(() => bindHost("/nowhere/libllama.so"));
});
