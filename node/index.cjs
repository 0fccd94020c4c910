"use strict";

const errors = require("./lib/errors.cjs");
const { bindHost } = require("./lib/host.cjs");
const { simd, version } = require("./lib/library.cjs");
const metrics = require("./lib/metrics.cjs");
const sieve = require("./lib/sieve.cjs");
const chain = require("./lib/samplers.cjs");
const constraints = require("./lib/constraints.cjs");
const attaching = require("./lib/attach.cjs");

const { errorOf, invalid, ...classes } = errors;

module.exports = {
    ...classes,
    ...metrics,
    ...sieve,
    ...chain,
    ...constraints,
    ...attaching,
    bindHost,
    simd,
    version,
};
