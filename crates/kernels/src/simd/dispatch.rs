//! Chooses the instruction set for kernels, and calls them with it.
//!
//! A kernel is a value that can run on any [`Vector`](super::Vector). Everything in it is inlined
//! into one trampoline per instruction set, the `run` of each backend, which is compiled with those
//! instructions. There is no other call between a kernel's caller and its loop.
//!
//! The best instruction set that the processor has is chosen once. LLAMA_SIEVE_SIMD (scalar, avx2,
//! avx512, neon) names another; [`take_unknown_name`] returns its value if the processor has no
//! instruction set of that name.
//!
//! Passes whose results depend on a [`Function`] of the C library run with the instruction set that
//! was chosen for that function. If the vector form of the function differs from the C library's in
//! any bit, the scalar instruction set is chosen, which calls the C library.

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

/// Expands to the names of an instruction set: alone, and with each set of functions that run
/// scalar.
macro_rules! names {
    ($name:literal) => {
        const {
            [
                text(concat!($name, "\0")),
                text(concat!($name, ", scalar expf\0")),
                text(concat!($name, ", scalar exp\0")),
                text(concat!($name, ", scalar expf exp\0")),
                text(concat!($name, ", scalar logf\0")),
                text(concat!($name, ", scalar expf logf\0")),
                text(concat!($name, ", scalar exp logf\0")),
                text(concat!($name, ", scalar expf exp logf\0")),
            ]
        }
    };
}

/// Returns a literal as a C string, up to its NUL.
const fn text(of: &'static str) -> &'static CStr {
    match CStr::from_bytes_until_nul(of.as_bytes()) {
        Ok(text) => text,
        Err(_) => c"",
    }
}

/// A function of the C library for which the instruction sets have vector forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// `expf`.
    Exp,
    /// `exp`.
    ExpF64,
    /// `logf`.
    Ln,
}

impl Function {
    const ALL: [Self; 3] = [Self::Exp, Self::ExpF64, Self::Ln];

    /// False on Windows, whose C library (UCRT) is known to differ in each function. The compiler
    /// then leaves out the vector forms, which would never run.
    const CAN_AGREE: bool = !cfg!(windows);
}

/// The instruction set in use; 0 before the first choice.
static CURRENT: AtomicU8 = AtomicU8::new(0);

/// The instruction set in use for each function; 0 before the first choice.
static BY_FUNCTION: [AtomicU8; Function::ALL.len()] = [const { AtomicU8::new(0) }; 3];

impl Isa {
    /// Plain Rust, with the C library's exponentials and logarithms.
    pub const SCALAR: Self = Self(Kind::Scalar);

    /// Returns the instruction sets that this processor has, the best one last.
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
        // Miri supports few intrinsics.
        supported.truncate(if cfg!(miri) { 1 } else { supported.len() });
        supported
    }

    /// Returns the instruction set in use.
    #[inline]
    pub fn current() -> Self {
        #[cfg(test)]
        if let Some(forced) = tests::FORCED.get() {
            return forced;
        }
        Self::chosen(&CURRENT)
    }

    /// Returns the instruction set in use for results that depend on a function. Its form of the
    /// function agrees with the C library's, bit for bit.
    #[inline]
    // In bounds: there is one for each function.
    pub fn exact(function: Function) -> Self {
        if !Function::CAN_AGREE {
            return Self::SCALAR;
        }
        #[cfg(test)]
        if let Some(forced) = tests::FORCED.get() {
            return tests::exact(forced, function);
        }
        Self::chosen(&BY_FUNCTION[function as usize])
    }

    #[inline]
    fn chosen(kind: &AtomicU8) -> Self {
        match kind.load(Ordering::Relaxed) {
            #[cfg(target_arch = "x86_64")]
            3 => Self(Kind::Avx512),
            #[cfg(target_arch = "x86_64")]
            2 => Self(Kind::Avx2),
            #[cfg(target_arch = "aarch64")]
            4 => Self(Kind::Neon),
            1 => Self::SCALAR,
            _ => choose(kind),
        }
    }

    /// Returns this instruction set if its form of the function agrees with the C library's;
    /// otherwise the scalar one, which calls the C library.
    fn if_agrees(self, function: Function) -> Self {
        if !Function::CAN_AGREE {
            return Self::SCALAR;
        }
        match self == Self::SCALAR || agrees(self, function) {
            true => self,
            false => Self::SCALAR,
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

    /// Returns the name by which LLAMA_SIEVE_SIMD selects the instruction set.
    pub fn name(self) -> &'static CStr {
        self.names()[0]
    }

    /// Returns the names of the instruction set, by the set of functions that run scalar: `expf` is
    /// bit 0, `exp` bit 1, and `logf` bit 2.
    fn names(self) -> &'static [&'static CStr; 8] {
        match self.0 {
            Kind::Scalar => &names!("scalar"),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => &names!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => &names!("avx512"),
            #[cfg(target_arch = "aarch64")]
            Kind::Neon => &names!("neon"),
        }
    }
}

