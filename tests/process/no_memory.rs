//! Makes samplers and sieves, and sets parameters and a trie, in a process that has no memory left
//! except pieces of a few KiB. A call whose arguments need more returns NULL or an error, and never
//! ends the process. Uses a real host, whose samplers are C++ objects, and the system's own
//! allocator and limit.

use std::env;
use std::ffi::CStr;
use std::process::Command;
use std::ptr::{null, null_mut};

use crate::support::alone;
use llama_sieve::ffi::host::llama_h::{llama_logit_bias, llama_sampler};
use llama_sieve::ffi::library::llama_sieve_last_error;
use llama_sieve::ffi::samplers::*;
use llama_sieve::ffi::sieve::*;
use llama_sieve::ffi::trie::*;
use vendor_llama_cpp::sys;

const CHILD: &str = "LLAMA_SIEVE_TEST_NO_MEMORY_CHILD";

#[test]
fn a_process_without_memory_goes_on() {
    let _alone = alone();
    if env::var_os(CHILD).is_some() {
        return without_memory();
    }
    // In a separate process, since the limit applies to all of it.
    let me = env::current_exe().expect("a path");
    let child = Command::new(me)
        .args([
            "--exact",
            "no_memory::a_process_without_memory_goes_on",
            "--nocapture",
        ])
        .env(CHILD, "1")
        .output()
        .expect("it starts");
    let told = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{}: {told}", child.status);
    assert!(told.contains("survived"), "{told}");
}

/// All memory that the process may have, in pieces that are freed one after the other.
struct Hoard(Vec<*mut libc::c_void>);

impl Hoard {
    fn take(&mut self) {
        for size in [1 << 20, 1 << 17, 1 << 14, 4096, 1024, 256, 64, 16] {
            while self.0.len() < self.0.capacity() {
                // SAFETY: freed once, below.
                let piece = unsafe { libc::malloc(size) };
                if piece.is_null() {
                    break;
                }
                self.0.push(piece);
            }
        }
        assert!(self.0.len() < self.0.capacity(), "the memory does not end");
    }

    /// Frees the last `n` pieces, the smallest first.
    fn give_back(&mut self, n: usize) {
        for _ in 0..n {
            if let Some(piece) = self.0.pop() {
                // SAFETY: it came from malloc.
                unsafe { libc::free(piece) };
            }
        }
    }
}

/// Pieces of memory for allocations whose size does not depend on the caller.
struct Pieces(Vec<*mut libc::c_void>);

impl Pieces {
    const SIZE: usize = 6144;

    fn take() -> Self {
        // SAFETY: freed at most once, below.
        let piece = |_| unsafe { libc::malloc(Self::SIZE) };
        Self((0..512).map(piece).collect())
    }

    /// Frees every second piece, so that no two free pieces are adjacent.
    fn give_back(self) {
        for piece in self.0.into_iter().step_by(2) {
            // SAFETY: it came from malloc.
            unsafe { libc::free(piece) };
        }
    }
}

/// Returns the size of the address space of the process, in bytes.
fn addresses() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 = pages
        .split(' ')
        .next()
        .and_then(|n| n.parse().ok())
        .expect("a number");
    pages * 4096
}

