// Tests the runner on the trained model of the repository: `node --test`, with LLAMA_SO,
// LLAMA_SIEVE_SO and LLAMA_SHIM_SO set, LLAMA_MODEL if it is elsewhere.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { loadKoffi, loadLlama, loadSieve, tokensBehind } from "./libraries.mjs";
import { Stream } from "./runner.mjs";

const PROMPT = "And the LORD said unto";
const NAMES = ["Moses", "Aaron", "Joshua the son of Nun"];

let host;
before(async () => {
    await loadKoffi();
    const llama = loadLlama(process.env.LLAMA_SO, process.env.LLAMA_SHIM_SO);
    const sieve = loadSieve(process.env.LLAMA_SIEVE_SO);
    const file = process.env.LLAMA_MODEL ?? fileURLToPath(new URL("../../models/kjv-tiny.gguf", import.meta.url));
    const model = llama.loadModel(file);
    assert.notEqual(model, null, `cannot load ${file}`);
    host = { llama, sieve, model };
});
after(() => host?.llama.modelFree(host.model));

function payload(names) {
    const vocab = host.llama.getVocab(host.model);
    const leaves = names.map((name) => ({ name, tokens: tokensBehind(host.llama, vocab, PROMPT, name) }));
    return { modelId: "test", descriptors: [{ path: "name", leaves }] };
}

/** Records the calls of the two functions that set and clear a constraint, in order. */
function watched() {
    const calls = [];
    const watch = (name) => (...args) => {
        calls.push(name);
        return host.sieve[name](...args);
    };
    const sieve = { ...host.sieve, setByHandle: watch("setByHandle"), clearByHandle: watch("clearByHandle") };
    return { calls, host: { ...host, sieve } };
}

async function all(stream, args) {
    const steps = [];
    for await (const step of stream.generate({ prompt: PROMPT, maxTokens: 24, ...args })) {
        steps.push(step);
    }
    return steps;
}

const textOf = (steps) => steps.map((step) => step.text).join("");

test("the constraint is set before the span and cleared behind it", async () => {
    const { calls, host } = watched();
    const stream = new Stream(host, { temp: 2, seed: 3 });
    const text = textOf(await all(stream, { tokenTreePayload: payload(NAMES) }));
    assert.deepEqual(calls, ["setByHandle", "clearByHandle"]);
    assert.ok(NAMES.includes(stream.leaf) || stream.leaf === null);
    assert.ok(NAMES.some((name) => text.startsWith(` ${name}`)), text);
    assert.equal(stream.isConstrained, false);
    stream.close();
});

test("without a payload nothing is set", async () => {
    const { calls, host } = watched();
    const stream = new Stream(host);
    assert.ok((await all(stream, {})).length > 0);
    assert.ok(!calls.includes("setByHandle"));
    stream.close();
});

test("a bad payload is named, and nothing is generated", async () => {
    const stream = new Stream(host);
    const bad = { descriptors: [{ path: "name", leaves: [{ name: "x", tokens: [999999] }] }] };
    await assert.rejects(all(stream, { tokenTreePayload: bad }), /999999/);
    stream.close();
});

test("what can follow alone is skipped ahead, in one step", async () => {
    const stream = new Stream(host);
    const [{ tokens }] = payload(["Joshua the son of Nun"]).descriptors[0].leaves;
    const steps = await all(stream, { tokenTreePayload: payload(["Joshua the son of Nun"]) });
    assert.deepEqual(steps[0], { tokens, text: " Joshua the son of Nun", forced: true });
    assert.ok(steps.slice(1).every((step) => !step.forced && step.tokens.length === 1));
    stream.close();
});

test("a generation that is aborted in the middle leaves no constraint", async () => {
    const { calls, host } = watched();
    const stream = new Stream(host, { seed: 5 });
    const controller = new AbortController();
    const steps = [];
    await assert.rejects(async () => {
        // The first step contains the common beginning of both values, after which the constraint
        // is still active.
        const names = payload(["Joshua the son of Nun", "Joshua the son of Josedech"]);
        const args = { prompt: PROMPT, maxTokens: 24, tokenTreePayload: names, signal: controller.signal };
        for await (const step of stream.generate(args)) {
            steps.push(step);
            assert.equal(stream.isConstrained, true);
            controller.abort();
        }
    }, /abort/i);
    assert.equal(steps.length, 1);
    assert.deepEqual(calls, ["setByHandle", "clearByHandle"]);
    assert.equal(stream.isConstrained, false);
    stream.close();
});

test("nor does one whose reader leaves", async () => {
    const stream = new Stream(host);
    // Stops at a value that is incomplete after its first token.
    for await (const step of stream.generate({ prompt: PROMPT, maxTokens: 1, tokenTreePayload: payload(["Joshua the son of Nun"]) })) {
        assert.equal(step.tokens.length, 1);
        assert.equal(stream.isConstrained, true);
        break;
    }
    assert.equal(stream.isConstrained, false);
    stream.close();
});

test("two streams at once keep their own constraints", async () => {
    const run = async (name, seed) => {
        const stream = new Stream(host, { seed });
        const text = textOf(await all(stream, { tokenTreePayload: payload([name, `${name} and his sons`]) }));
        stream.close();
        return text;
    };
    const alone = [await run("Moses", 1), await run("Aaron", 2)];
    const together = await Promise.all([run("Moses", 1), run("Aaron", 2)]);
    assert.deepEqual(together, alone);
    assert.ok(together[0].startsWith(" Moses") && together[1].startsWith(" Aaron"), together.join("|"));
});
