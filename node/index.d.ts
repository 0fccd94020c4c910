/**
 * Samplers for llama.cpp that choose the tokens of the built-in ones, and constraints on the text.
 *
 * Logits are read in place. No object is shared between worker threads: each has its own. Every
 * object that holds native memory has `close()`; otherwise the memory is freed when the object is
 * collected, or when the worker thread that made it exits, unless that is terminated. A closed
 * object throws InvalidError.
 */

/** An error, with the library's text. */
export class LlamaSieveError extends Error {
    /** LLAMA_SIEVE_ERROR_* of llama_sieve.h; 0 if there is none. */
    readonly code: number;
}
/** An invalid parameter, payload or size. */
export class InvalidError extends LlamaSieveError {}
/** No llama.cpp was found in this process, or the given library is not one. */
export class NoHostError extends LlamaSieveError {}
/** There is no token to choose: every logit, or the selected one's, is minus infinity or NaN. */
export class NoCandidateError extends LlamaSieveError {}
/** A state cannot be saved, or saved bytes cannot be restored; the message says why. */
export class StateError extends LlamaSieveError {}
/** There is nothing with the requested name, or no preload library. */
export class NotFoundError extends LlamaSieveError {}

/** Version of the library, "major.minor.patch". */
export function version(): string;
/**
 * Instruction set in use, "avx512", "avx2", "neon" or "scalar", and the C library's functions that
 * are called because the vector forms would not give the same bits, such as "avx512, scalar expf
 * exp logf".
 */
export function simd(): string;

/** Raw logits of the whole vocabulary: floats, or the bits of half-precision numbers. */
export type Logits = Float32Array | Uint16Array;
/**
 * The type of logits: "f32" (the default) for a Float32Array, "f16" or "bf16" for a Uint16Array.
 */
export type LogitsKind = "f32" | "f16" | "bf16";

export interface Candidate {
    id: number;
    logit: number;
    /** Probability. */
    p: number;
}

/** The seed that selects a random one, which changes at each reset. */
export const RANDOM_SEED: number;

/** Parameters of a sieve. The defaults are llama.cpp's. */
export interface SieveParams {
    /** Divides the logits. Default 0.8. 1 has no effect; below 0.001 selects the most probable. */
    temperature?: number;
    /** Keeps this many of the largest logits. Default 40; disabled by <= 0. */
    topK?: number;
    /**
     * Keeps the smallest set of the most probable tokens with sum >= this. Default 0.95; off by >=
     * 1.
     */
    topP?: number;
    /**
     * Keeps tokens with at least this fraction of the largest probability. Default 0.05; disabled
     * by <= 0.
     */
    minP?: number;
    /**
     * Keeps the tokens with surprisal nearest to the entropy, until their probabilities add up to
     * more than this. Default 1; disabled by >= 1.
     */
    typicalP?: number;
    /** Keeps logits within this many standard deviations of the largest. Default -1: disabled. */
    topNSigma?: number;
    /** The least number of tokens that typical, top-p, min-p and XTC keep. Default 1. */
    minKeep?: number;
    /** The number of most recent tokens that are penalised. Default 64; disabled by <= 0. */
    penaltyLastN?: number;
    /** Divides logits above 0, multiplies the others. Default 1, which disables. */
    penaltyRepeat?: number;
    /** The penalty subtracted once per occurrence. Default 0, which disables it. */
    penaltyFreq?: number;
    /** The penalty subtracted once. Default 0, which disables it. */
    penaltyPresent?: number;
    /** The seed. Default RANDOM_SEED. */
    seed?: number;
    /** The generator. Default "mt19937", llama.cpp's; "position": a hash of seed and position. */
    rng?: "mt19937" | "xoroshiro128plus" | "position";
    /** How to draw. Default "cdf"; "gumbel": the largest logit / temperature + Gumbel noise. */
    method?: "cdf" | "gumbel";
    /** The temperature's position: after all filters (default), or right after the penalties. */
    order?: "temp-last" | "temp-first";
    /** Biases added to the logits of tokens; -Infinity bans a token. */
    bias?: Map<number, number> | Record<number, number>;
}

/**
 * Statistics of the last token's distribution. Entropies and surprisals are in nats, and NaN unless
 * requested by `measure`.
 */
