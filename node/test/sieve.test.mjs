// Tests that need no llama.cpp: sieve, metrics, schema to GBNF.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { Worker } from "node:worker_threads";

import {
    InvalidError,
    LlamaSieveError,
    NoCandidateError,
    NoHostError,
    Perplexity,
    Sieve,
    StateError,
    entropy,
    greedy,
    jsonSchemaToGbnf,
    samplers,
    simd,
    surprisal,
    topCandidates,
    version,
} from "llama-sieve";

/** Returns the softmax of logits in double precision. */
function softmax(logits) {
    const largest = Math.max(...logits);
    const weights = Array.from(logits, (logit) => Math.exp(logit - largest));
    const sum = weights.reduce((a, b) => a + b);
    return weights.map((weight) => weight / sum);
}

function near(a, b) {
    assert.ok(Math.abs(a - b) <= 1e-5 * Math.max(1, Math.abs(b)), `${a} is not ${b}`);
}

/** Returns the logits of the made-up model of examples/minimal. */
function model(token) {
    return Float32Array.from({ length: 1000 }, (_, i) => (((i + token) * 7919) % 1024) / 16);
}

test("what is imported is what is required", async () => {
    const required = createRequire(import.meta.url)("llama-sieve");
    const imported = await import("llama-sieve");
    assert.deepEqual(Object.keys(imported).sort(), Object.keys(required).sort());
    assert.ok(Object.keys(required).every((name) => imported[name] === required[name]));
    assert.match(version(), /^\d+\.\d+\.\d+$/);
    assert.match(simd(), /^(avx512|avx2|neon|scalar)(, scalar( expf| exp| logf)+)?$/);
});

test("a sieve gives the tokens of llama.cpp's default chain with its seed", () => {
    const sieve = new Sieve({ seed: 42 });
    const tokens = [];
    for (let n = 0, token = 0; n < 8; n++) {
        token = sieve.sample(model(token));
        sieve.accept(token);
        tokens.push(token);
    }
    // The tokens of examples/minimal.c, which another test compares with llama.cpp's.
    assert.deepEqual(tokens, [739, 240, 529, 330, 589, 405, 499, 450]);
    sieve.close();
});

test("parameters do what they say", () => {
    const logits = model(3);
    const sieve = new Sieve({ seed: 1, topK: 5, topP: 1, minP: 0, temperature: 2 });
    sieve.measure();
    sieve.sample(logits);
    const largest = [...logits.keys()].sort((a, b) => logits[b] - logits[a]).slice(0, 5);
    const candidates = sieve.candidates();
    assert.deepEqual(new Set(candidates.map(({ id }) => id)), new Set(largest));
    const p = softmax(largest.map((token) => logits[token] / 2));
    candidates.forEach(({ id, p: found }) => near(found, p[largest.indexOf(id)]));
    near(sieve.stats.modelEntropy, entropy(logits));
    assert.equal(sieve.stats.afterTopK, 5);

    const [first] = largest;
    sieve.update({ bias: { [first]: -Infinity }, topK: 1 });
    assert.equal(sieve.sample(logits), largest[1]);
    sieve.update({ bias: new Map([[7, 1000]]) });
    assert.equal(sieve.sample(logits), 7);
    assert.equal(sieve.params.temperature, 2);

    // A penalised token is no longer the best.
    const penalised = new Sieve({ topK: 1, penaltyPresent: 1000 });
    penalised.accept(first);
    assert.equal(penalised.sample(logits), largest[1]);
});

test("half precision is read as it is", () => {
    const sieve = new Sieve({ topK: 1 });
    // 1, 2 and 0.5.
    assert.equal(sieve.sample(Uint16Array.of(0x3c00, 0x4000, 0x3800), "f16"), 1);
    assert.equal(sieve.sample(Uint16Array.of(0x3f80, 0x4000, 0x3f00), "bf16"), 1);
    assert.throws(() => sieve.sample(Uint16Array.of(1, 2)), /Float32Array is expected/);
    assert.throws(() => sieve.sample(Float32Array.of(1, 2), "f16"), /Uint16Array is expected/);
    assert.throws(() => sieve.sample(Float32Array.of(1, 2), "f64"), InvalidError);
});

