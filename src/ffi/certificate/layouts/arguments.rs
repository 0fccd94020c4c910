//! The arguments of a call, read according to one of the known argument lists.

use std::ffi::{CString, c_char};
use std::ptr::null_mut;

use super::confirmed::{read, text};
use super::{Changing, INTEGER, Registers, VECTOR};
use crate::ffi::given::LLAMA_SIEVE_DRY_MAX_BREAKERS;
use crate::ffi::host::llama_h::{llama_logit_bias, llama_sampler};
use crate::ffi::samplers::*;
use crate::samplers::MAX_BREAKER_BYTES;

/// The maximum number of biases that are compared.
const MOST_BIASES: usize = 1 << 16;

/// The arguments of a call. Floating-point numbers are kept as their bits, so that comparisons are
/// exact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Arguments {
    Penalties {
        n_vocab: i32,
        last_n: i32,
        /// The factors of repetition, frequency and presence.
        factors: [u32; 3],
    },
    Dry {
        vocab: usize,
        multiplier: u32,
        base: u32,
        allowed_length: i32,
        last_n: i32,
        /// The breakers; empty ones also represent NULL.
        breakers: Vec<Vec<u8>>,
    },
    LogitBias {
        n_vocab: i32,
        /// The tokens, with the bits of their biases.
        biases: Vec<(i32, u32)>,
    },
    Infill {
        vocab: usize,
    },
}

/// The reason why a call cannot be read according to an argument list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// The call cannot have this argument list: a value cannot be the pointer, or the number of
    /// breakers, that it would have to be.
    Impossible,
    /// There is too much to compare, or the vocabulary is unknown.
    Unknown,
}

impl Arguments {
    /// Returns the arguments of a call from its registers, read according to the argument list
    /// numbered `layout`. `is_vocabulary` returns true for the address of a vocabulary.
    pub(super) fn read(
        kind: Changing,
        layout: usize,
        registers: &Registers,
        is_vocabulary: &dyn Fn(usize) -> bool,
    ) -> Result<Self, Unread> {
        let [a, b, c, d, e, f] = registers.integers_of(kind, layout);
        let [x, y, z] = registers.vectors_of(kind, layout);
        match (kind, layout) {
            (Changing::Penalties, 0) => Ok(Self::Penalties {
                n_vocab: a as i32,
                last_n: b as i32,
                factors: [x, y, z],
            }),
            (Changing::Penalties, _) => Ok(Self::Penalties {
                n_vocab: 0,
                last_n: a as i32,
                factors: [x, y, z],
            }),
            (Changing::Dry, _) => {
                let (allowed_length, last_n, list) = match layout {
                    0 => (b as i32, c as i32, (d, e)),
                    // In older builds a last_n of -1 means the whole context.
                    _ if d as i32 == -1 => (c as i32, b as i32, (e, f)),
                    _ => (c as i32, d as i32, (e, f)),
                };
                let breakers = breakers(list)?;
                if breakers.iter().any(|text| !text.is_empty()) && !is_vocabulary(a) {
                    return Err(Unread::Unknown);
                }
                Ok(Self::Dry {
                    vocab: a,
                    multiplier: x,
                    base: y,
                    allowed_length,
                    last_n,
                    breakers,
                })
            }
            (Changing::LogitBias, _) => Ok(Self::LogitBias {
                n_vocab: a as i32,
                biases: biases(b as i32, c)?,
            }),
            (Changing::Infill, _) => match is_vocabulary(a) {
                true => Ok(Self::Infill { vocab: a }),
                false => Err(Unread::Unknown),
            },
        }
    }

    /// Returns the constructor that takes these arguments.
    fn kind(&self) -> Changing {
        match self {
            Self::Penalties { .. } => Changing::Penalties,
            Self::Dry { .. } => Changing::Dry,
            Self::LogitBias { .. } => Changing::LogitBias,
            Self::Infill { .. } => Changing::Infill,
        }
    }

