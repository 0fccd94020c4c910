//! Tests with an injected panic at every point of every export and every vtable entry. The call
//! must return its documented result, the last error must name the call, nothing may leak, and the
//! objects must be unchanged or report that they are out of use.
//!
//! Each case runs repeatedly: first with a fault at the first point that it passes, then at the
//! second, until it runs without a fault. The exports are those in `tests/exports.txt`. An export
//! without a case fails the test.

mod cases;
mod entries;
mod exports;
mod no_memory;
mod within;
mod world;
