//! The arithmetic of the llama.cpp in this process, where builds of llama.cpp differ.
//!
//! No function of the host returns this profile. The certificate, which compares the built-ins with
//! this library at load, determines it by trial, and sets it here. Until then, and without a host,
//! it is the profile of a build with libstdc++ whose compiler fuses nothing. The profile is read a
//! few times per array, not for each candidate.

use std::cell::Cell;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};

/// The properties of a host's arithmetic, each of which varies independently between builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostProfile {
    /// The order in which the sorts of its C++ library leave equal elements.
    pub sort: Sort,
    /// The draws that use a random number even if there is only one candidate.
    pub one_candidate_draw: OneCandidateDraw,
    /// The library from which its samplers take exponentials, logarithms and powers.
    pub libm: Libm,
    /// The multiplications and additions that its compiler has fused.
    pub fusion: Fusion,
}

/// The order in which a C++ library's sorts leave equal elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// The order of libstdc++.
    Libstdcxx,
    /// The order of libc++ from LLVM 14 to 16.
    Libcxx14,
    /// The order of libc++ from LLVM 17 to 21.
    Libcxx17,
    /// The order of libc++ from LLVM 22 on, which makes heaps of numbers differently.
    Libcxx22,
    /// The order of Microsoft's library.
    Msvc,
    /// An unknown order: equal elements keep their input order.
    Stable,
}

impl Sort {
    /// The known orders that sorts of candidates can distinguish.
    pub const BY_CANDIDATES: [Self; 4] =
        [Self::Libstdcxx, Self::Libcxx14, Self::Libcxx17, Self::Msvc];

    /// Returns the order that agrees with this one in sorts of candidates but differs in sorts of
    /// numbers; this one if there is none.
    pub const fn of_later_numbers(self) -> Self {
        match self {
            Self::Libcxx17 => Self::Libcxx22,
            other => other,
        }
    }

    /// Returns true if the left one of two equal children in a heap moves up first, as in libc++.
    #[inline]
    pub const fn left_child_first(self) -> bool {
        matches!(self, Self::Libcxx14 | Self::Libcxx17 | Self::Libcxx22)
    }
}

/// The draws that use a random number even if there is only one candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OneCandidateDraw {
    /// True if the sampler dist uses a random number, as in builds since b10355.
    pub dist: bool,
    /// True if `std::discrete_distribution`, which mirostat and adaptive-p call, uses a random
    /// number, as in libc++ and in Microsoft's library, but not in libstdc++.
    pub discrete: bool,
}

/// The library whose exponentials, logarithms and powers a host calls.
///
/// The samplers of this library call the functions of the C library of this process, or functions
/// that agree with these bit for bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Libm {
    /// The C library of this process.
    Process,
    /// Another library, such as one that is linked into the host. Results that depend on it may
    /// differ in the last bits.
    Other,
}

/// The set of expressions whose multiplication and addition the host's compiler has fused, so they
/// are rounded once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fusion(u16);

/// An expression whose result changes if the compiler fuses its multiplication and addition.
///
/// Fusion does not change other expressions, since their product is exact: the squares of
/// top-n-sigma, the adapted target of adaptive-p, the random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Fused {
    /// The bucket index of a logit, in a bucket sort.
    Bucket = 1,
    /// The terms of the entropy of locally typical sampling.
    TypicalEntropy = 1 << 1,
    /// The terms of the entropy of dynamic temperature.
    Entropy = 1 << 2,
    /// The temperature that is computed from the entropy.
    Temperature = 1 << 3,
    /// The products of mirostat's estimate.
    Estimate = 1 << 4,
    /// The correction of mirostat's bound.
    Correction = 1 << 5,
    /// The threshold of top-n-sigma.
    Threshold = 1 << 6,
    /// The averages of adaptive-p.
    Average = 1 << 7,
    /// The frequency penalty.
    Penalty = 1 << 8,
}