    /// Makes this library's sampler with these arguments. DRY calls the host's tokenizer, which may
    /// throw.
    ///
    /// # Safety
    /// A vocabulary that was read is one of the bound host's.
    pub(super) unsafe fn make(&self) -> *mut llama_sampler {
        match self {
            &Self::Penalties {
                n_vocab,
                last_n,
                factors,
            } => {
                let [repeat, freq, present] = factors.map(f32::from_bits);
                llama_sieve_init_penalties(n_vocab, last_n, repeat, freq, present)
            }
            Self::Dry {
                vocab,
                multiplier,
                base,
                allowed_length,
                last_n,
                breakers,
            } => {
                let texts = breakers.iter().cloned().map(CString::new);
                let texts: Vec<CString> = texts.filter_map(Result::ok).collect();
                let mut pointers: Vec<*const c_char> =
                    texts.iter().map(|text| text.as_ptr()).collect();
                // SAFETY: the caller guarantees the vocabulary; the texts outlive the call.
                unsafe {
                    llama_sieve_init_dry(
                        *vocab as *const _,
                        f32::from_bits(*multiplier),
                        f32::from_bits(*base),
                        *allowed_length,
                        *last_n,
                        match pointers.is_empty() {
                            true => null_mut(),
                            false => pointers.as_mut_ptr(),
                        },
                        pointers.len(),
                    )
                }
            }
            Self::LogitBias { n_vocab, biases } => {
                let bias = |&(token, bias)| llama_logit_bias {
                    token,
                    bias: f32::from_bits(bias),
                };
                let biases: Vec<llama_logit_bias> = biases.iter().map(bias).collect();
                // SAFETY: there are as many biases as the number that is passed.
                unsafe {
                    llama_sieve_init_logit_bias(*n_vocab, biases.len() as i32, biases.as_ptr())
                }
            }
            // SAFETY: the caller guarantees the vocabulary.
            Self::Infill { vocab } => unsafe { llama_sieve_init_infill(*vocab as *const _) },
        }
    }

    /// Returns a bit for each argument that is proven to be in the register that the list numbered
    /// `layout` assigns to it: no other register of the same kind has the same value, and the value
    /// has an effect.
    pub(super) fn shown(&self, layout: usize, registers: &Registers) -> u8 {
        let kind = self.kind();
        let integer = |number| registers.is_only_integer(kind.place(layout, INTEGER, number));
        let vector = |number| registers.is_only_vector(kind.place(layout, VECTOR, number));
        let does_something = |bits: u32, nothing: f32| {
            let distance = (f32::from_bits(bits) - nothing).abs();
            (1e-3..1e3).contains(&distance)
        };
        let shown: &[bool] = match self {
            &Self::Penalties {
                last_n,
                factors: [repeat, freq, present],
                ..
            } => &[
                vector(0) && does_something(repeat, 1.0),
                // For a token that occurs only once, frequency and presence have the same effect.
                vector(1) && last_n > 1 && does_something(freq, 0.0),
                vector(2) && last_n > 1 && does_something(present, 0.0),
                integer(1 - layout),
            ],
            Self::Dry {
                multiplier,
                base,
                allowed_length,
                last_n,
                breakers,
                ..
            } => &[
                vector(0) && does_something(*multiplier, 0.0),
                // At the minimum length the exponent of the base is 0, so a longer repetition is
                // needed.
                vector(1)
                    && *last_n / 2 > 1 + (*allowed_length).max(1)
                    && does_something(*base, 1.0),
                integer(1 + layout),
                integer(2 + layout) && (layout == 0 || integer(1)),
                integer(4 + layout) && breakers.iter().any(|text| !text.is_empty()),
            ],
            Self::LogitBias { biases, .. } => &[integer(1) && !biases.is_empty()],
            Self::Infill { .. } => &[integer(0)],
        };
        let bits = shown.iter().enumerate();
        bits.map(|(i, &shown)| u8::from(shown) << i).sum()
    }
}

impl Changing {
    /// Returns the bits of all arguments that have to be [shown](Arguments::shown), by several
    /// calls together.
    pub(super) const fn all_shown(self) -> u8 {
        match self {
            Self::Penalties => 0b1111,
            Self::Dry => 0b11111,
            Self::LogitBias | Self::Infill => 1,
        }
    }
}

fn breakers((list, n): (usize, usize)) -> Result<Vec<Vec<u8>>, Unread> {
    const WORD: usize = size_of::<usize>();
    if list == 0 || n == 0 {
        return Ok(Vec::new());
    }
    if n > LLAMA_SIEVE_DRY_MAX_BREAKERS || !list.is_multiple_of(WORD) {
        return Err(Unread::Impossible);
    }
    let mut bytes = vec![0; n * WORD];
    if !read(list, &mut bytes) {
        return Err(Unread::Impossible);
    }
    let (words, _) = bytes.as_chunks();
    let breaker = |&word: &[u8; WORD]| match usize::from_ne_bytes(word) {
        0 => Some(Vec::new()),
        address => text(address, MAX_BREAKER_BYTES),
    };
    let breakers: Option<Vec<Vec<u8>>> = words.iter().map(breaker).collect();
    breakers.ok_or(Unread::Impossible)
}

