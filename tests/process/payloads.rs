//! Tests that the bytes allocated while a payload is read are proportional to its length. If a list
//! reserved room for all its elements at each step, they would grow with the square.

use std::ptr::null;

use crate::counting_allocator::bytes_given;
use crate::support::{Array, HostSampler, alone};
use llama_sieve::ffi::trie::*;

/// Returns a payload with `n` elements in one of its lists.
fn payload(list: &str, n: usize) -> String {
    let all = |element: &dyn Fn(usize) -> String| (0..n).map(element).collect::<Vec<_>>().join(",");
    let descriptor = |path: &str, leaves: &str| {
        format!("{{\"path\":\"{path}\",\"leaves\":[{leaves}],\"terminators\":[7]}}")
    };
    let leaf = |name: &str, tokens: &str| format!("{{\"name\":\"{name}\",\"tokens\":[{tokens}]}}");
    let one = leaf("x", "5");
    let descriptors = match list {
        "descriptors of one path" => all(&|_| descriptor("", &one)),
        "descriptors" => all(&|i| descriptor(&i.to_string(), &one)),
        "descriptors of two leaves" => {
            all(&|i| descriptor("", &format!("{one},{}", leaf("y", &i.to_string()))))
        }
        "descriptors without leaves" => {
            format!("{},{}", all(&|_| descriptor("", "")), descriptor("", &one))
        }
        "leaves" => descriptor("", &all(&|i| leaf(&i.to_string(), &i.to_string()))),
        "equal leaves" => descriptor("", &all(&|_| leaf("", "5"))),
        "leaves of two tokens" => descriptor("", &all(&|i| leaf("x", &format!("5,{i}")))),
        "leaves without tokens" => descriptor("", &format!("{one},{}", all(&|_| leaf("", "")))),
        "terminators" => {
            let terminators = all(&|i| i.to_string());
            format!("{{\"path\":\"\",\"leaves\":[{one}],\"terminators\":[{terminators}]}}")
        }
        _ => unreachable!("{list}"),
    };
    format!("{{\"descriptors\":[{descriptors}]}}")
}

#[test]
fn what_a_payload_is_given_grows_as_its_length() {
    let _alone = alone();
    const LISTS: [&str; 9] = [
        "descriptors of one path",
        "descriptors",
        "descriptors of two leaves",
        "descriptors without leaves",
        "leaves",
        "equal leaves",
        "leaves of two tokens",
        "leaves without tokens",
        "terminators",
    ];
    // SAFETY: without a vocabulary, any tokens are taken.
    let slot = HostSampler::new(unsafe { llama_sieve_init_trie_slot(null()) });
    let slot = slot.as_ptr().cast();
    for list in LISTS {
        let [few, many] = [4_000, 32_000].map(|n| {
            let json = payload(list, n);
            let given = bytes_given(|| {
                // SAFETY: a live slot, and a payload of that many bytes.
                let code =
                    unsafe { llama_sieve_trie_set(slot, json.as_ptr().cast(), json.len(), 0) };
                assert_eq!(code, 0, "{list}: {}", llama_sieve::last_error::get());
            });
            let for_each = given / json.len();
            println!("{n} {list}: {given} bytes, {for_each} for each of the payload");
            for_each
        });
        // Capacities are rounded up to powers of two, by less than a factor of two.
        assert!(
            many <= 2 * few,
            "{list}: {few} bytes for each, of more {many}"
        );
    }
}

/// Reads the largest possible token in a payload of a hundred bytes. No table may be as large as
/// the token.
#[test]
fn a_large_token_takes_no_memory() {
    let _alone = alone();
    const JSON: &str =
        r#"{"descriptors":[{"path":"","leaves":[{"name":"","tokens":[2147483647]}]}]}"#;
    for mode in [0, 1, LLAMA_SIEVE_TRIE_COMPACT, LLAMA_SIEVE_TRIE_COMPACT | 1] {
        // SAFETY: without a vocabulary, any tokens are taken.
        let slot = HostSampler::new(unsafe { llama_sieve_init_trie_slot(null()) });
        let mut array = Array::of_logits([1.0; 100]);
        let given = bytes_given(|| {
            let smpl = slot.as_ptr().cast();
            // SAFETY: a live slot, and a payload of that many bytes.
            let code =
                unsafe { llama_sieve_trie_set(smpl, JSON.as_ptr().cast(), JSON.len(), mode) };
            assert_eq!(code, 0, "{}", llama_sieve::last_error::get());
            slot.apply(&mut array);
        });
        assert_eq!(array.ids(), [2_147_483_647]);
        assert!(given < 1 << 20, "{given} bytes in mode {mode:#x}");
    }
}
