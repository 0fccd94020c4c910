//! Certification of the host's samplers.

use std::ffi::{CStr, CString};
use std::ptr::null;

use llama_sieve::ffi::certificate::*;
use llama_sieve::ffi::library::*;

use crate::answers::assert_answer;
use crate::calls::Name;

/// The samplers that have the same arguments in every build.
const CERTIFIED: [&CStr; 13] = [
    c"greedy",
    c"dist",
    c"top-k",
    c"top-p",
    c"min-p",
    c"typical",
    c"temp",
    c"temp-ext",
    c"xtc",
    c"top-n-sigma",
    c"mirostat",
    c"mirostat-v2",
    c"adaptive-p",
];
/// The samplers whose arguments depend on the build.
const OF_KNOWN_BUILDS: [&CStr; 3] = [c"penalties", c"dry", c"logit-bias"];
/// The sampler that needs a vocabulary, and is not certified without one.
const INFILL: &CStr = c"infill";

/// Checks the verdict on one sampler. Those of [`CERTIFIED`] are certified whatever was called
/// before.
pub(crate) fn certify(name: &Name) {
    let names = CERTIFIED.iter().chain(&OF_KNOWN_BUILDS).chain([&INFILL]);
    let names: Vec<&CStr> = names.copied().collect();
    let name = match name {
        Name::Null => None,
        Name::OfBuiltIn(which) => Some(names[usize::from(*which) % names.len()].to_owned()),
        Name::Bytes(bytes) => {
            let bytes = bytes.iter().copied().filter(|&byte| byte != 0);
            Some(CString::new(bytes.collect::<Vec<u8>>()).expect("without NUL"))
        }
    };
    let pointer = name.as_ref().map_or(null(), |name| name.as_ptr());
    // SAFETY: NULL or a C string.
    let verdict = unsafe { llama_sieve_certify(pointer) };
    // Build 0, which means an unknown one, gives the same result.
    // SAFETY: as above.
    assert_eq!(unsafe { llama_sieve_certify_build(pointer, 0) }, verdict);
    let Some(name) = name.as_deref() else {
        assert!(!assert_answer(verdict, &[LLAMA_SIEVE_ERROR_NULL]));
        return;
    };
    match name {
        name if CERTIFIED.contains(&name) => assert!(assert_answer(verdict, &[])),
        name if OF_KNOWN_BUILDS.contains(&name) => {
            assert_answer(verdict, &[LLAMA_SIEVE_CERTIFY_ARGUMENTS]);
        }
        name if name == INFILL => {
            assert!(!assert_answer(verdict, &[LLAMA_SIEVE_CERTIFY_VOCABULARY]));
        }
        _ => assert!(!assert_answer(verdict, &[LLAMA_SIEVE_ERROR_NOT_FOUND])),
    }
}