test("a state goes on where it was saved, and a clone as its original", () => {
    const sieve = new Sieve({ seed: 7, penaltyRepeat: 1.3 });
    for (let n = 0; n < 5; n++) {
        sieve.accept(sieve.sample(model(n)));
    }
    const state = sieve.save();
    const clone = sieve.clone();
    const rest = (sieve) => Array.from({ length: 9 }, (_, n) => sieve.sample(model(n)));
    const expected = rest(sieve);
    assert.deepEqual(rest(clone), expected);
    sieve.load(state);
    assert.deepEqual(rest(sieve), expected);
    const other = new Sieve({ seed: 8, penaltyRepeat: 1.3 });
    assert.notDeepEqual(rest(other), expected);
    other.load(state);
    assert.deepEqual(rest(other), expected);
    state[20] ^= 1;
    assert.throws(() => other.load(state), StateError);
    assert.throws(() => other.load(state.buffer), InvalidError);
});

test("stages run in the order that is set", () => {
    const logits = Float32Array.from({ length: 60 }, (_, i) => (i * 37) % 60);
    const sieve = new Sieve({ seed: 3, topK: 5 });
    sieve.setStages(["penalties", "topK"]);
    sieve.sample(logits);
    assert.equal(sieve.candidates().length, 5);
    sieve.setStages(["topK", "xtc"], { xtcProbability: 1, xtcThreshold: 0.001 });
    sieve.sample(logits);
    assert.ok(sieve.candidates().length < 5);
    sieve.setStages([]);
    sieve.sample(logits);
    assert.equal(sieve.candidates().length, 60);
    sieve.setStages();
    sieve.sample(logits);
    assert.ok(sieve.candidates().length <= 5);
    for (const [order, numbers, says] of [
        [["topk"], {}, /topk.* is none of/],
        [[16], {}, /no slot/],
        [["topK", "topK"], {}, /named twice/],
        [["mirostat", "topK"], {}, /must be the last/],
        [["xtc"], { xtc: 1 }, /no number of a stage/],
        [["xtc"], { xtcThreshold: NaN }, /finite/],
    ]) {
        assert.throws(() => sieve.setStages(order, numbers), says);
    }
    sieve.close();
});

test("metrics are those of double precision", () => {
    const logits = Float32Array.from({ length: 500 }, (_, i) => Math.sin(i * i) * 6);
    const p = softmax(logits);
    near(entropy(logits), -p.reduce((sum, p) => sum + p * Math.log(p), 0));
    near(entropy(logits, "bits"), -p.reduce((sum, p) => sum + p * Math.log2(p), 0));
    near(surprisal(logits, 17), -Math.log(p[17]));
    const order = [...p.keys()].sort((a, b) => p[b] - p[a]);
    assert.equal(greedy(logits), order[0]);
    const top = topCandidates(logits, 4);
    assert.deepEqual(top.map(({ id }) => id), order.slice(0, 4));
    top.forEach((candidate) => near(candidate.p, p[candidate.id]));
    assert.deepEqual(topCandidates(logits, 0), []);
    assert.throws(() => topCandidates(logits, -1), /n: -1 is below 0/);
    assert.equal(topCandidates(logits, 10 ** 6).length, 500);
    assert.throws(() => surprisal(logits, 500), InvalidError);
    assert.throws(() => entropy(logits, "hartleys"), InvalidError);

    const perplexity = new Perplexity();
    [1, 2, 3].forEach((surprisal) => perplexity.add(surprisal));
    near(perplexity.value, Math.exp(2));
    assert.equal(perplexity.count, 3);
    perplexity.reset();
    assert.ok(Number.isNaN(perplexity.value));
    assert.throws(() => perplexity.add(NaN), InvalidError);
});

test("a schema becomes a grammar's text", () => {
    const gbnf = jsonSchemaToGbnf({ type: "object", properties: { "\u00e9": { const: 1 } } });
    assert.match(gbnf, /root ::=/);
    assert.equal(gbnf.indexOf("\0"), -1);
    assert.notEqual(gbnf, jsonSchemaToGbnf('{"type": "object"}', { compact: true }));
    assert.match(jsonSchemaToGbnf(true), /root ::=/);
    assert.match(jsonSchemaToGbnf({ type: "integer" }, { llamaCpp: true }), /root ::=/);
    assert.throws(() => jsonSchemaToGbnf({ pattern: "(?=a)" }), (error) => {
        assert.ok(error instanceof LlamaSieveError && error.code < 0);
        return /pattern/.test(error.message);
    });
    assert.throws(() => jsonSchemaToGbnf({}, { strict: true }), /strict is none of/);
    assert.throws(() => jsonSchemaToGbnf(undefined), InvalidError);
});

