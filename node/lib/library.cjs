"use strict";

// The shared library: its location, its functions, and the checks before they are called.

const fs = require("node:fs");
const path = require("node:path");
const { isMainThread } = require("node:worker_threads");
const koffi = require("koffi");

const { errorOf, invalid } = require("./errors.cjs");

/**
 * The file name of the library in packages. It is the preload library, which exports llama.cpp's
 * names, and gives access to ours through `llama_sieve_preload_function`. Packages for macOS have
 * the library that exports our names instead.
 */
const FILE =
    { darwin: "libllama_sieve.dylib", win32: "llama_sieve_preload.dll" }[process.platform] ??
    "libllama_sieve_preload.so";

/** Returns the library's path: LLAMA_SIEVE_LIBRARY, the one that was built here, or a package's. */
function file() {
    const named = process.env.LLAMA_SIEVE_LIBRARY;
    if (named) {
        return path.resolve(named);
    }
    const built = path.join(__dirname, FILE);
    if (fs.existsSync(built)) {
        return built;
    }
    const name = packageOfThisMachine();
    try {
        return require.resolve(`${name}/${FILE}`);
    } catch {
        throw new Error(
            `llama-sieve: the package ${name} is missing, an optional dependency that has the ` +
                "library: install it, if there is one of that name (npm leaves it out with " +
                "--omit=optional), or build the library from the repository: " +
                `"npm run build" in its folder node makes ${built}. Or let LLAMA_SIEVE_LIBRARY ` +
                `name a ${FILE}`,
        );
    }
}

/** Returns the name of the package for this system, processor and C library. */
function packageOfThisMachine() {
    return `@llama-sieve/${process.platform}-${process.arch}${usesMusl() ? "-musl" : ""}`;
}

/** True on Linux with musl; Node's report has the version of glibc. */
function usesMusl() {
    if (process.platform !== "linux") {
        return false;
    }
    const report = process.report?.getReport?.();
    return report?.header !== undefined && report.header.glibcVersionRuntime === undefined;
}

const loaded = koffi.load(file());

/** Returns a function's address by its name; undefined if the library exports all functions. */
const addressOf = givenByName();

function givenByName() {
    try {
        return loaded.func("llama_sieve_preload_function", "void *", ["str"]);
    } catch {
        return undefined;
    }
}

/** Returns the function `llama_sieve_NAME`. Arrays and objects are passed by address. */
function declare(name, result, ...types) {
    const full = `llama_sieve_${name}`;
    if (addressOf === undefined) {
        return loaded.func(full, result, types);
    }
    const address = addressOf(full);
    if (!address) {
        throw new Error(
            `llama-sieve: ${file()} has no function ${full}: it is older than this package`,
        );
    }
    return koffi.decode(address, koffi.proto(result, types));
}

const lastError = declare("last_error", "str");
const lastErrorCode = declare("last_error_code", "int");

/** Returns the number, or throws its exception if it is negative. */
function check(code) {
    if (code < 0) {
        throw errorOf(code, lastError());
    }
    return code;
}

/** Returns the handle or the size of a result, or throws the reason why there is none. */
function made(handle) {
    if (!handle) {
        throw errorOf(lastErrorCode() || -4, lastError());
    }
    return handle;
}

/** Returns a whole number of 32 bits; a call would truncate a larger one. */
function int32(value, what) {
    return whole(value, what, -(2 ** 31), 2 ** 31 - 1);
}

function uint32(value, what) {
    return whole(value, what, 0, 2 ** 32 - 1);
}

function size(value, what) {
    return whole(value, what, 0, Number.MAX_SAFE_INTEGER);
}

function whole(value, what, least, most) {
    if (!Number.isInteger(value) || value < least || value > most) {
        throw invalid(`${what}: ${shown(value)} is not a whole number from ${least} to ${most}`);
    }
    return value;
}

function number(value, what) {
    if (typeof value !== "number") {
        throw invalid(`${what}: ${shown(value)} is not a number`);
    }
    return value;
}

function shown(value) {
    return typeof value === "string" ? JSON.stringify(value) : String(value);
}

/** Returns a text for C, which would read it only up to a NUL. */
function text(value, what) {
    if (typeof value !== "string") {
        throw invalid(`${what}: a string is expected`);
    }
    if (value.includes("\0")) {
        throw invalid(`${what}: a NUL is in the text`);
    }
    if (!value.isWellFormed()) {
        throw invalid(`${what}: half a surrogate pair is in the text, which has no UTF-8`);
    }
    return value;
}

/** Returns the texts of a list. A single string is an error: it would be taken letter by letter. */
function texts(values, what) {
    if (typeof values === "string" || typeof values?.[Symbol.iterator] !== "function") {
        throw invalid(`${what}s: a list of strings is expected`);
    }
    return [...values].map((value) => text(value, what));
}