export interface SieveStats {
    /** Entropy of the raw logits. */
    modelEntropy: number;
    /** Surprisal of the chosen token in the raw logits' distribution. */
    surprisal: number;
    /** Entropy of the distribution that was drawn from. */
    samplingEntropy: number;
    /** Surprisal of the chosen token in the distribution that was drawn from. */
    samplingSurprisal: number;
    nVocab: number;
    /** The number of candidates left after each filter. */
    afterTopK: number;
    afterTypical: number;
    afterTopP: number;
    afterMinP: number;
    afterTopNSigma: number;
    /** The number of tokens that had been accepted when this one was chosen. */
    nAccepted: number;
}

/** An object that holds native memory. */
declare abstract class Held {
    /** Frees the memory now. A second call does nothing. */
    close(): void;
    [Symbol.dispose](): void;
}

/** One stage of a sieve: its name, or the number of a slot that holds a sampler. */
export type Stage =
    | "penalties"
    | "dry"
    | "topK"
    | "typical"
    | "topP"
    | "minP"
    | "topNSigma"
    | "xtc"
    | "temperature"
    | "dynamicTemperature"
    | "mirostat"
    | "mirostatV2"
    | "adaptiveP"
    | number;

/** Parameters of stages that `SieveParams` does not have. Omitted ones have their defaults. */
export interface NumbersOfStages {
    dryMultiplier?: number;
    dryBase?: number;
    dryAllowedLength?: number;
    dryPenaltyLastN?: number;
    xtcProbability?: number;
    xtcThreshold?: number;
    dynatempRange?: number;
    dynatempExponent?: number;
    mirostatTau?: number;
    mirostatEta?: number;
    mirostatM?: number;
    adaptiveTarget?: number;
    adaptiveDecay?: number;
}

/** A sampler of one sequence over raw logits; needs no llama.cpp. */
export class Sieve extends Held {
    constructor(params?: SieveParams);
    /**
     * Chooses a token from raw logits, without accepting it.
     * @throws NoCandidateError if no logit is above minus infinity
     */
    sample(logits: Logits, kind?: LogitsKind): number;
    /** Accepts a token that has become part of the text, whether or not the sieve chose it. */
    accept(token: number): void;
    /** Returns to the initial state: no history, the generator at its seed. */
    reset(): void;
    /** The parameters that were set. */
    readonly params: SieveParams;
    /**
     * Changes some parameters from the next token on; the history stays, and so does the generator
     * unless `rng` changes.
     */
    update(changes: SieveParams): void;
    /**
     * Sets the stages, in order, from the next token on: names, and slots of samplers. Stages that
     * were in force before keep their memory. `undefined` restores the order of the parameters.
     */
    setStages(order?: Iterable<Stage>, numbers?: NumbersOfStages): void;
    /**
     * Copies a sampler in its current state into a slot, 0 to 15; `undefined` empties the slot. The
     * copy runs at the slot's position among the stages, and accepts every token that the sieve
     * accepts. The sampler must be one of this library's that does not select, such as one that
     * truncates, banned texts, a loop breaker, or a grammar. `save` includes the memory of bans and
     * loop breakers, and refuses other samplers with memory.
     */
    setSampler(slot: number, sampler?: Sampler): void;
    /** Returns an independent copy in the same state. */
    clone(): Sieve;
    /** Returns the distribution that the last token was drawn from. */
    candidates(): Candidate[];
    /** Sets whether `stats` has entropies and surprisals, which cost a pass over the logits. */
    measure(measured?: boolean): void;
    readonly stats: SieveStats;
    /** Returns history, generator, parameters and the memory of stages, in a portable format. */
    save(): Uint8Array;
    /** Restores what `save` has returned, except the parameters. */
    load(state: Uint8Array): void;
}

/** Returns the Shannon entropy of the model's distribution, from raw logits. */
export function entropy(logits: Float32Array, unit?: "nats" | "bits"): number;
/** Returns minus the logarithm of the token's probability; Infinity for a masked one. */
export function surprisal(logits: Float32Array, token: number, unit?: "nats" | "bits"): number;
/** Returns the token with the largest logit, the first of equals. */
export function greedy(logits: Float32Array): number;
/** Returns the n most probable tokens, descending, with probabilities over the whole vocabulary. */
export function topCandidates(logits: Float32Array, n: number): Candidate[];

