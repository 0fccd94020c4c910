"use strict";

const { invalid } = require("./errors.cjs");
const { Held, candidates, check, declare, int32, lastError, logitsOf, made, number, shown } =
    require("./library.cjs");

const entropyOf = declare("entropy", "float", "void *", "int32_t", "int");
const surprisalOf = declare("surprisal", "float", "void *", "int32_t", "int32_t", "int");
const greedyOf = declare("greedy", "int32_t", "void *", "int32_t");
const topOf = declare("top_candidates", "int", "void *", "int32_t", "int32_t", "void *");

function base(unit) {
    if (unit !== "nats" && unit !== "bits") {
        throw invalid(`unit: ${shown(unit)} is neither "nats" nor "bits"`);
    }
    return unit === "bits" ? 2 : 0;
}

function defined(value) {
    if (Number.isNaN(value)) {
        throw invalid(lastError() || "not defined");
    }
    return value;
}

function entropy(logits, unit = "nats") {
    const { n } = logitsOf(logits);
    return defined(entropyOf(logits, n, base(unit)));
}

function surprisal(logits, token, unit = "nats") {
    const { n } = logitsOf(logits);
    return defined(surprisalOf(logits, n, int32(token, "token"), base(unit)));
}

function greedy(logits) {
    const { n } = logitsOf(logits);
    return check(greedyOf(logits, n));
}

function topCandidates(logits, nTop) {
    const { n } = logitsOf(logits);
    const wanted = int32(nTop, "n");
    if (wanted < 0) {
        throw invalid(`n: ${wanted} is below 0`);
    }
    const room = Math.min(wanted, n);
    if (room === 0) {
        return [];
    }
    return candidates(room, (bytes) => check(topOf(logits, n, room, bytes)));
}

const add = declare("ppl_add", "void", "void *", "float");
const value = declare("ppl_value", "float", "void *");
const count = declare("ppl_count", "size_t", "void *");
const reset = declare("ppl_reset", "void", "void *");

class Perplexity extends Held {
    static #create = declare("ppl_new", "void *");
    static #free = declare("ppl_free", "void", "void *");

    constructor() {
        super(made(Perplexity.#create()), Perplexity.#free);
    }

    add(surprisal) {
        if (Number.isNaN(number(surprisal, "surprisal"))) {
            throw invalid("surprisal: NaN");
        }
        add(this.handle, surprisal);
    }

    get value() {
        return value(this.handle);
    }

    get count() {
        return Number(count(this.handle));
    }

    reset() {
        reset(this.handle);
    }
}

module.exports = { Perplexity, entropy, greedy, surprisal, topCandidates };