fn biases(n: i32, list: usize) -> Result<Vec<(i32, u32)>, Unread> {
    const EACH: usize = size_of::<llama_logit_bias>();
    let Some(n) = usize::try_from(n).ok().filter(|&n| n > 0) else {
        return Ok(Vec::new());
    };
    if !list.is_multiple_of(align_of::<llama_logit_bias>()) {
        return Err(Unread::Impossible);
    }
    // Even of a list that is too long, the first biases must be readable.
    let mut bytes = vec![0; n.min(MOST_BIASES) * EACH];
    if !read(list, &mut bytes) {
        return Err(Unread::Impossible);
    }
    if n > MOST_BIASES {
        return Err(Unread::Unknown);
    }
    let (all, _) = bytes.as_chunks::<EACH>();
    let bias = |&[a, b, c, d, e, f, g, h]: &[u8; EACH]| {
        let token = i32::from_ne_bytes([a, b, c, d]);
        (token, u32::from_ne_bytes([e, f, g, h]))
    };
    Ok(all.iter().map(bias).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: Changing, layout: usize, registers: &Registers) -> Result<Arguments, Unread> {
        Arguments::read(kind, layout, registers, &|vocab| vocab == 77)
    }

    fn registers(integers: [usize; 6], floats: &[f32]) -> Registers {
        let mut vectors = [0; 8];
        for (to, from) in vectors.iter_mut().zip(floats) {
            *to = from.to_bits();
        }
        Registers { integers, vectors }
    }

    #[test]
    fn breakers_are_read_where_they_are() {
        let texts = [
            c"\n".as_ptr(),
            c"".as_ptr(),
            std::ptr::null(),
            c"ab".as_ptr(),
        ];
        let new = registers([77, 2, 64, texts.as_ptr() as usize, 4, 9], &[0.8, 1.75]);
        let Ok(Arguments::Dry {
            breakers, last_n, ..
        }) = read(Changing::Dry, 0, &new)
        else {
            panic!("it is a call with breakers");
        };
        assert_eq!(breakers, [&b"\n"[..], b"", b"", b"ab"]);
        assert_eq!(last_n, 64);
        // Read by the other list, a number is where the pointer should be.
        assert_eq!(read(Changing::Dry, 1, &new), Err(Unread::Impossible));
        // A vocabulary that the host has not returned is not used.
        let mut other = new;
        other.integers[0] = 78;
        assert_eq!(read(Changing::Dry, 0, &other), Err(Unread::Unknown));
        other.integers[4] = LLAMA_SIEVE_DRY_MAX_BREAKERS + 1;
        assert_eq!(read(Changing::Dry, 0, &other), Err(Unread::Impossible));
        // The address of one of the texts cannot be read.
        let texts = [c"\n".as_ptr(), 8 as *const c_char];
        other.integers[3..5].copy_from_slice(&[texts.as_ptr() as usize, 2]);
        assert_eq!(read(Changing::Dry, 0, &other), Err(Unread::Impossible));
    }

    #[test]
    fn biases_are_read_where_they_are() {
        let list = [llama_logit_bias {
            token: 5,
            bias: -1.5,
        }; 3];
        let mut call = registers([1000, 3, list.as_ptr() as usize, 0, 0, 0], &[]);
        let expected = Arguments::LogitBias {
            n_vocab: 1000,
            biases: vec![(5, (-1.5f32).to_bits()); 3],
        };
        assert_eq!(read(Changing::LogitBias, 0, &call), Ok(expected));
        for (n, list) in [(3, 1000), (3, list.as_ptr() as usize + 1), (1 << 20, 8)] {
            call.integers[1..3].copy_from_slice(&[n, list]);
            assert_eq!(read(Changing::LogitBias, 0, &call), Err(Unread::Impossible));
        }
    }

    #[test]
    fn only_what_has_a_register_of_its_own_is_shown() {
        let shown = |layout, integers, floats: &[f32]| {
            let registers = registers(integers, floats);
            let read = read(Changing::Penalties, layout, &registers);
            read.expect("nothing is a pointer")
                .shown(layout, &registers)
        };
        assert_eq!(shown(0, [9, 64, 1, 2, 3, 4], &[1.1, 0.5, 0.25]), 0b1111);
        assert_eq!(shown(1, [64, 9, 1, 2, 3, 4], &[1.1, 0.5, 0.25]), 0b1111);
        // Another register has the same value in its lower half.
        assert_eq!(
            shown(0, [9, 64, 1, 2, 3, 64 | (1 << 31 << 1)], &[1.1, 0.5, 0.25]),
            0b111
        );
        // Two arguments that could be exchanged, and a third that has no effect.
        assert_eq!(shown(0, [9, 64, 1, 2, 3, 4], &[1.1, 0.5, 0.5]), 0b1001);
        assert_eq!(shown(0, [9, 64, 1, 2, 3, 4], &[1.1, 0.5, 0.0]), 0b1011);
        assert_eq!(shown(0, [9, 64, 1, 2, 3, 4], &[1.0, 0.5, 0.25]), 0b1110);
    }
}
