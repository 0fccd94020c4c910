"use strict";

const { check, declare } = require("./library.cjs");

const attachTo = declare("attach", "int", "uint32_t");
const detachFrom = declare("detach", "int");

function attach() {
    return check(attachTo(0));
}

function detach() {
    return check(detachFrom());
}

module.exports = { attach, detach };