impl Fusion {
    /// No expression, as on x86-64 without `-mfma`.
    pub const NONE: Self = Self(0);
    /// The expressions that clang fuses: all of them.
    pub const CLANG: Self = Self(0x1ff);
    /// The expressions that gcc fuses. In the penalties it fuses the other product, which is exact.
    pub const GCC: Self = Self(Self::CLANG.0 & !(Fused::Penalty as u16));
    /// The sets that occur in builds, with their names.
    pub const KNOWN: [(&'static str, Self); 3] = [
        ("none", Self::NONE),
        ("gcc", Self::GCC),
        ("clang", Self::CLANG),
    ];

    /// Returns the set that contains only this expression.
    pub const fn only(expression: Fused) -> Self {
        Self(expression as u16)
    }

    /// Returns true if this expression is fused.
    #[inline]
    pub const fn has(self, expression: Fused) -> bool {
        self.0 & expression as u16 != 0
    }
}

/// Returns true if the host's compiler has fused this expression.
#[inline]
pub fn fuses(expression: Fused) -> bool {
    HostProfile::current().fusion.has(expression)
}

/// The profile in the lower 16 bits, and the number of running calls of [`HostProfile::trying`] in
/// the upper 16.
static CURRENT: AtomicU32 = AtomicU32::new(HostProfile::UNFUSED.to_bits());
const ONE_TRIAL: u32 = 1 << 16;

thread_local! {
    static TRIED: Cell<Option<HostProfile>> = const { Cell::new(None) };
}

impl HostProfile {
    /// The profile of a current llama.cpp built with libstdc++ and without fused operations.
    pub const UNFUSED: Self = Self {
        sort: Sort::Libstdcxx,
        one_candidate_draw: OneCandidateDraw {
            dist: true,
            discrete: false,
        },
        libm: Libm::Process,
        fusion: Fusion::NONE,
    };

    /// Returns the profile of the host of this process, or the one that this thread is trying.
    #[inline]
    pub fn current() -> Self {
        let bits = CURRENT.load(Ordering::Relaxed);
        match bits < ONE_TRIAL {
            true => Self::from_bits(bits),
            false => Self::tried(bits),
        }
    }

    #[cold]
    fn tried(bits: u32) -> Self {
        TRIED.get().unwrap_or(Self::from_bits(bits))
    }

    /// Makes this the profile of the host of this process.
    pub fn set(self) {
        let with = |bits| Some((bits / ONE_TRIAL * ONE_TRIAL) | self.to_bits());
        let _ = CURRENT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with);
    }

    /// Runs `work` with this as the host's profile on the calling thread, and returns its result.
    pub fn trying<T>(self, work: impl FnOnce() -> T) -> T {
        struct Trial(Option<HostProfile>);
        impl Drop for Trial {
            fn drop(&mut self) {
                TRIED.set(self.0);
                CURRENT.fetch_sub(ONE_TRIAL, Ordering::Relaxed);
            }
        }
        CURRENT.fetch_add(ONE_TRIAL, Ordering::Relaxed);
        let _trial = Trial(TRIED.replace(Some(self)));
        work()
    }

    /// Returns the profile as 16 bits.
    pub const fn to_bits(self) -> u32 {
        let OneCandidateDraw { dist, discrete } = self.one_candidate_draw;
        let draws = (dist as u32) << 14 | (discrete as u32) << 15;
        self.fusion.0 as u32 | (self.libm as u32) << 9 | (self.sort as u32) << 11 | draws
    }

    /// Returns the profile encoded in the lowest bits.
    #[inline]
    pub const fn from_bits(bits: u32) -> Self {
        Self {
            sort: match bits >> 11 & 7 {
                0 => Sort::Libstdcxx,
                1 => Sort::Libcxx14,
                2 => Sort::Libcxx17,
                3 => Sort::Libcxx22,
                4 => Sort::Msvc,
                _ => Sort::Stable,
            },
            one_candidate_draw: OneCandidateDraw {
                dist: bits & 1 << 14 != 0,
                discrete: bits & 1 << 15 != 0,
            },
            libm: match bits >> 9 & 1 {
                0 => Libm::Process,
                _ => Libm::Other,
            },
            fusion: Fusion(bits as u16 & Fusion::CLANG.0),
        }
    }
}

const SORTS: [(&str, Sort); 6] = [
    ("libstdc++", Sort::Libstdcxx),
    ("libc++14", Sort::Libcxx14),
    ("libc++17", Sort::Libcxx17),
    ("libc++22", Sort::Libcxx22),
    ("msvc", Sort::Msvc),
    ("stable", Sort::Stable),
];

