"use strict";

// Constraints on the text: JSON Schema, GBNF, regular expressions, lists of strings, tags, tries.

const { invalid } = require("./errors.cjs");
const { hostFunction, vocabulary } = require("./host.cjs");
const {
    check,
    declare,
    elements,
    int32,
    made,
    number,
    size,
    text,
    texts,
} = require("./library.cjs");
const { Sampler } = require("./samplers.cjs");

const init = {
    grammar: declare("init_grammar", "void *", "void *", "str", "str"),
    jsonSchema: declare("init_json_schema", "void *", "void *", "str", "uint32_t"),
    regex: declare("init_regex", "void *", "void *", "str", "uint32_t"),
    choice: declare("init_choice", "void *", "void *", "const char **", "size_t"),
    tags: declare("init_tags", "void *", "void *", "str", "uint32_t"),
    banStrings: declare(
        "init_ban_strings",
        "void *",
        "void *",
        "const char **",
        "size_t",
        "uint32_t",
    ),
    banStringsBias: declare(
        "init_ban_strings_bias",
        "void *",
        "void *",
        "const char **",
        "size_t",
        "uint32_t",
        "float",
    ),
    trieSlot: declare("init_trie_slot", "void *", "void *"),
};
const toGbnf = declare("json_schema_to_gbnf", "size_t", "str", "uint32_t", "void *", "size_t");
const forget = declare("vocab_forget", "void", "void *");
const maskOf = declare("grammar_mask", "size_t", "void *", "void *", "size_t");
const isComplete = declare("grammar_is_complete", "bool", "void *");
const grammarError = declare("grammar_error", "int", "void *");
const rollback = declare("grammar_rollback", "int", "void *", "size_t");
const accepts = declare("grammar_accepts", "size_t", "void *", "void *", "size_t");
const forced = declare("grammar_forced", "size_t", "void *", "void *", "size_t");

const DEAD = new Map([
    [-20, "a token was accepted that the grammar does not allow"],
    [-21, "the generation was ended where the grammar does not allow it"],
    [-22, "the grammar asked for more work than its limits allow"],
]);

/** LLAMA_SIEVE_GRAMMAR_MAX_MASK_WORDS. */
const MAX_MASK_WORDS = 67_108_864;

const FLAGS = { llamaCpp: 1, compact: 2, closed: 4, anyOrder: 8, lenient: 16 };

/** LLAMA_SIEVE_JSON_* of options that are true. */
function flags(options) {
    let bits = 0;
    for (const [name, is] of Object.entries(options)) {
        if (!Object.hasOwn(FLAGS, name)) {
            throw invalid(`${name} is none of ${Object.keys(FLAGS).join(", ")}`);
        }
        bits |= is ? FLAGS[name] : 0;
    }
    return bits;
}

/** Returns a string unchanged, or the JSON of a value; numbers that JSON lacks are an error. */
function json(value, what) {
    const isFinite = (key, part) => {
        if (typeof part === "number" && !Number.isFinite(part)) {
            throw invalid(`${what} has ${part} at ${JSON.stringify(key)}, which is no JSON`);
        }
        return part;
    };
    const found = typeof value === "string" ? value : JSON.stringify(value, isFinite);
    return text(found, what);
}

/** A sampler that lets through only tokens after which the text can still match a grammar. */
class Constraint extends Sampler {
    #nVocab;

    /** `create(vocab)` returns the llama_sampler. */
    constructor(vocab, create) {
        const address = vocabulary(vocab);
        super(create(address));
        this.#nVocab = hostFunction("llama_vocab_n_tokens", "int32_t", "void *")(address);
    }

    get #nWords() {
        return Math.ceil(this.#nVocab / 32);
    }

    get nVocab() {
        return this.#nVocab;
    }