fn limit(to: libc::rlim_t) {
    let limit = libc::rlimit {
        rlim_cur: to,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: a valid limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

/// The arguments of the calls that make or set something. Everything that is made is freed again,
/// and the calls that fail for lack of memory are counted.
struct Calls {
    bias: Vec<llama_logit_bias>,
    payload: Vec<u8>,
    slot: *mut llama_sampler,
    sieve: *mut Handle,
}

const MADE: usize = 12;

/// The number of calls whose arguments need more than a few KiB: DRY, logit-bias, and all with
/// biases or the payload.
const LARGE: usize = 6;

impl Calls {
    fn new() -> Self {
        let bias = (0..3000).map(|token| llama_logit_bias { token, bias: 1.0 });
        let leaves: Vec<String> = (0..500)
            .map(|n| format!("{{\"name\":\"number {n}\",\"tokens\":[{n},{}]}}", n % 7))
            .collect();
        // SAFETY: arguments as the functions want them.
        unsafe {
            Self {
                bias: bias.collect(),
                payload: format!(
                    "{{\"descriptors\":[{{\"path\":\"p\",\"leaves\":[{}]}}]}}            ",
                    leaves.join(",")
                )
                .into_bytes(),
                slot: llama_sieve_init_trie_slot(null()),
                sieve: llama_sieve_new(&llama_sieve_default_params()),
            }
        }
    }

    fn failures(&mut self, round: usize) -> usize {
        // Another text each time, so that it is parsed again.
        for (bit, byte) in self.payload.iter_mut().rev().take(12).enumerate() {
            *byte = if round >> bit & 1 == 1 { b'\t' } else { b' ' };
        }
        let biased = llama_sieve_params {
            bias: self.bias.as_ptr(),
            n_bias: self.bias.len(),
            rng: LLAMA_SIEVE_RNG_MT19937,
            ..llama_sieve_default_params()
        };
        let mut failures = 0;
        // SAFETY: the objects live, arrays have the lengths that are passed, and what was made is
        // freed once.
        unsafe {
            let samplers: [*mut llama_sampler; MADE] = [
                llama_sieve_init_greedy(),
                llama_sieve_init_dist(1),
                llama_sieve_init_top_k(40),
                llama_sieve_init_penalties(0, 64, 1.1, 0.0, 0.0),
                llama_sieve_init_mirostat(0, 1, 5.0, 0.1, 100),
                llama_sieve_init_dry(null(), 1.0, 1.75, 2, 4096, null_mut(), 0),
                llama_sieve_init_adaptive_p(0.5, 0.9, 1),
                llama_sieve_init_logit_bias(0, 3000, self.bias.as_ptr()),
                llama_sieve_init_typical(0.5, 1),
                llama_sieve_init_sampler(&biased),
                llama_sieve_init_trie_slot(null()),
                llama_sieve_init_xtc(0.9, 0.1, 1, 3),
            ];
            for smpl in samplers {
                failures += usize::from(smpl.is_null());
                if !smpl.is_null() {
                    sys::llama_sampler_free(smpl.cast());
                }
            }
            let sieve = llama_sieve_new(&biased);
            failures += usize::from(failed(sieve.is_null()));
            llama_sieve_free(sieve);
            let code = llama_sieve_set_params(self.sieve, &biased);
            failures += usize::from(failed(code != 0));
            let (json, len) = (self.payload.as_ptr().cast(), self.payload.len());
            let code = llama_sieve_trie_set(self.slot, json, len, 0);
            failures += usize::from(failed(code != 0));
        }
        failures
    }
}

fn failed(it_did: bool) -> bool {
    if it_did {
        // SAFETY: never NULL.
        let told = unsafe { CStr::from_ptr(llama_sieve_last_error()) };
        assert!(
            told.to_bytes().ends_with(b"not enough memory"),
            "{}",
            told.to_string_lossy()
        );
    }
    it_did
}

fn without_memory() {
    let mut hoard = Hoard(Vec::with_capacity(1 << 20));
    let mut calls = Calls::new();
    assert_eq!(calls.failures(0), 0);
    let pieces = Pieces::take();
    limit(addresses() + (8 << 20));
    hoard.take();
    pieces.give_back();
    let first = calls.failures(1);
    let (mut rounds, mut partly) = (1, 0);
    loop {
        let failures = calls.failures(rounds + 1);
        rounds += 1;
        if failures == 0 || hoard.0.is_empty() {
            break;
        }
        partly += usize::from(failures < first);
        hoard.give_back(1);
    }
    let enough = !hoard.0.is_empty();
    hoard.give_back(hoard.0.len());
    limit(libc::RLIM_INFINITY);
    assert_eq!(first, LARGE, "there was memory left, or too little");
    assert!(enough, "it never suffices");
    assert!(partly > 0, "it suffices for all at once");
    eprintln!("survived {rounds} rounds, {partly} of them with memory for some calls");
}
