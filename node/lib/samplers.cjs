"use strict";

// Samplers for llama.cpp's chains, and the chain itself.

const koffi = require("koffi");

const { invalid } = require("./errors.cjs");
const { hostFunction, vocabulary } = require("./host.cjs");
const {
    Held,
    biasBytes,
    biasPairs,
    candidates,
    check,
    declare,
    int32,
    lastError,
    logitsOf,
    made,
    number,
    pointer,
    size,
    texts,
    uint32,
} = require("./library.cjs");

function free(handle) {
    hostFunction("llama_sampler_free", "void", "void *")(handle);
}

/** A llama_sampler, freed with the object until a chain owns it. */
class Sampler extends Held {
    #chain = null;

    /** Takes ownership of the sampler that a constructor of the library has made. */
    constructor(handle) {
        super(made(handle), free);
    }

    /** Throws InvalidError if the sampler cannot be given to a chain. */
    checkFree() {
        if (this.#chain !== null) {
            throw invalid("the sampler already belongs to a chain");
        }
        void super.handle;
    }

    /** Returns the address for a chain, which then owns the sampler; this object keeps working. */
    give(chain) {
        this.checkFree();
        const handle = this.release();
        this.#chain = { chain, handle };
        return handle;
    }

    get handle() {
        if (this.#chain === null) {
            return super.handle;
        }
        // Throws if the chain is closed.
        void this.#chain.chain.handle;
        return this.#chain.handle;
    }

    close() {
        if (this.#chain === null) {
            super.close();
        }
    }

    get name() {
        return hostFunction("llama_sampler_name", "str", "void *")(this.handle);
    }

    accept(...tokens) {
        const accept = hostFunction("llama_sampler_accept", "void", "void *", "int32_t");
        tokens.map((token) => int32(token, "token")).forEach((token) => accept(this.handle, token));
    }

    reset() {
        hostFunction("llama_sampler_reset", "void", "void *")(this.handle);
    }
}

/** Returns the sampler that `llama_sieve_init_NAME` makes from checked arguments. */
function init(name, ...types) {
    const create = declare(`init_${name}`, "void *", ...types);
    return (...values) => {
        // A sampler needs a host, which frees it, so this throws without one.
        hostFunction("llama_sampler_free", "void", "void *");
        return new Sampler(create(...values));
    };
}

const native = {
    greedy: init("greedy"),
    dist: init("dist", "uint32_t"),
    topK: init("top_k", "int32_t"),
    topP: init("top_p", "float", "size_t"),
    minP: init("min_p", "float", "size_t"),
    typical: init("typical", "float", "size_t"),
    temp: init("temp", "float"),
    tempExt: init("temp_ext", "float", "float", "float"),
    xtc: init("xtc", "float", "float", "size_t", "uint32_t"),
    topNSigma: init("top_n_sigma", "float"),
    mirostat: init("mirostat", "int32_t", "uint32_t", "float", "float", "int32_t"),
    mirostatV2: init("mirostat_v2", "uint32_t", "float", "float"),
    penalties: init("penalties", "int32_t", "int32_t", "float", "float", "float"),
    dry: init("dry", "void *", "float", "float", "int32_t", "int32_t", "const char **", "size_t"),
    adaptiveP: init("adaptive_p", "float", "float", "uint32_t"),
    logitBias: init("logit_bias", "int32_t", "int32_t", "void *"),
    tailFree: init("tail_free", "float", "size_t"),
    softmax: init("softmax"),
    topA: init("top_a", "float"),
    epsilonCutoff: init("epsilon_cutoff", "float"),
    etaCutoff: init("eta_cutoff", "float"),
    pLess: init("p_less", "bool"),
    topH: init("top_h", "float"),
    minK: init("min_k", "float"),
    quadratic: init("quadratic", "float", "float"),
};

const LOOP_PARAMS = koffi.struct({
    struct_size: "size_t",
    action: "int32_t",
    max_period: "int32_t",
    min_tokens: "int32_t",
    temperature: "float",
    tokens: "int32_t *",
    n_tokens: "size_t",
    vocab: "void *",
});
const loopBreaker = init("loop_breaker", koffi.pointer(LOOP_PARAMS));

/** In the order of LLAMA_SIEVE_LOOP_*. */
const LOOP_ACTIONS = ["ban", "temperature", "force", "end"];