test("what cannot be is refused, and named", () => {
    const sieve = new Sieve();
    const logits = Float32Array.of(1, 2);
    const cases = [
        [() => new Sieve({ top_k: 3 }), /top_k is no parameter/],
        [() => new Sieve({ topK: 2 ** 31 }), /topK: 2147483648/],
        [() => new Sieve({ topK: "40" }), /topK: "40"/],
        [() => new Sieve({ topP: NaN }), /top_p/],
        [() => new Sieve({ rng: "toString" }), /rng: "toString" is none of/],
        [() => new Sieve({ seed: -1 }), /seed: -1/],
        [() => new Sieve({ bias: { a: 1 } }), /bias: token: "a"/],
        [() => new Sieve({ bias: { "": 1 } }), /bias: token: ""/],
        [() => new Sieve({ bias: new Map([[null, 1]]) }), /bias: token: null/],
        [() => new Sieve({ bias: 5 }), /bias: a Map/],
        [() => greedy(Object.create(Float32Array.prototype)), /Float32Array/],
        [() => sieve.accept(-1), /-1 is negative/],
        [() => sieve.accept(1.5), /token: 1.5/],
        [() => sieve.sample([1, 2]), /Float32Array/],
        [() => sieve.sample(new Float32Array(0)), /n_vocab/],
        [() => surprisal(logits, null), /token: null/],
    ];
    for (const [call, message] of cases) {
        assert.throws(call, (error) => {
            return error instanceof InvalidError && message.test(error.message);
        });
    }
    assert.throws(() => sieve.sample(Float32Array.of(-Infinity, NaN)), NoCandidateError);
    sieve.close();
    sieve.close();
    assert.throws(() => sieve.sample(logits), /the Sieve is closed/);
    assert.throws(() => samplers.topK(40), NoHostError);
});

test("an array is as long as it is, and a caller's code cannot end a call", () => {
    const logits = Float32Array.of(1, 3, 2);
    Object.defineProperty(logits, "length", { value: 2 ** 30 });
    assert.equal(greedy(logits), 1);
    assert.equal(new Sieve({ topK: 1 }).sample(logits), 1);
    class Long extends Float32Array {
        get length() {
            return 2 ** 30;
        }
    }
    assert.equal(topCandidates(new Long([1, 3, 2]), 9).length, 3);

    const sieve = new Sieve();
    const bias = {
        get 5() {
            sieve.close();
            return 1;
        },
    };
    assert.throws(() => sieve.update({ bias }), /the Sieve is closed/);
});

test("a bias is the sieve's own", () => {
    const bias = { 1: -Infinity };
    const sieve = new Sieve({ topK: 1, bias });
    bias[0] = -Infinity;
    sieve.params.bias.clear();
    sieve.update({ temperature: 0.5 });
    assert.equal(sieve.sample(Float32Array.of(3, 4, 2)), 0);
});

test("what nobody closes is freed with its object", async () => {
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc");
    const logits = new Float32Array(1 << 20).map((_, i) => Math.sin(i));
    const grown = async (n) => {
        for (let i = 0; i < n; i++) {
            // Keeps all candidates, which take some megabytes.
            new Sieve({ topK: 0, topP: 1, minP: 0 }).sample(logits);
            collect();
            await new Promise(setImmediate);
        }
        return process.memoryUsage().rss;
    };
    const before = await grown(10);
    assert.ok((await grown(100)) - before < 100 << 20);
});

test("what a worker has not closed is freed when it exits", async () => {
    const program = `
        const { Sieve } = require(require("node:worker_threads").workerData);
        // Each sieve keeps 36 MiB, and no object is collected before the end. Above 32 MiB, malloc
        // gives every block back to the system; what threads keep of smaller ones is up to chance.
        const logits = new Float32Array(9 << 20);
        const kept = Array.from({ length: 3 }, () => new Sieve({ topK: 0, topP: 1, minP: 0 }));
        kept.forEach((sieve) => sieve.sample(logits));
        kept[0].close();`;
    const library = createRequire(import.meta.url).resolve("llama-sieve");
    const afterWorkers = async (n) => {
        for (let i = 0; i < n; i++) {
            const worker = new Worker(program, { eval: true, workerData: library });
            await new Promise((ended, failed) => worker.on("error", failed).on("exit", ended));
        }
        return process.memoryUsage().rss;
    };
    const before = await afterWorkers(3);
    assert.ok((await afterWorkers(8)) - before < 100 << 20);
});