/** The exponential of the mean surprisal of a text so far. */
export class Perplexity extends Held {
    constructor();
    /** Adds a token by its surprisal in nats. */
    add(surprisal: number): void;
    /** The perplexity: 1 if every token was certain; NaN before the first token. */
    readonly value: number;
    readonly count: number;
    reset(): void;
}

/**
 * Binds the llama.cpp of chains, samplers and constraints: the libllama at `path` or, on Linux,
 * without a path, the one that the process has loaded. Without this call, the first use does the
 * latter.
 * @throws NoHostError if there is none
 */
export function bindHost(path?: string): void;

/**
 * Redirects the calls of llama.cpp's sampler functions by this process's addons to ours, and
 * returns the number of redirected imports. New samplers are then ours, with the same tokens.
 * Importing "llama-sieve/attach" attaches whenever an addon is loaded.
 * @throws NoHostError if no llama.cpp is loaded as a shared library, NotFoundError if this system
 * has no preload library: it is for Linux on x86-64 and aarch64, and for Windows on x86-64
 */
export function attach(): number;
/** Undoes `attach`; our samplers stay usable. Returns the number of restored imports. */
export function detach(): number;

/** A koffi pointer, or an object that has one. */
export type Vocab = bigint | { vocab: bigint } | { model: bigint };

/** A llama_sampler, freed with the object unless a chain owns it. */
export class Sampler extends Held {
    protected constructor();
    /** The name by llama_sampler_name: "top-k"; "?top-k" if the parameters disable it. */
    readonly name: string;
    /** Accepts tokens that have become part of the text. */
    accept(...tokens: number[]): void;
    reset(): void;
}

/** A llama_sampler_chain, which owns its members. */
export class Chain extends Sampler {
    constructor(...members: Sampler[]);
    /** Returns the token that llama.cpp's own sampling selects, without accepting it. */
    sample(logits: Logits, kind?: LogitsKind): number;
    /** Selects from a context's logits, and accepts, as llama_sampler_sample does. */
    sampleContext(context: bigint | { context: bigint }, index?: number): number;
    /**
     * Returns the candidates that the last `sample` selected from; its logits must be unchanged.
     */
    candidates(): Candidate[];
}

