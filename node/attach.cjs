"use strict";

// Makes addons that call llama.cpp, such as node-llama-cpp's, use our samplers: both the addons
// that are already loaded and those that are loaded later.

const { NoHostError, attach } = require("./index.cjs");

function attempt() {
    try {
        attach();
    } catch (error) {
        // No llama.cpp is loaded yet; a later addon may load one.
        if (!(error instanceof NoHostError)) {
            process.emitWarning(`llama-sieve: not attached: ${error.message}`);
        }
    }
}

const { dlopen } = process;
process.dlopen = function (...args) {
    const result = Reflect.apply(dlopen, this, args);
    attempt();
    return result;
};
attempt();
