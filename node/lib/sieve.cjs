"use strict";

const koffi = require("koffi");

const { invalid } = require("./errors.cjs");
const {
    Held,
    biasBytes,
    biasPairs,
    candidates,
    check,
    declare,
    int32,
    elements,
    logitsOf,
    made,
    number,
    shown,
    size,
} = require("./library.cjs");
const { Sampler } = require("./samplers.cjs");

/** The seed that selects a random one, which changes at each reset. */
const RANDOM_SEED = 0xffffffff;

const RNG = { xoroshiro128plus: 0, mt19937: 1, position: 2 };
const METHOD = { cdf: 0, gumbel: 1 };
const ORDER = { "temp-last": 0, "temp-first": 1 };

const NATIVE_PARAMS = koffi.struct({
    struct_size: "size_t",
    temperature: "float",
    top_k: "int32_t",
    top_p: "float",
    min_p: "float",
    typical_p: "float",
    top_n_sigma: "float",
    min_keep: "size_t",
    penalty_last_n: "int32_t",
    penalty_repeat: "float",
    penalty_freq: "float",
    penalty_present: "float",
    seed: "uint64_t",
    mode: "int32_t",
    rng: "int32_t",
    method: "int32_t",
    order: "int32_t",
    bias: "void *",
    n_bias: "size_t",
});

// Name in JavaScript: name in C, and the check of its value.
const PARAMS = {
    temperature: ["temperature", number],
    topK: ["top_k", int32],
    topP: ["top_p", number],
    minP: ["min_p", number],
    typicalP: ["typical_p", number],
    topNSigma: ["top_n_sigma", number],
    minKeep: ["min_keep", size],
    penaltyLastN: ["penalty_last_n", int32],
    penaltyRepeat: ["penalty_repeat", number],
    penaltyFreq: ["penalty_freq", number],
    penaltyPresent: ["penalty_present", number],
    seed: ["seed", size],
    rng: ["rng", (value, what) => oneOf(RNG, value, what)],
    method: ["method", (value, what) => oneOf(METHOD, value, what)],
    order: ["order", (value, what) => oneOf(ORDER, value, what)],
};

const NATIVE_STATS = koffi.struct({
    struct_size: "size_t",
    model_entropy: "float",
    surprisal: "float",
    sampling_entropy: "float",
    n_vocab: "int32_t",
    after_top_k: "int32_t",
    after_typical: "int32_t",
    after_top_p: "int32_t",
    after_min_p: "int32_t",
    after_top_n_sigma: "int32_t",
    sampling_surprisal: "float",
    n_accepted: "uint64_t",
});

const PARAMS_POINTER = koffi.pointer(NATIVE_PARAMS);
const defaultParams = declare("default_params", NATIVE_PARAMS);
const create = declare("new", "void *", PARAMS_POINTER);
const clone = declare("clone", "void *", "void *");
const free = declare("free", "void", "void *");
const setParams = declare("set_params", "int", "void *", PARAMS_POINTER);
const accept = declare("accept", "void", "void *", "int32_t");
const reset = declare("reset", "void", "void *");
const sample = {
    f32: declare("sample", "int32_t", "void *", "void *", "int32_t"),
    f16: declare("sample_f16", "int32_t", "void *", "void *", "int32_t"),
    bf16: declare("sample_bf16", "int32_t", "void *", "void *", "int32_t"),
};
const candidatesOf = declare("candidates", "int", "void *", "void *", "size_t");
const measure = declare("measure", "int", "void *", "bool");
const lastStats = declare("last_stats", "int", "void *", koffi.inout(koffi.pointer(NATIVE_STATS)));
const NATIVE_STAGES = koffi.struct({
    struct_size: "size_t",
    stages: "int32_t *",
    n_stages: "size_t",
    dry_multiplier: "float",
    dry_base: "float",
    dry_allowed_length: "int32_t",
    dry_penalty_last_n: "int32_t",
    xtc_probability: "float",
    xtc_threshold: "float",
    dynatemp_range: "float",
    dynatemp_exponent: "float",
    mirostat_tau: "float",
    mirostat_eta: "float",
    mirostat_m: "int32_t",
    adaptive_target: "float",
    adaptive_decay: "float",
});

// In the order of their numbers in C, which start at 1.
const STAGES = [
    "penalties",
    "dry",
    "topK",
    "typical",
    "topP",
    "minP",
    "topNSigma",
    "xtc",
    "temperature",
    "dynamicTemperature",
    "mirostat",
    "mirostatV2",
    "adaptiveP",
];
const STAGE_SAMPLER = 64;
const MAX_SAMPLERS = 16;

// Name in JavaScript: name in C, and the check of its value.
const NUMBERS_OF_STAGES = {
    dryMultiplier: ["dry_multiplier", number],
    dryBase: ["dry_base", number],
    dryAllowedLength: ["dry_allowed_length", int32],
    dryPenaltyLastN: ["dry_penalty_last_n", int32],
    xtcProbability: ["xtc_probability", number],
    xtcThreshold: ["xtc_threshold", number],
    dynatempRange: ["dynatemp_range", number],
    dynatempExponent: ["dynatemp_exponent", number],
    mirostatTau: ["mirostat_tau", number],
    mirostatEta: ["mirostat_eta", number],
    mirostatM: ["mirostat_m", int32],
    adaptiveTarget: ["adaptive_target", number],
    adaptiveDecay: ["adaptive_decay", number],
};