/** Samplers for a chain: drop-ins for llama.cpp's of the same names, and others. */
export const samplers: {
    /** Selects the largest logit, the first of equals. */
    greedy(): Sampler;
    /** Draws a candidate with its probability. */
    dist(seed: number): Sampler;
    /** Keeps the k largest logits; disabled by k <= 0. */
    topK(k: number): Sampler;
    /** Keeps the smallest set of the most probable candidates with sum >= p; disabled by p >= 1. */
    topP(p: number, minKeep?: number): Sampler;
    /** Keeps candidates at least p times as probable as the best; disabled by p <= 0. */
    minP(p: number, minKeep?: number): Sampler;
    /**
     * Keeps the candidates with surprisal nearest to the entropy, until their probabilities add up
     * to more than p; disabled by p >= 1.
     */
    typical(p: number, minKeep?: number): Sampler;
    /** Divides every logit by t; t <= 0 keeps only the largest. */
    temp(t: number): Sampler;
    /** Divides by a temperature between t - delta and t + delta that depends on the entropy. */
    tempExt(t: number, delta: number, exponent: number): Sampler;
    /**
     * With probability p, removes the candidates of probability t or more, except the least
     * probable of these.
     */
    xtc(p: number, t: number, minKeep: number, seed: number): Sampler;
    /** Masks every logit more than n standard deviations below the largest. */
    topNSigma(n: number): Sampler;
    /** Selects so that the surprisal of the text stays near tau bits per token. */
    mirostat(nVocab: number, seed: number, tau: number, eta: number, m?: number): Sampler;
    /** Selects with mirostat's aim, among candidates up to a surprisal that each token adjusts. */
    mirostatV2(seed: number, tau: number, eta: number): Sampler;
    /** Penalises the tokens among the last lastN accepted ones. */
    penalties(lastN: number, repeat?: number, freq?: number, present?: number): Sampler;
    /**
     * Subtracts multiplier * base^(length - allowedLength) from tokens that continue a repetition.
     */
    dry(
        multiplier: number,
        options?: {
            base?: number;
            allowedLength?: number;
            lastN?: number;
            /** Default: newline, colon, quotation mark, asterisk. None without `vocab`. */
            breakers?: Iterable<string>;
            vocab?: Vocab;
        },
    ): Sampler;
    /** Selects near a probability that it adjusts so that the chosen ones average `target`. */
    adaptiveP(target: number, decay: number, seed: number): Sampler;
    /** Adds biases to the logits of tokens; -Infinity bans a token. */
    logitBias(bias: Map<number, number> | Record<number, number>): Sampler;
    /** Cuts where the curve of sorted probabilities flattens; disabled by z >= 1. */
    tailFree(z: number, minKeep?: number): Sampler;
    /** Sorts the candidates by descending logit and writes their probabilities. */
    softmax(): Sampler;
    /** Keeps candidates with p >= a times the square of the largest p; disabled by a <= 0. */
    topA(a: number): Sampler;
    /** Keeps candidates with p >= epsilon; disabled by epsilon <= 0. */
    epsilonCutoff(epsilon: number): Sampler;
    /** Keeps candidates with p >= min(eta, sqrt(eta) exp(-entropy)); disabled by eta <= 0. */
    etaCutoff(eta: number): Sampler;
    /** Keeps candidates with p >= the sum of all p^2; `normalised` lowers that threshold. */
    pLess(normalised?: boolean): Sampler;
    /**
     * Keeps the most probable candidates whose entropy is at most alpha times that of all; disabled
     * by alpha >= 1.
     */
    topH(alpha: number): Sampler;
    /** Cuts at the steepest fall of the sorted logits; disabled by tau < 0. Default 0. */
    minK(tau?: number): Sampler;
    /** Maps the logits by a parabola or cubic that keeps the largest; disabled by factor <= 0. */
    quadratic(factor: number, curve?: number): Sampler;
    /** Ends a repetition: at least three copies of the newest tokens, with `minTokens` in all. */
    loopBreaker(options?: {
        /**
         * "ban" bans the token that continues the repetition; "temperature" divides the logits;
         * "force" lets only `tokens` follow; "end" ends the generation.
         */
        action?: "ban" | "temperature" | "force" | "end";
        /** The longest period. Default 1,024. */
        maxPeriod?: number;
        /** The least number of tokens of all copies together. Default 128. */
        minTokens?: number;
        /** The divisor of "temperature", larger at each token. Default 1.5. */
        temperature?: number;
        /** The tokens that "force" lets follow. */
        tokens?: Iterable<number>;
        /** The vocabulary with the tokens that end a generation, for "end". */
        vocab?: Vocab;
    }): Sampler;
};

/**
 * A sampler that bans every token that would complete one of the texts: none of them occurs in the
 * generated text, whichever tokens spell it. In a chain it comes before every sampler that
 * truncates.
 */
export class BanStrings extends Sampler {
    /**
     * `foldCase`: letters that differ only in case are equal. `regex`: the texts are regular
     * expressions in the syntax of Rust's crate `regex`, and none of them matches anywhere.
     */
    constructor(
        vocab: Vocab,
        texts: Iterable<string>,
        options?: { foldCase?: boolean; regex?: boolean },
    );
    /**
     * Returns how many of the newest tokens contain the beginning of a banned text that one more
     * token could complete.
     */
    rewind(): number;
}

/**
 * A sampler that biases tokens that continue one of the texts, instead of banning them. If m of the
 * text's L bytes then match, m / L of `bias` is added to the token's logit. A token that completes
 * a text, or contains a complete one, gets all of `bias`. In a chain it comes before every sampler
 * that truncates.
 */
export class BanStringsBias extends Sampler {
    /**
     * `bias` is usually negative. `foldCase`: letters that differ only in case are equal, and
     * characters are counted instead of bytes.
     */
    constructor(
        vocab: Vocab,
        texts: Iterable<string>,
        bias: number,
        options?: { foldCase?: boolean },
    );
}

