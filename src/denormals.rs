//! Test support: runs code on a thread that flushes denormal results to zero, as the threads of a
//! program compiled with `-ffast-math` do.

use std::arch::asm;

/// The bit of the control register that makes denormal results zero.
const FLUSH_TO_ZERO: u32 = 1 << 15;

/// Returns the result of `body` with denormal results flushed to zero on this thread.
pub(crate) fn with_flushed_denormals<T>(body: impl FnOnce() -> T) -> T {
    let before = control();
    set_control(before | FLUSH_TO_ZERO);
    let result = body();
    set_control(before);
    result
}

fn control() -> u32 {
    let mut control = 0u32;
    // SAFETY: stores the control register of the vector unit in `control`.
    unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut control, options(nostack)) };
    control
}

fn set_control(control: u32) {
    // SAFETY: loads the control register with its earlier value, perhaps with the bit set that
    // makes denormal results zero. `with_flushed_denormals` restores the earlier value before it
    // returns.
    unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const control, options(nostack, readonly)) };
}