    mask(out = new Uint32Array(this.#nWords)) {
        const n = this.#nWords;
        const room = elements(out, Uint32Array, "out");
        if (room < n || room > MAX_MASK_WORDS) {
            throw invalid(`out: ${n} words are needed, and it has ${room}`);
        }
        maskOf(this.handle, out, room);
        return out;
    }

    maskLogits(logits) {
        const n = elements(logits, Float32Array, "logits");
        if (n < this.#nVocab) {
            throw invalid(`logits: ${this.#nVocab} are needed, and there are ${n}`);
        }
        const bits = this.mask();
        // Tokens that the vocabulary does not have are masked, too.
        for (let token = 0; token < n; token++) {
            if (token >= this.#nVocab || !((bits[token >>> 5] >>> (token & 31)) & 1)) {
                logits[token] = -Infinity;
            }
        }
    }

    get complete() {
        return isComplete(this.handle);
    }

    get error() {
        const code = grammarError(this.handle);
        return code === 0 ? null : (DEAD.get(code) ?? `error ${code}`);
    }

    rollback(nTokens) {
        check(rollback(this.handle, size(nTokens, "nTokens")));
    }

    accepts(tokens) {
        const draft = Int32Array.from(tokens, (token) => int32(token, "token"));
        return Number(accepts(this.handle, draft, draft.length));
    }

    forced() {
        const bytes = new Uint8Array(Number(forced(this.handle, null, 0)));
        return bytes.subarray(0, Number(forced(this.handle, bytes, bytes.length)));
    }
}

class Grammar extends Constraint {
    constructor(vocab, grammar, root = "root") {
        const [gbnf, name] = [text(grammar, "grammar"), text(root, "root")];
        super(vocab, (address) => init.grammar(address, gbnf, name));
    }
}

class JsonSchema extends Constraint {
    constructor(vocab, schema, options = {}) {
        const [found, bits] = [json(schema, "schema"), flags(options)];
        super(vocab, (address) => init.jsonSchema(address, found, bits));
    }
}

class Regex extends Constraint {
    constructor(vocab, pattern) {
        const found = text(pattern, "pattern");
        super(vocab, (address) => init.regex(address, found, 0));
    }
}

class Choice extends Constraint {
    constructor(vocab, values) {
        const found = texts(values, "value");
        super(vocab, (address) => init.choice(address, found, found.length));
    }
}

class Tags extends Constraint {
    constructor(vocab, description) {
        const found = json(description, "tags");
        super(vocab, (address) => init.tags(address, found, 0));
    }
}

function jsonSchemaToGbnf(schema, options = {}) {
    const [found, bits] = [json(schema, "schema"), flags(options)];
    const n = made(Number(toGbnf(found, bits, null, 0)));
    const bytes = Buffer.alloc(n);
    toGbnf(found, bits, bytes, n);
    // The last byte is a NUL.
    return bytes.toString("utf8", 0, n - 1);
}

function forgetVocab(vocab) {
    forget(vocabulary(vocab));
}

const banRewind = declare("ban_rewind", "int", "void *");

/** A sampler that bans every token that would complete one of the texts. */
class BanStrings extends Sampler {
    constructor(vocab, bans, { foldCase = false, regex = false } = {}) {
        const found = texts(bans, "text");
        const address = vocabulary(vocab);
        super(init.banStrings(address, found, found.length, (foldCase ? 1 : 0) | (regex ? 2 : 0)));
    }

    rewind() {
        return check(banRewind(this.handle));
    }
}

/** A sampler that biases tokens which continue one of the texts. */
class BanStringsBias extends Sampler {
    constructor(vocab, biased, bias, { foldCase = false } = {}) {
        const found = texts(biased, "text");
        const [address, by] = [vocabulary(vocab), number(bias, "bias")];
        super(init.banStringsBias(address, found, found.length, foldCase ? 1 : 0, by));
    }
}

const trieSet = declare("trie_set", "int", "void *", "str", "size_t", "int");
const trieClear = declare("trie_clear", "void", "void *");
const trieActivate = declare("trie_activate", "int", "void *", "str");
const trieIsActive = declare("trie_is_active", "bool", "void *");
const trieLeaf = declare("trie_leaf", "str", "void *");
const trieForced = declare("trie_forced", "size_t", "void *", "void *", "size_t");
const trieAllowed = declare("trie_allowed", "size_t", "void *", "void *", "size_t");

/** A sampler that lets through only the tokens of a set of values, one after the other. */
class TokenTrie extends Sampler {
    #mode;

    constructor(constraint, { greedy = false, compact = false, resetIdle = false, vocab } = {}) {
        hostFunction("llama_sampler_free", "void", "void *");
        super(init.trieSlot(vocab === undefined ? null : vocabulary(vocab)));
        this.#mode = (greedy ? 0 : 1) | (compact ? 0x100 : 0) | (resetIdle ? 0x200 : 0);
        if (constraint !== undefined) {
            this.set(constraint);
        }
    }

    set(constraint) {
        const found = json(constraint, "constraint");
        check(trieSet(this.handle, found, Buffer.byteLength(found), this.#mode));
    }

    clear() {
        trieClear(this.handle);
    }

    activate(path) {
        check(trieActivate(this.handle, text(path, "path")));
    }

    get active() {
        return trieIsActive(this.handle);
    }

    get leaf() {
        return trieLeaf(this.handle);
    }

    forced() {
        return this.#tokens(trieForced);
    }

    allowed() {
        return this.#tokens(trieAllowed);
    }

    #tokens(ask) {
        const tokens = new Int32Array(Number(ask(this.handle, null, 0)));
        return tokens.subarray(0, Number(ask(this.handle, tokens, tokens.length)));
    }
}

module.exports = {
    BanStrings,
    BanStringsBias,
    Choice,
    Constraint,
    Grammar,
    JsonSchema,
    Regex,
    Tags,
    TokenTrie,
    forgetVocab,
    jsonSchemaToGbnf,
};