/**
 * A sampler that lets through only tokens after which the text can still match a grammar. In a
 * chain it comes before every sampler that truncates. After a token that is not allowed it is dead
 * until `reset` or `rollback`: only tokens that end the generation are allowed then, and `error`
 * says why.
 */
export class Constraint extends Sampler {
    /** The number of tokens in the vocabulary. */
    readonly nVocab: number;
    /** Returns a bitmap of the allowed tokens: bit t % 32 of word t / 32 is token t's. */
    mask(out?: Uint32Array): Uint32Array;
    /** Sets the logits of tokens that are not allowed to -Infinity. */
    maskLogits(logits: Float32Array): void;
    /** True if the text so far matches the whole grammar, so that it may end. */
    readonly complete: boolean;
    /** The reason why the constraint is dead; null while it is not. */
    readonly error: string | null;
    /** Takes back the last accepted tokens, at most 1,024. */
    rollback(nTokens: number): void;
    /** Returns the number of leading tokens of a draft that are allowed. Changes nothing. */
    accepts(tokens: Iterable<number>): number;
    /**
     * Returns the bytes that must follow, whichever tokens spell them; empty if there is a choice.
     */
    forced(): Uint8Array;
}

export interface JsonSchemaOptions {
    /** No white space between parts. */
    compact?: boolean;
    /** Objects whose schema names properties have no others, unless the schema says which. */
    closed?: boolean;
    /** Properties come in any order. */
    anyOrder?: boolean;
    /** Keywords that cannot be enforced are ignored, with a warning, instead of refused. */
    lenient?: boolean;
    /** Allows the texts of llama.cpp's own converter; excludes the other options. */
    llamaCpp?: boolean;
}

/** Text that matches a grammar in GBNF, llama.cpp's notation. `root` names the rule of the text. */
export class Grammar extends Constraint {
    constructor(vocab: Vocab, grammar: string, root?: string);
}
/** JSON that is valid against `schema`, drafts 4 to 2020-12. A string is the schema's JSON. */
export class JsonSchema extends Constraint {
    constructor(vocab: Vocab, schema: object | boolean | string, options?: JsonSchemaOptions);
}
/** Text that a regular expression matches completely. */
export class Regex extends Constraint {
    constructor(vocab: Vocab, pattern: string);
}
/** One of some strings, spelled by any tokens. */
export class Choice extends Constraint {
    constructor(vocab: Vocab, values: Iterable<string>);
}
/**
 * Free text in which a begin tag opens a span that satisfies a schema, or matches a pattern or a
 * grammar.
 */
export class Tags extends Constraint {
    constructor(vocab: Vocab, description: object | string);
}

/** Returns the grammar of a schema's texts in GBNF, for hosts that take it; needs no llama.cpp. */
export function jsonSchemaToGbnf(
    schema: object | boolean | string,
    options?: JsonSchemaOptions,
): string;

/** Frees the data kept for a vocabulary. Call it before its model is freed. */
export function forgetVocab(vocab: Vocab): void;

/** A sampler that lets through only the tokens of a set of values, one after the other. */
export class TokenTrie extends Sampler {
    /**
     * @param constraint a TokenTreePayload, as an object or JSON; without one, idle until `set`
     */
    constructor(
        constraint?: object | string,
        options?: {
            /** Selects the most probable of the values' tokens. */
            greedy?: boolean;
            /** Reduces the array of candidates instead of masking it. */
            compact?: boolean;
            /** True if a reset leaves a complete span idle. */
            resetIdle?: boolean;
            /** The vocabulary; tokens outside it are then an error. */
            vocab?: Vocab;
        },
    );
    /** Sets another constraint, active from the next token on. On an error the old one stays. */
    set(constraint: object | string): void;
    /** Removes the constraint, from the next token on. */
    clear(): void;
    /** Begins the span of the descriptor with this path. */
    activate(path: string): void;
    /** True if the next token is constrained, or may continue a value. */
    readonly active: boolean;
    /** The name of the completed value; null while there is none. */
    readonly leaf: string | null;
    /** Returns the tokens that must follow, which need not be sampled. */
    forced(): Int32Array;
    /** Returns the tokens that may follow, ascending. */
    allowed(): Int32Array;
}
