//! An injected panic at every point of every export and every vtable entry: the documented answer
//! comes, the last error names the call, nothing leaks, and the objects are as they were, or say
//! that they are out of use.
//!
//! Each case runs again and again: the first point that it passes fails, then the second, until it
//! comes through. Exports are those of `tests/exports.txt`; one without a case here fails the test.

mod cases;
mod entries;
mod exports;
mod no_memory;
mod within;
mod world;