const defaultStages = declare("default_stages", NATIVE_STAGES);
const setStages = declare("set_stages", "int", "void *", koffi.pointer(NATIVE_STAGES));
const setSampler = declare("set_sampler", "int", "void *", "int32_t", "void *");
const stateSize = declare("state_size", "size_t", "void *");
const stateSave = declare("state_save", "int", "void *", "void *", "size_t");
const stateLoad = declare("state_load", "int", "void *", "void *", "size_t");

function oneOf(names, value, what) {
    if (!Object.hasOwn(names, value)) {
        const known = Object.keys(names).join(", ");
        throw invalid(`${what}: ${shown(value)} is none of ${known}`);
    }
    return names[value];
}

/** Returns the C number of a stage, given its name or the slot of a sampler. */
function stageOf(stage) {
    const place = STAGES.indexOf(stage);
    if (place >= 0) {
        return place + 1;
    }
    if (Number.isInteger(stage) && stage >= 0 && stage < MAX_SAMPLERS) {
        return STAGE_SAMPLER + stage;
    }
    const names = STAGES.join(", ");
    throw invalid(`stages: ${shown(stage)} is none of ${names}, and no slot of a sampler, 0 to 15`);
}

/** Returns the C struct for an order of stages and their parameters. */
function nativeStages(order, numbers) {
    const found = defaultStages();
    const stages = Int32Array.from([...order].map(stageOf));
    found.stages = stages;
    found.n_stages = stages.length;
    for (const [name, value] of Object.entries(numbers)) {
        if (value === undefined) {
            continue;
        }
        if (!Object.hasOwn(NUMBERS_OF_STAGES, name)) {
            throw invalid(`${name} is no number of a stage`);
        }
        const [member, convert] = NUMBERS_OF_STAGES[name];
        found[member] = convert(value, name);
    }
    return found;
}

/** Returns a copy of the parameters, whose biases the caller cannot change. */
function copied(params) {
    const found = { ...params };
    if (found.bias !== undefined) {
        found.bias = new Map(biasPairs(found.bias));
    }
    return found;
}

/** Returns the C struct for copied parameters. */
function native(params) {
    const found = defaultParams();
    for (const [name, value] of Object.entries(params)) {
        if (value === undefined || name === "bias") {
            continue;
        }
        if (!Object.hasOwn(PARAMS, name)) {
            throw invalid(`${name} is no parameter of a sieve`);
        }
        const [member, convert] = PARAMS[name];
        found[member] = convert(value, name);
    }
    const bias = biasBytes([...(params.bias ?? [])]);
    if (bias.length > 0) {
        found.bias = bias;
        found.n_bias = bias.length / 8;
    }
    return found;
}

/** Marks the second argument of the constructor as that of `clone`. */
const HANDLE = Symbol("handle");

class Sieve extends Held {
    #params;

    constructor(params = {}, clone = {}) {
        const own = copied(params);
        super(clone[HANDLE] ?? made(create(native(own))), free);
        this.#params = own;
    }

    sample(logits, kind) {
        const found = logitsOf(logits, kind);
        return check(sample[found.kind](this.handle, logits, found.n));
    }

    accept(token) {
        if (int32(token, "token") < 0) {
            throw invalid(`token: ${token} is negative`);
        }
        accept(this.handle, token);
    }

    reset() {
        reset(this.handle);
    }

    get params() {
        return copied(this.#params);
    }

    update(changes) {
        const params = copied({ ...this.#params, ...changes });
        const found = native(params);
        // Read the handle only after code of the caller's may have run, which may close this.
        check(setParams(this.handle, found));
        this.#params = params;
    }

    setStages(order, numbers = {}) {
        const found = order === undefined ? null : nativeStages(order, numbers);
        check(setStages(this.handle, found));
    }

    setSampler(slot, sampler) {
        const place = int32(slot, "slot");
        if (sampler !== undefined && !(sampler instanceof Sampler)) {
            throw invalid("what is put into a slot is a Sampler");
        }
        check(setSampler(this.handle, place, sampler === undefined ? null : sampler.handle));
    }

    clone() {
        return new Sieve(this.#params, { [HANDLE]: made(clone(this.handle)) });
    }

    candidates() {
        const n = check(candidatesOf(this.handle, null, 0));
        return candidates(n, (bytes) => check(candidatesOf(this.handle, bytes, n)));
    }

    measure(measured = true) {
        check(measure(this.handle, Boolean(measured)));
    }

    get stats() {
        const found = { struct_size: koffi.sizeof(NATIVE_STATS) };
        check(lastStats(this.handle, found));
        return {
            modelEntropy: found.model_entropy,
            surprisal: found.surprisal,
            samplingEntropy: found.sampling_entropy,
            samplingSurprisal: found.sampling_surprisal,
            nVocab: found.n_vocab,
            afterTopK: found.after_top_k,
            afterTypical: found.after_typical,
            afterTopP: found.after_top_p,
            afterMinP: found.after_min_p,
            afterTopNSigma: found.after_top_n_sigma,
            nAccepted: Number(found.n_accepted),
        };
    }

    save() {
        const bytes = new Uint8Array(Number(stateSize(this.handle)));
        check(stateSave(this.handle, bytes, bytes.length));
        return bytes;
    }

    load(state) {
        const n = elements(state, Uint8Array, "state");
        check(stateLoad(this.handle, state, n));
    }
}

module.exports = { RANDOM_SEED, Sieve };
