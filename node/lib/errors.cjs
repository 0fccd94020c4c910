"use strict";

/** What the library refused, in its own words. `code` is a LLAMA_SIEVE_ERROR_* of llama_sieve.h. */
class LlamaSieveError extends Error {
    constructor(message, code = 0) {
        super(message);
        this.name = new.target.name;
        this.code = code;
    }
}

/** A parameter, payload or size that cannot be. */
class InvalidError extends LlamaSieveError {}

/** No llama.cpp was found in this process, and the call needs one. */
class NoHostError extends LlamaSieveError {}

/** There is no token to choose: every logit, or that of the selected one, is minus infinity. */
class NoCandidateError extends LlamaSieveError {}

/** Saved bytes are no state, damaged, or of another kind of generator. */
class StateError extends LlamaSieveError {}

/** What was asked for by name is not there. */
class NotFoundError extends LlamaSieveError {}

const CLASSES = new Map([
    [-1, InvalidError],
    [-2, NoHostError],
    [-4, InvalidError],
    [-5, NotFoundError],
    [-6, InvalidError],
    [-7, InvalidError],
    [-8, NoCandidateError],
    [-9, StateError],
]);

/** The error of a negative number that a function returned. */
function errorOf(code, message) {
    const Class = CLASSES.get(code) ?? LlamaSieveError;
    return new Class(message || `error ${code}`, code);
}

function invalid(message) {
    return new InvalidError(message, -4);
}

module.exports = {
    InvalidError,
    LlamaSieveError,
    NoCandidateError,
    NoHostError,
    NotFoundError,
    StateError,
    errorOf,
    invalid,
};
