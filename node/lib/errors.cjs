"use strict";

/** An error, with the library's text. `code` is a LLAMA_SIEVE_ERROR_* of llama_sieve.h. */
class LlamaSieveError extends Error {
    constructor(message, code = 0) {
        super(message);
        this.name = new.target.name;
        this.code = code;
    }
}

/** An invalid parameter, payload or size. */
class InvalidError extends LlamaSieveError {}

/** No llama.cpp was found in this process, or the given library is not one. */
class NoHostError extends LlamaSieveError {}

/** There is no token to choose: every logit, or the selected one's, is minus infinity or NaN. */
class NoCandidateError extends LlamaSieveError {}

/** A state cannot be saved, or saved bytes cannot be restored; the message says why. */
class StateError extends LlamaSieveError {}

/** There is nothing with the requested name, or no preload library. */
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

/** Returns the error for a negative number that a function returned. */
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
