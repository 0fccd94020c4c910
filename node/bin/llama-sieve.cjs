#!/usr/bin/env node
"use strict";

// `npx llama-sieve`: runs the command line, if the package contains it. The command `run` works
// without it.

const { spawn } = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");

const isWindows = process.platform === "win32";

/** Returns the folder of the library: where it was built, or in the package for this machine. */
function folder() {
    const built = path.join(__dirname, "..", "lib");
    const machine = `@llama-sieve/${process.platform}-${process.arch}`;
    const header = process.report.getReport().header;
    const isMusl = process.platform === "linux" && header.glibcVersionRuntime === undefined;
    const name = isMusl ? `${machine}-musl` : machine;
    if (fs.existsSync(path.join(built, "libllama_sieve_preload.so"))) {
        return built;
    }
    try {
        return path.dirname(require.resolve(`${name}/package.json`));
    } catch {
        return built;
    }
}

const lib = folder();
const PROGRAM = path.join(lib, isWindows ? "llama-sieve.exe" : "llama-sieve");
const PRELOAD = path.join(lib, "libllama_sieve_preload.so");

const USAGE = 2;
const OWN_FAULT = 125;
const CANNOT_RUN = 126;
const NOT_FOUND = 127;

/** Ends the process with a message. */
function fail(code, text) {
    process.stderr.write(`llama-sieve: ${text}\n`);
    process.exit(code);
}

/** Returns the environment with the preload library before other preloaded libraries. */
function environment() {
    if (!fs.existsSync(PRELOAD)) {
        fail(OWN_FAULT, `${PRELOAD} is missing: run "npm run build" in the package's folder`);
    }
    if (/[\s:]/.test(PRELOAD)) {
        fail(OWN_FAULT, `LD_PRELOAD cannot name ${PRELOAD}: its path has a space or a colon`);
    }
    const earlier = process.env.LD_PRELOAD;
    return { ...process.env, LD_PRELOAD: earlier ? `${PRELOAD}:${earlier}` : PRELOAD };
}

/** Runs a program instead of this one, with its signals and its exit code. */
function become(file, args, env) {
    const child = spawn(file, args, { stdio: "inherit", env });
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"]) {
        process.on(signal, () => child.kill(signal));
    }
    child.on("error", (error) => {
        const missing = error.code === "ENOENT";
        fail(missing ? NOT_FOUND : CANNOT_RUN, `${file} cannot be run: ${error.message}`);
    });
    child.on("close", (code, signal) => {
        process.exit(signal === null ? code : 128 + os.constants.signals[signal]);
    });
}

/** Runs the command `run` as the command line does; its options come before the program. */
function run(args) {
    const env = environment();
    while (args.length > 0) {
        const option = args.shift();
        if (option === "--verbose") {
            env.LLAMA_SIEVE_VERBOSE = "1";
        } else if (option === "--only" && args.length > 0) {
            env.LLAMA_SIEVE_PRELOAD = args.shift();
        } else if (option === "--" || !option.startsWith("-")) {
            const program = option === "--" ? args.shift() : option;
            return program === undefined ? run([]) : become(program, args, env);
        } else {
            fail(USAGE, `run: ${option}: an option is --verbose, --only KINDS or --`);
        }
    }
    return fail(USAGE, "run: which program? (run -- PROGRAM arguments)");
}

const [command, ...args] = process.argv.slice(2);
if (fs.existsSync(PROGRAM)) {
    become(PROGRAM, process.argv.slice(2), process.env);
} else if (command === "run") {
    run(args);
} else {
    fail(
        USAGE,
        `${command ?? "no command"}: without the program ${PROGRAM}, which packages hold, there ` +
            "is only: run [--verbose] [--only KINDS] -- PROGRAM arguments",
    );
}
