"use strict";

// The llama.cpp of this process.

const fs = require("node:fs");
const koffi = require("koffi");

const { NoHostError, invalid } = require("./errors.cjs");
const { pointer, text } = require("./library.cjs");

/** The bound libllama, and its functions by name. */
let bound = null;
const functions = new Map();

/** Returns the mapped files of libllama, such as libllama.so.0 or libllama.v0.5.0.so. */
function mapped() {
    let maps;
    try {
        maps = fs.readFileSync("/proc/self/maps", "utf8");
    } catch {
        return [];
    }
    const files = maps.split("\n").map((line) => line.slice(line.indexOf("/")));
    return [...new Set(files)].filter((file) => /\/libllama(\.[\w.]+)?\.so[.\d]*$/.test(file));
}

/** Binds the libllama at `path` or, without one, the libllama that the process has loaded. */
function bindHost(path) {
    if (path === undefined) {
        [path] = mapped();
        if (path === undefined) {
            throw new NoHostError(
                "no libllama is loaded in this process: load one, or name it: bindHost(path)",
                -2,
            );
        }
    }
    const library = koffi.load(text(path, "path"));
    try {
        library.func("llama_sampler_init", "void *", ["void *", "void *"]);
    } catch {
        throw new NoHostError(`${path} has no llama_sampler_init: it is no libllama`, -2);
    }
    if (bound !== null && bound.path !== path) {
        throw invalid(`${bound.path} is bound already`);
    }
    bound ??= { library, path };
}

/** Returns a function of the host. */
function hostFunction(name, result, ...types) {
    if (bound === null) {
        bindHost();
    }
    if (!functions.has(name)) {
        functions.set(name, bound.library.func(name, result, types));
    }
    return functions.get(name);
}

/** Returns a llama_vocab, given its address or that of a llama_model under `model`. */
function vocabulary(vocab) {
    if (typeof vocab === "object" && vocab !== null && !("vocab" in vocab) && "model" in vocab) {
        const get = hostFunction("llama_model_get_vocab", "void *", "void *");
        return get(pointer(vocab, "vocab", "model"));
    }
    return pointer(vocab, "vocab", "vocab");
}

module.exports = { bindHost, hostFunction, vocabulary };