const samplers = {
    greedy: () => native.greedy(),
    dist: (seed) => native.dist(uint32(seed, "seed")),
    topK: (k) => native.topK(int32(k, "k")),
    topP: (p, minKeep = 1) => native.topP(number(p, "p"), size(minKeep, "minKeep")),
    minP: (p, minKeep = 1) => native.minP(number(p, "p"), size(minKeep, "minKeep")),
    typical: (p, minKeep = 1) => native.typical(number(p, "p"), size(minKeep, "minKeep")),
    temp: (t) => native.temp(number(t, "t")),
    tempExt: (t, delta, exponent) =>
        native.tempExt(number(t, "t"), number(delta, "delta"), number(exponent, "exponent")),
    xtc: (p, t, minKeep, seed) =>
        native.xtc(number(p, "p"), number(t, "t"), size(minKeep, "minKeep"), uint32(seed, "seed")),
    topNSigma: (n) => native.topNSigma(number(n, "n")),
    mirostat: (nVocab, seed, tau, eta, m = 100) =>
        native.mirostat(
            int32(nVocab, "nVocab"),
            uint32(seed, "seed"),
            number(tau, "tau"),
            number(eta, "eta"),
            int32(m, "m"),
        ),
    mirostatV2: (seed, tau, eta) =>
        native.mirostatV2(uint32(seed, "seed"), number(tau, "tau"), number(eta, "eta")),
    // The size of the vocabulary is not needed.
    penalties: (lastN, repeat = 1, freq = 0, present = 0) =>
        native.penalties(
            0,
            int32(lastN, "lastN"),
            number(repeat, "repeat"),
            number(freq, "freq"),
            number(present, "present"),
        ),
    dry: (multiplier, { base = 1.75, allowedLength = 2, lastN = 64, breakers, vocab } = {}) => {
        const words = texts(breakers ?? ["\n", ":", '"', "*"], "breaker");
        return native.dry(
            vocab === undefined ? null : vocabulary(vocab),
            number(multiplier, "multiplier"),
            number(base, "base"),
            int32(allowedLength, "allowedLength"),
            int32(lastN, "lastN"),
            words,
            words.length,
        );
    },
    adaptiveP: (target, decay, seed) =>
        native.adaptiveP(number(target, "target"), number(decay, "decay"), uint32(seed, "seed")),
    logitBias: (bias) => {
        const bytes = biasBytes(biasPairs(bias));
        return native.logitBias(0, bytes.length / 8, bytes);
    },
    tailFree: (z, minKeep = 1) => native.tailFree(number(z, "z"), size(minKeep, "minKeep")),
    softmax: () => native.softmax(),
    topA: (a) => native.topA(number(a, "a")),
    epsilonCutoff: (epsilon) => native.epsilonCutoff(number(epsilon, "epsilon")),
    etaCutoff: (eta) => native.etaCutoff(number(eta, "eta")),
    pLess: (normalised = false) => native.pLess(Boolean(normalised)),
    topH: (alpha) => native.topH(number(alpha, "alpha")),
    minK: (tau = 0) => native.minK(number(tau, "tau")),
    quadratic: (factor, curve = 1) =>
        native.quadratic(number(factor, "factor"), number(curve, "curve")),
    loopBreaker: ({
        action = "ban",
        maxPeriod = 0,
        minTokens = 0,
        temperature = 0,
        tokens = [],
        vocab,
    } = {}) => {
        if (!LOOP_ACTIONS.includes(action)) {
            throw invalid(`the action is one of ${LOOP_ACTIONS.join(", ")}`);
        }
        const forced = Array.from(tokens, (token) => int32(token, "token"));
        return loopBreaker({
            struct_size: koffi.sizeof(LOOP_PARAMS),
            action: LOOP_ACTIONS.indexOf(action),
            max_period: int32(maxPeriod, "maxPeriod"),
            min_tokens: int32(minTokens, "minTokens"),
            temperature: number(temperature, "temperature"),
            tokens: forced,
            n_tokens: forced.length,
            vocab: vocab === undefined ? null : vocabulary(vocab),
        });
    },
};

const CHAIN_PARAMS = koffi.struct({ no_perf: "bool" });
const sample = {
    f32: declare("chain_sample_logits", "int32_t", "void *", "void *", "int32_t"),
    f16: declare("chain_sample_f16", "int32_t", "void *", "void *", "int32_t"),
    bf16: declare("chain_sample_bf16", "int32_t", "void *", "void *", "int32_t"),
};
const sampleContext = declare("chain_sample", "int32_t", "void *", "void *", "int32_t");
const candidatesOf = declare("chain_candidates", "int", "void *", "void *", "size_t");

/** A llama_sampler_chain, which owns its members. */
class Chain extends Sampler {
    // The array of the last token, and its length: the candidates may be computed from it again.
    #logits = null;
    #n = 0;
    #kind = "f32";

    constructor(...members) {
        if (new Set(members).size < members.length) {
            throw invalid("the same sampler is given twice");
        }
        members.forEach((member) => {
            if (!(member instanceof Sampler)) {
                throw invalid("a member of a chain is a Sampler");
            }
            // All members are checked before the first one is given to the chain.
            member.checkFree();
        });
        const create = hostFunction("llama_sampler_chain_init", "void *", CHAIN_PARAMS);
        super(create({ no_perf: true }));
        const add = hostFunction("llama_sampler_chain_add", "void", "void *", "void *");
        members.forEach((member) => add(this.handle, member.give(this)));
    }

    sample(logits, kind) {
        const found = logitsOf(logits, kind);
        this.#logits = null;
        const token = check(sample[found.kind](this.handle, logits, found.n));
        this.#logits = logits;
        this.#n = found.n;
        this.#kind = found.kind;
        return token;
    }

    sampleContext(context, index = -1) {
        this.#logits = null;
        const address = pointer(context, "context", "context");
        return check(sampleContext(this.handle, address, int32(index, "index")));
    }

    candidates() {
        if (this.#logits === null) {
            throw invalid("the chain has sampled no array yet");
        }
        // A buffer that was handed to another thread has no elements any more.
        if (logitsOf(this.#logits, this.#kind).n !== this.#n) {
            throw invalid("the array of logits was resized or transferred; keep it as it was");
        }
        const n = check(candidatesOf(this.handle, null, 0));
        if (n === 0) {
            throw invalid(lastError());
        }
        return candidates(n, (bytes) => check(candidatesOf(this.handle, bytes, n)));
    }
}

module.exports = { Chain, Sampler, samplers };