/// Returns the name of the instruction set in use, followed, if there are any, by ", scalar" and
/// the functions for which the C library is called.
pub fn instruction_set() -> &'static CStr {
    let isa = Isa::current();
    let others = Function::ALL.map(|function| Isa::exact(function) != isa);
    let [exp, exp_f64, ln] = others.map(usize::from);
    // In bounds: a bit for each function.
    isa.names()[exp | exp_f64 << 1 | ln << 2]
}

/// Makes all choices, and returns the one for `kind`.
#[cold]
fn choose(kind: &AtomicU8) -> Isa {
    choose_all();
    Isa::chosen(kind)
}

/// Chooses the best instruction set, or the one that LLAMA_SIEVE_SIMD names. For each function,
/// chooses the same one if its form agrees with the C library's, otherwise the scalar one.
// In bounds: there is one for each function.
fn choose_all() {
    let supported = Isa::supported();
    let best = supported.last().copied().unwrap_or(Isa::SCALAR);
    let name = environment::variable("LLAMA_SIEVE_SIMD");
    let named = name
        .as_deref()
        .and_then(|name| supported.iter().find(|isa| isa.name().to_str() == Ok(name)));
    let isa = named.copied().unwrap_or(best);
    for function in Function::ALL {
        let exact = isa.if_agrees(function);
        BY_FUNCTION[function as usize].store(exact.0 as u8, Ordering::Relaxed);
    }
    let first = CURRENT
        .compare_exchange(0, isa.0 as u8, Ordering::Relaxed, Ordering::Relaxed)
        .is_ok();
    if let (Some(name), None, true) = (name, named, first) {
        *UNKNOWN.lock() = Some(name);
        IS_UNKNOWN.store(true, Ordering::Relaxed);
    }
}

/// The unknown name of an instruction set, until it is reported.
static UNKNOWN: Mutex<Option<String>> = Mutex::new(None);
static IS_UNKNOWN: AtomicBool = AtomicBool::new(false);

/// Returns the value of LLAMA_SIEVE_SIMD if the instruction set has been chosen and the value names
/// none that this processor has. Returns it only once, so that one caller reports it.
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

/// Returns true if an instruction set's form of a function agrees with the C library's, bit for
/// bit.
fn agrees(isa: Isa, function: Function) -> bool {
    match function {
        Function::Exp => isa.run(self_check::Exp),
        Function::ExpF64 => isa.run(self_check::ExpF64),
        Function::Ln => isa.run(self_check::Ln),
    }
}

/// Declares functions that run a kernel with the instruction set in use.
///
/// The kernel is a function that takes any [`Vector`](super::Vector), and then the arguments of the
/// declared function: `dispatched! { pub fn sum(start: f32, xs: &[f32]) -> f32 => sum_on; }`. With
/// `=> sum_on by isa` the declared function takes the instruction set first; `=> exp_on with Exp`
/// runs with the one in use for that [`Function`].
macro_rules! dispatched {
    ($(
        $(#[$attribute:meta])*
        $visible:vis fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?
            => $on:ident $(by $isa:ident)? $(with $function:ident)?;
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
            $crate::simd::dispatch::isa!($($isa)? $(with $function)?).run(Arguments(($($argument,)*)))
        }
    )*};
}
pub(crate) use dispatched;

/// Expands to the type that a declared function returns.
macro_rules! result {
    () => {
        ()
    };
    ($result:ty) => {
        $result
    };
}
pub(crate) use result;

/// Expands to the instruction set that was passed, or to the one in use, in general or for a
/// function.
macro_rules! isa {
    () => {
        $crate::simd::Isa::current()
    };
    (with $function:ident) => {
        $crate::simd::Isa::exact($crate::simd::Function::$function)
    };
    ($isa:ident) => {
        $isa
    };
}
pub(crate) use isa;

#[cfg(test)]
pub(crate) mod tests;
