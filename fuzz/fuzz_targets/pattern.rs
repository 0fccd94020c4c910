//! Compares trigger patterns with `std::regex`, as the target `grammar` does, but in an encoding in
//! which nearly every change of the input gives a valid pattern. Up to the first byte 0 each byte
//! stands for a part of the pattern; after it two bits of each byte are a letter of the text.
#![no_main]

#[path = "grammar/pattern.rs"]
mod pattern;

use libfuzzer_sys::fuzz_target;

fuzz_target!(init: llama_sieve_fuzz::silence(), |data: &[u8]| pattern::run(&spelt(data)));

/// Returns the pattern, and the text in one piece, in the form that [`pattern::run`] reads.
fn spelt(data: &[u8]) -> Vec<u8> {
    const ATOMS: [&[u8]; 8] = [b"a", b"b", b"ab", b".", b"[ab]", b"[^a]", b"(", b"(?:"];
    const REPEATED: [&[u8]; 8] = [b"", b"", b"*?", b"+?", b"??", b"*", b"+", b"{0,2}?"];
    const BEHIND: [&[u8]; 4] = [b"", b"", b"|", b")"];
    let mut parts = data.splitn(2, |&byte| byte == 0);
    let (mut spelt, mut open) = (Vec::new(), Vec::new());
    for &byte in parts.next().unwrap_or_default().iter().take(24) {
        let (atom, repeated) = (usize::from(byte % 8), usize::from(byte / 8 % 8));
        spelt.extend_from_slice(ATOMS[atom]);
        if ATOMS[atom].starts_with(b"(") {
            open.push(REPEATED[repeated]);
            continue;
        }
        spelt.extend_from_slice(REPEATED[repeated]);
        match BEHIND[usize::from(byte / 64)] {
            b")" => {
                if let Some(repeated) = open.pop() {
                    spelt.push(b')');
                    spelt.extend_from_slice(repeated);
                }
            }
            behind => spelt.extend_from_slice(behind),
        }
    }
    for repeated in open.into_iter().rev() {
        spelt.push(b')');
        spelt.extend_from_slice(repeated);
    }
    let text = parts.next().unwrap_or_default();
    let letters = text.iter().map(|byte| b"abc\n"[usize::from(byte % 4)]);
    let letters: Vec<u8> = letters.take(7).collect();
    spelt.extend([0, letters.len() as u8]);
    spelt.extend(letters);
    spelt
}
