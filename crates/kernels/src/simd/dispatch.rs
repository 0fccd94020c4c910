//! The choice of the instruction set for a kernel, and the calls that enter it.
//!
//! A kernel is a value that can run on any [`Vector`](super::Vector). Everything in it is inlined
//! into one trampoline per instruction set, the `run` of each backend, which is compiled with those
//! instructions; there is no other call between a kernel's caller and its loop.
//!
//! The best instruction set that the processor has is chosen once. LLAMA_SIEVE_SIMD (scalar, avx2,
//! avx512, neon) names another; [`take_unknown_name`] gives a name that stands for none.

use crate::sync::Mutex;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use super::kernel::Kernel;
use super::scalar::Scalar;
use super::self_check;

use crate::environment;

/// Runs a kernel with the instruction set in use.
#[inline]
pub fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    Isa::current().run(kernel)
}

/// An instruction set that this processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Scalar = 1,
    #[cfg(target_arch = "x86_64")]
    Avx2 = 2,
    #[cfg(target_arch = "x86_64")]
    Avx512 = 3,
    #[cfg(target_arch = "aarch64")]
    Neon = 4,
}

/// The one in use, 0 before the first choice.
static CURRENT: AtomicU8 = AtomicU8::new(0);

impl Isa {
    /// Plain Rust, with the C library's exponentials and logarithms.
    pub const SCALAR: Self = Self(Kind::Scalar);

    /// The instruction sets that this processor has, the best one last.
    pub fn supported() -> Vec<Self> {
        let mut supported = vec![Self::SCALAR];
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c")
                && is_x86_feature_detected!("popcnt")
                && is_x86_feature_detected!("lzcnt")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2");
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl");
            supported.extend(avx2.then_some(Self(Kind::Avx2)));
            supported.extend((avx2 && avx512).then_some(Self(Kind::Avx512)));
        }
        #[cfg(target_arch = "aarch64")]
        supported.push(Self(Kind::Neon));
        // Miri knows few intrinsics.
        supported.truncate(if cfg!(miri) { 1 } else { supported.len() });
        supported
    }

    /// The one in use.
    #[inline]
    pub fn current() -> Self {
        #[cfg(test)]
        if let Some(forced) = tests::FORCED.get() {
            return forced;
        }
        match CURRENT.load(Ordering::Relaxed) {
            #[cfg(target_arch = "x86_64")]
            3 => Self(Kind::Avx512),
            #[cfg(target_arch = "x86_64")]
            2 => Self(Kind::Avx2),
            #[cfg(target_arch = "aarch64")]
            4 => Self(Kind::Neon),
            1 => Self::SCALAR,
            _ => choose(),
        }
    }

    /// Runs a kernel with this instruction set.
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            Kind::Scalar => kernel.run(Scalar),
            // SAFETY: a value of this kind exists only where the processor has the features.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => unsafe { super::x86_64::avx2::run(kernel) },
            // SAFETY: the same.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => unsafe { super::x86_64::avx512::run(kernel) },
            // SAFETY: the same.
            #[cfg(target_arch = "aarch64")]
            Kind::Neon => unsafe { super::aarch64::neon::run(kernel) },
        }
    }

    /// The name that LLAMA_SIEVE_SIMD has for it.
    pub fn name(self) -> &'static CStr {
        match self.0 {
            Kind::Scalar => c"scalar",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => c"avx2",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => c"avx512",
            #[cfg(target_arch = "aarch64")]
            Kind::Neon => c"neon",
        }
    }
}

/// The name of the instruction set in use.
pub fn instruction_set() -> &'static CStr {
    Isa::current().name()
}

/// The best, or the one that LLAMA_SIEVE_SIMD names, if its functions are those of the C library.
#[cold]
fn choose() -> Isa {
    let supported = Isa::supported();
    let best = supported.last().copied().unwrap_or(Isa::SCALAR);
    let name = environment::variable("LLAMA_SIEVE_SIMD");
    let named = name
        .as_deref()
        .and_then(|name| supported.iter().find(|isa| isa.name().to_str() == Ok(name)));
    let mut isa = named.copied().unwrap_or(best);
    // The scalar one calls the functions that the others are compared with.
    if isa != Isa::SCALAR && !agrees(isa) {
        isa = Isa::SCALAR;
    }
    let first = CURRENT
        .compare_exchange(0, isa.0 as u8, Ordering::Relaxed, Ordering::Relaxed)
        .is_ok();
    if let (Some(name), None, true) = (name, named, first) {
        *UNKNOWN.lock() = Some(name);
        IS_UNKNOWN.store(true, Ordering::Relaxed);
    }
    isa
}

/// An unknown name of an instruction set, until it is taken.
static UNKNOWN: Mutex<Option<String>> = Mutex::new(None);
static IS_UNKNOWN: AtomicBool = AtomicBool::new(false);

/// Returns what LLAMA_SIEVE_SIMD says if the instruction set was chosen and it names none that this
/// processor has: once, so that one caller reports it.
#[inline]
pub fn take_unknown_name() -> Option<String> {
    match IS_UNKNOWN.load(Ordering::Relaxed) {
        true => unknown_name(),
        false => None,
    }
}

#[cold]
fn unknown_name() -> Option<String> {
    IS_UNKNOWN.store(false, Ordering::Relaxed);
    UNKNOWN.lock().take()
}

/// True if its exponentials and logarithms are those of the C library, bit for bit.
fn agrees(isa: Isa) -> bool {
    isa.run(self_check::Exp) && isa.run(self_check::ExpF64) && isa.run(self_check::Ln)
}

/// Declares functions that run a kernel with the instruction set in use.
///
/// The kernel is a function over any [`Vector`](super::Vector), whose arguments are those of the
/// declared one after the vector:
/// `dispatched! { pub fn sum(start: f32, xs: &[f32]) -> f32 => sum_on; }`. With
/// `=> sum_on by isa` the declared function takes the instruction set first.
macro_rules! dispatched {
    ($(
        $(#[$attribute:meta])*
        $visible:vis fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?
            => $on:ident $(by $isa:ident)?;
    )*) => {$(
        $(#[$attribute])*
        $visible fn $name($($isa: $crate::simd::Isa,)? $($argument: $type),*) $(-> $result)? {
            struct Arguments<A>(A);
            impl $crate::simd::Kernel for Arguments<($($type,)*)> {
                type Output = $crate::simd::dispatch::result!($($result)?);
                #[inline(always)]
                fn run<V: $crate::simd::Vector>(self, v: V) -> Self::Output {
                    let Self(($($argument,)*)) = self;
                    $on(v, $($argument),*)
                }
            }
            $crate::simd::dispatch::isa!($($isa)?).run(Arguments(($($argument,)*)))
        }
    )*};
}
pub(crate) use dispatched;

/// The type that a function declaration returns.
macro_rules! result {
    () => {
        ()
    };
    ($result:ty) => {
        $result
    };
}
pub(crate) use result;

/// The instruction set that was named, or the one in use.
macro_rules! isa {
    () => {
        $crate::simd::Isa::current()
    };
    ($isa:ident) => {
        $isa
    };
}
pub(crate) use isa;

#[cfg(test)]
mod tests;
