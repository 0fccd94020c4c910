//! A warning for a value of LLAMA_SIEVE_SIMD that names no instruction set of this processor.

use crate::log::{self, Level};
use crate::quoted::quoted;
use crate::simd::{Isa, take_unknown_name};

/// Warns once if the instruction set has been chosen and the value of LLAMA_SIEVE_SIMD names none
/// that this processor supports.
#[inline]
pub(crate) fn report_unknown_name() {
    if let Some(name) = take_unknown_name() {
        report(&name);
    }
}

/// Chooses the instruction set, and warns if the value of LLAMA_SIEVE_SIMD names none that this
/// processor supports.
pub(crate) fn choose() {
    Isa::current();
    report_unknown_name();
}

#[cold]
fn report(name: &str) {
    let text = format!(
        "LLAMA_SIEVE_SIMD={} is unknown or not supported by this processor; {} is used",
        quoted(name),
        Isa::current().name().to_string_lossy()
    );
    // The message is not kept as the last error, which belongs to the running call.
    log::log(Level::Warn, &text);
}
