//! The library's own reports for `LLAMA_SIEVE_VERBOSE`: a line when a program loads it, a line for
//! the first token sampled in place of each function of the host, and at the end the number of
//! tokens that were sampled straight from the logits and, if the program has made no sampler
//! through it, the likely reason.

use std::ffi::CStr;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use llama_sieve::ffi::guard::guard;
use llama_sieve::ffi::library::{llama_sieve_simd, llama_sieve_version};
use llama_sieve::log;
use llama_sieve::quoted::escaped;
use llama_sieve::sync::Mutex;

use crate::choice::was_asked;
use crate::extra::{announce, is_named};
use crate::host_constructors::{is_preloaded, path_of_any};
use crate::settings::{say, settings, verbose};

/// The name of a function in llama.cpp's messages, which every program with a statically linked
/// llama.cpp contains.
const IN_LLAMA_CPP: &[u8] = b"llama_model_load";

/// The number of tokens that were sampled. [`DIRECT`] counts those that were sampled straight from
/// the logits. Tokens are counted only if that will be reported.
static SAMPLED: AtomicU64 = AtomicU64::new(0);
static DIRECT: AtomicU64 = AtomicU64::new(0);

/// The id of the process that reported that the library is loaded; 0 before. A forked child has a
/// different id, and reports nothing at its end.
static PROCESS: AtomicU32 = AtomicU32::new(0);

#[used]
#[cfg_attr(windows, unsafe(link_section = ".CRT$XCU"))]
#[cfg_attr(not(windows), unsafe(link_section = ".init_array"))]
static AT_LOAD: extern "C" fn() = at_load;

#[cfg(not(windows))]
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

/// Records that a program samples a token.
#[inline]
pub fn sampling() {
    count(&SAMPLED);
}

/// Records that the token was sampled straight from the logits.
#[inline]
pub fn directly() {
    count(&DIRECT);
}

/// Reports the first token that was sampled in place of this function of the host.
pub fn report_once(function: &'static str) {
    static REPORTED: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    if !settings().verbose {
        return;
    }
    guard(
        function,
        || (),
        || {
            let mut reported = REPORTED.lock();
            if !reported.contains(&function) {
                reported.push(function);
                say(format_args!("{function}(): ours"));
            }
        },
    );
}

#[inline]
fn count(tokens: &AtomicU64) {
    if PROCESS.load(Ordering::Relaxed) != 0 {
        tokens.fetch_add(1, Ordering::Relaxed);
    }
}

extern "C" fn at_load() {
    guard(
        "at_load",
        || (),
        || {
            if (verbose() || is_named()) && is_preloaded() {
                introduce();
            }
        },
    );
}

/// Reports, once, that the library is loaded, and the samplers that it adds to chains. A library
/// that only serves as Python's or Node's libllama_sieve reports nothing until it is attached.
pub fn introduce() {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if IS_DONE.swap(true, Ordering::Relaxed) {
        return;
    }
    announce();
    if !verbose() {
        return;
    }
    PROCESS.store(process::id(), Ordering::Relaxed);
    // SAFETY: this library stays until the process ends.
    #[cfg(windows)]
    unsafe {
        libc::atexit(at_exit);
    }
    // SAFETY: both are C strings that are never freed.
    let [version, simd] = [llama_sieve_version(), llama_sieve_simd()]
        .map(|text| unsafe { CStr::from_ptr(text) }.to_string_lossy());
    report(format_args!(
        " {version} ({simd}) is loaded into {}",
        escaped(&program())
    ));
}

extern "C" fn at_exit() {
    guard(
        "at_exit",
        || (),
        || {
            if PROCESS.load(Ordering::Relaxed) != process::id() {
                return;
            }
            let [direct, sampled] = [&DIRECT, &SAMPLED].map(|n| n.load(Ordering::Relaxed));
            if sampled > 0 {
                report(format_args!(
                    ": {direct} of {sampled} tokens were sampled straight from the logits"
                ));
            }
            if !was_asked() {
                report(format_args!(
                    ": no sampler was made in {}: {}",
                    escaped(&program()),
                    likely_reason()
                ));
            }
        },
    );
}

fn likely_reason() -> String {
    if settings().is_off() {
        return "LLAMA_SIEVE_PRELOAD is off".into();
    }
    if let Some(path) = path_of_any() {
        return format!(
            "nobody called the constructors of {} through the dynamic linker; a host that asks the \
             library's own handle for them, as Python's ctypes does, cannot be reached this way",
            escaped(&path)
        );
    }
    if File::open("/proc/self/exe").is_ok_and(|program| contains(program, IN_LLAMA_CPP)) {
        return "llama.cpp is linked into the program, where nothing can be exchanged".into();
    }
    "there is no llama.cpp in it".into()
}

/// True if `text` occurs in the readable part of the input.
fn contains(mut from: impl Read, text: &[u8]) -> bool {
    let mut bytes = Vec::with_capacity((1 << 20) + text.len());
    loop {
        // The end of a piece may be the beginning of the text.
        bytes.drain(..bytes.len().saturating_sub(text.len()));
        match from.by_ref().take(1 << 20).read_to_end(&mut bytes) {
            Ok(0) | Err(_) => return false,
            Ok(_) => {}
        }
        let found = |window: &[u8]| window.first() == text.first() && window == text;
        if bytes.windows(text.len()).any(found) {
            return true;
        }
    }
}

fn program() -> String {
    let program = std::env::current_exe();
    program.map_or_else(|_| "the program".into(), |path| path.display().to_string())
}

fn report(what: fmt::Arguments<'_>) {
    log::write_to_stderr(format_args!("llama-sieve: preload library{what}"));
}

#[cfg(test)]
mod tests {
    use super::contains;

    #[test]
    fn a_text_is_found_wherever_it_lies() {
        const PIECE: usize = 1 << 20;
        for start in [
            0,
            1,
            PIECE - 5,
            PIECE - 4,
            PIECE - 1,
            PIECE,
            2 * PIECE - 2,
            3 * PIECE,
        ] {
            let mut bytes = vec![b'n'; start];
            bytes.extend(b"needle");
            assert!(contains(&bytes[..], b"needle"), "{start}");
            assert!(!contains(&bytes[..bytes.len() - 1], b"needle"), "{start}");
        }
        assert!(!contains(&b""[..], b"needle"));
    }
}