const DRAWS: [(&str, OneCandidateDraw); 4] = {
    const fn draw(dist: bool, discrete: bool) -> OneCandidateDraw {
        OneCandidateDraw { dist, discrete }
    }
    [
        ("none", draw(false, false)),
        ("dist", draw(true, false)),
        ("discrete", draw(false, true)),
        ("both", draw(true, true)),
    ]
};

const LIBMS: [(&str, Libm); 2] = [("process", Libm::Process), ("other", Libm::Other)];

impl fmt::Display for HostProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn name<T: PartialEq>(of: &[(&'static str, T)], value: T) -> &'static str {
            let known = of.iter().find(|(_, known)| *known == value);
            known.map_or("other", |(name, _)| name)
        }
        write!(
            f,
            "sort={} one-candidate-draw={} libm={} fusion={}",
            name(&SORTS, self.sort),
            name(&DRAWS, self.one_candidate_draw),
            name(&LIBMS, self.libm),
            name(&Fusion::KNOWN, self.fusion),
        )
    }
}

/// Parses properties such as `fusion=gcc`, separated by spaces, in any order. Omitted properties
/// are those of [`HostProfile::UNFUSED`]. An error lists the known properties, or the known values
/// of the property that is wrong.
impl FromStr for HostProfile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        fn value<T: Copy>(property: &str, name: &str, of: &[(&str, T)]) -> Result<T, String> {
            let known = of.iter().find(|(known, _)| *known == name);
            known.map(|(_, value)| *value).ok_or_else(|| {
                let names: Vec<&str> = of.iter().map(|(name, _)| *name).collect();
                format!("{property}= has the values {}", names.join(", "))
            })
        }
        let mut profile = Self::UNFUSED;
        for word in text.split_whitespace() {
            let (property, name) = word.split_once('=').unwrap_or((word, ""));
            match property {
                "sort" => profile.sort = value(property, name, &SORTS)?,
                "one-candidate-draw" => profile.one_candidate_draw = value(property, name, &DRAWS)?,
                "libm" => profile.libm = value(property, name, &LIBMS)?,
                "fusion" => profile.fusion = value(property, name, &Fusion::KNOWN)?,
                _ => {
                    return Err(
                        "the properties are sort=, one-candidate-draw=, libm=, fusion=".into(),
                    );
                }
            }
        }
        Ok(profile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_read() {
        for (_, sort) in SORTS {
            for (_, one_candidate_draw) in DRAWS {
                for (libm, (_, fusion)) in LIBMS
                    .iter()
                    .flat_map(|(_, libm)| Fusion::KNOWN.map(|fusion| (*libm, fusion)))
                {
                    let profile = HostProfile {
                        sort,
                        one_candidate_draw,
                        libm,
                        fusion,
                    };
                    assert_eq!(HostProfile::from_bits(profile.to_bits()), profile);
                    assert_eq!(profile.to_string().parse(), Ok(profile));
                }
            }
        }
        assert_eq!("".parse(), Ok(HostProfile::UNFUSED));
        for (text, said) in [
            ("fusion=icc", "fusion= has the values none, gcc, clang"),
            ("fusion", "fusion= has the values none, gcc, clang"),
            (
                "gcc",
                "the properties are sort=, one-candidate-draw=, libm=, fusion=",
            ),
        ] {
            assert_eq!(text.parse::<HostProfile>(), Err(said.to_owned()), "{text}");
        }
    }

    /// Checks that a profile that one thread tries is not seen by others, and that it is dropped
    /// after the trial, even if that panics.
    #[test]
    fn a_trial_is_one_threads() {
        let fused = HostProfile {
            fusion: Fusion::CLANG,
            ..HostProfile::UNFUSED
        };
        fused.trying(|| {
            assert_eq!(HostProfile::current(), fused);
            let other = std::thread::spawn(HostProfile::current).join();
            assert_eq!(other.expect("no panic"), HostProfile::UNFUSED);
            HostProfile::UNFUSED.trying(|| assert!(!fuses(Fused::Bucket)));
            let trial = || HostProfile::UNFUSED.trying(|| panic!("on purpose"));
            std::panic::catch_unwind(trial).expect_err("it panics");
            assert!(fuses(Fused::Penalty));
        });
        assert_eq!(HostProfile::current(), HostProfile::UNFUSED);
    }
}
