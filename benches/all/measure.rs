//! The clock and the medians, and the array that a host fills.

use crate::support::Array;
use llama_sieve::kernels;
use vendor_llama_cpp::sys;

/// Returns the microseconds of CPU time that this thread has used. Time in which other programs
/// have the processor does not count.
pub fn thread_time() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the time is written to a valid place.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// Returns the microseconds that `run` takes with the value that `prepare` makes. `prepare` is not
/// timed.
pub fn time<T>(mut prepare: impl FnMut() -> T, mut run: impl FnMut(&mut T)) -> f64 {
    let mut input = prepare();
    let start = thread_time();
    run(&mut input);
    let elapsed = thread_time() - start;
    std::hint::black_box(&input);
    elapsed
}

pub fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Returns the median of the microseconds of this library's maximum over the array.
pub fn floor(input: &Array) -> f64 {
    let data = input.tokens();
    let pass = || {
        time(
            || (),
            |()| {
                std::hint::black_box(kernels::max_logit(std::hint::black_box(&data), false));
            },
        )
    };
    median((0..201).map(|_| pass()).collect())
}

/// Fills the candidate array from the logits, as a host does before it applies a chain.
pub fn fill(array: &mut Vec<sys::llama_token_data>, logits: &[f32]) {
    array.clear();
    let candidates = logits.iter().zip(0..);
    array.extend(candidates.map(|(&logit, id)| sys::llama_token_data { id, logit, p: 0.0 }));
}