/** Returns an address: a bigint, as koffi returns pointers, or an object with one as `member`. */
function pointer(value, what, member) {
    const address = typeof value === "object" && value !== null ? value[member] : value;
    if (typeof address !== "bigint" || address <= 0n) {
        throw invalid(`${what}: a pointer of koffi's (a bigint) is expected`);
    }
    return address;
}

const KINDS = new Map([
    ["f32", Float32Array],
    ["f16", Uint16Array],
    ["bf16", Uint16Array],
]);

const TypedArray = Object.getPrototypeOf(Uint8Array.prototype);
const kindOf = Object.getOwnPropertyDescriptor(TypedArray, Symbol.toStringTag).get;
const lengthOf = Object.getOwnPropertyDescriptor(TypedArray, "length").get;

/** Returns the number of elements of a typed array of this class, ignoring its own properties. */
function elements(array, Class, what) {
    if (kindOf.call(array) !== Class.name) {
        throw invalid(`${what}: a ${Class.name} is expected`);
    }
    return lengthOf.call(array);
}

/**
 * Returns the type and number of logits: a Float32Array, or with "f16" or "bf16" the bits of
 * half-precision numbers in a Uint16Array.
 */
function logitsOf(logits, kind = "f32") {
    const Class = KINDS.get(kind);
    if (Class === undefined) {
        throw invalid(`kind: ${shown(kind)} is none of "f32", "f16", "bf16"`);
    }
    return { kind, n: int32(elements(logits, Class, "logits"), "number of logits") };
}

/**
 * A C object that is freed with this object, by `close`, or when the worker that made it ends.
 */
class Held {
    #handle;
    #free;
    #owned;
    /** The objects that a worker has to free when it ends, since no registry calls back then. */
    static #open = new Set();
    static #registry = new FinalizationRegistry((owned) => Held.#dispose(owned));

    static {
        if (!isMainThread) process.once("exit", () => Held.#open.forEach(Held.#dispose));
    }

    static #dispose(owned) {
        if (Held.#open.delete(owned)) owned.free(owned.handle);
    }

    constructor(handle, free) {
        this.#handle = handle;
        this.#free = free;
        this.#owned = { free, handle };
        Held.#open.add(this.#owned);
        Held.#registry.register(this, this.#owned, this);
    }

    /** Returns the address; InvalidError if this object is closed. */
    get handle() {
        if (this.#handle === null) {
            throw invalid(`the ${this.constructor.name} is closed`);
        }
        return this.#handle;
    }

    /** Returns the address, and gives up ownership: this object no longer frees it. */
    release() {
        const handle = this.handle;
        Held.#registry.unregister(this);
        Held.#open.delete(this.#owned);
        this.#handle = null;
        return handle;
    }

    /** Frees the C object now. A second call does nothing. */
    close() {
        if (this.#handle !== null) {
            this.#free(this.release());
        }
    }
}
if (Symbol.dispose) {
    Held.prototype[Symbol.dispose] = function () {
        this.close();
    };
}

const CANDIDATE = koffi.struct({ id: "int32_t", logit: "float", p: "float" });
const CANDIDATE_BYTES = koffi.sizeof(CANDIDATE);

/** Returns the n candidates that `write(bytes, n)` writes. */
function candidates(n, write) {
    const bytes = new Uint8Array(n * CANDIDATE_BYTES);
    const found = write(bytes, n);
    const view = new DataView(bytes.buffer);
    return Array.from({ length: Math.min(n, found) }, (_, i) => ({
        id: view.getInt32(i * CANDIDATE_BYTES, true),
        logit: view.getFloat32(i * CANDIDATE_BYTES + 4, true),
        p: view.getFloat32(i * CANDIDATE_BYTES + 8, true),
    }));
}

/** Returns pairs of token and bias, from a Map or an object. */
function biasPairs(bias) {
    if (typeof bias !== "object" || bias === null) {
        throw invalid("bias: a Map or an object is expected");
    }
    const pairs = bias instanceof Map ? [...bias] : Object.entries(bias).map(numbered);
    return pairs.map(([token, value]) => [int32(token, "bias: token"), number(value, "bias")]);
}

/** Returns a property of an object, with its name as a number if it is one. */
function numbered([name, value]) {
    return [/^-?\d+$/.test(name) ? Number(name) : name, value];
}

/** Returns pairs of token and bias in C's representation. */
function biasBytes(pairs) {
    const bytes = new Uint8Array(8 * pairs.length);
    const view = new DataView(bytes.buffer);
    pairs.forEach(([token, value], i) => {
        view.setInt32(8 * i, token, true);
        view.setFloat32(8 * i + 4, value, true);
    });
    return bytes;
}

/** Version of the library, "major.minor.patch". */
const version = declare("version", "str");

/** Instruction set in use: "avx512", "avx2", "neon" or "scalar". */
const simd = declare("simd", "str");

module.exports = {
    Held,
    biasBytes,
    biasPairs,
    candidates,
    check,
    declare,
    int32,
    lastError,
    elements,
    logitsOf,
    made,
    number,
    pointer,
    shown,
    simd,
    size,
    text,
    texts,
    uint32,
    version,
};
