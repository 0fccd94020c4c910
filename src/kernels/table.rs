//! One table of functions, chosen once.

use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::near::{self, Rounded};
use super::{BLOCK, Column, Curve, buckets, floats, math, scalar};
use crate::environment;
use crate::log;
use crate::token::TokenData;

/// The type of [`scalar::tail`].
type Tail = fn(&[f32], &[f32], f32, f32, f32, Option<&mut Vec<u32>>) -> f32;

/// The type of [`scalar::pick`].
type Pick = fn(&[f32], &[f32], f32, f32, &mut Vec<f32>);

/// The type of [`scalar::write_divided`] and [`scalar::write_quotients`], which divide by a `T`.
type Write<T> = fn(&mut [TokenData], &[u32], &[f32], &[f32], T);

/// The type of [`scalar::moments`].
type Moments = fn(&[TokenData], &mut [[f64; 2]], &mut [f32], bool) -> (f32, Option<f32>);

/// The type of [`scalar::column_selecting`].
type ColumnSelecting = fn(&[TokenData], &mut [f32], f32, &mut Vec<u32>, &mut Vec<f32>) -> Column;

/// The type of [`near::surprisals`].
type Surprisals = fn(&[f32], f32, &mut [f32], &mut [f32], &mut [f32]) -> f64;

/// The type of [`scalar::bend`].
type Bend = fn(&mut [TokenData], f32, &mut [f32], Curve) -> (f32, bool);

/// The type of [`scalar::exp_p`].
type ExpP = fn(&mut [TokenData], f32, &mut [f32; BLOCK], &mut [f64]) -> f64;

/// The passes of one instruction set. What each does says its namesake in [`scalar`].
pub struct Table {
    pub(super) name: &'static CStr,
    pub(super) max: fn(&[TokenData]) -> f32,
    pub(super) argmax: fn(&[TokenData]) -> usize,
    pub(super) near_max: fn(&[TokenData], f32, &mut Vec<TokenData>) -> f32,
    pub(super) logits: fn(&[TokenData], &mut [f32]) -> f32,
    pub(super) softmax_sum: fn(&[f32], f32) -> f32,
    pub(super) rounded_sum: fn(&[f32], Rounded, &mut Vec<u32>) -> f64,
    pub(super) surprisals: Surprisals,
    pub(super) nearness: fn(&[f32], f32, &mut [f32]),
    pub(super) exp_sum: fn(f32, &mut [f32], f32) -> f32,
    pub(super) exp_sum_double: fn(&mut [f32], f32, &mut [f64]) -> f64,
    pub(super) exp_wide: fn(&mut [f32], f32) -> f64,
    pub(super) exp_double: fn(f64, &mut [f32], f32) -> f64,
    pub(super) sum: fn(f32, &[f32]) -> f32,
    pub(super) sum_double: fn(&[f32], &mut [f64]) -> f64,
    pub(super) moments: Moments,
    pub(super) any_between: fn(&[TokenData], f32, f32) -> bool,
    pub(super) signed_sum: fn(&[TokenData]) -> (f32, usize),
    pub(super) squares_masking: fn(&mut [TokenData], f32, f32) -> f32,
    pub(super) set_p: fn(&mut [TokenData], &[f32]),
    pub(super) set_quotients: fn(&mut [TokenData], &[f32], f64),
    pub(super) exp_p: ExpP,
    pub(super) exp_p_in_order: fn(&mut [TokenData], f32, &mut [f32; BLOCK]) -> f32,
    pub(super) divide_p: fn(&mut [TokenData], f32, &mut [f64]) -> f64,
    pub(super) divide_p_double: fn(&mut [TokenData], f64),
    pub(super) divide: fn(&mut [f32], f32),
    pub(super) divide_logits: fn(&mut [TokenData], f32),
    pub(super) mask_below: fn(&mut [TokenData], f32),
    pub(super) at_least: fn(&[TokenData], u32, f32, &mut Vec<u32>),
    pub(super) select: fn(&[f32], f32, &mut Vec<u32>, &mut Vec<f32>),
    pub(super) pick: Pick,
    pub(super) tail: Tail,
    pub(super) column: fn(&[TokenData], &mut [f32]) -> Column,
    pub(super) column_selecting: ColumnSelecting,
    pub(super) steps: fn(&[f32], f32, f32, f32, &mut [u32]),
    pub(super) fetch: fn(&[f32], &mut [u32], &mut [f32]),
    pub(super) next_rise: fn(&[f32], usize) -> usize,
    pub(super) write_divided: Write<f32>,
    pub(super) write_quotients: Write<f64>,
    pub(super) lns: fn(&[f32], &mut [f32]),
    pub(super) bend: Bend,
    pub(super) entropies: fn(&[f32], &mut [f32]) -> f32,
    /// Those over raw logits.
    pub(super) floats: floats::Passes,
    /// Those of sorting in registers, where there are registers enough.
    pub(super) buckets: Option<buckets::Passes>,
}

pub(super) static SCALAR: Table = Table {
    name: c"scalar",
    max: scalar::max,
    argmax: scalar::argmax,
    near_max: scalar::near_max,
    logits: scalar::logits,
    softmax_sum: near::softmax_sum,
    rounded_sum: near::rounded_sum,
    surprisals: near::surprisals,
    nearness: near::nearness,
    exp_sum: scalar::exp_sum,
    exp_sum_double: scalar::exp_sum_double,
    exp_wide: scalar::exp_wide,
    exp_double: scalar::exp_double,
    sum: scalar::sum,
    sum_double: scalar::sum_double,
    moments: scalar::moments,
    any_between: scalar::any_between,
    signed_sum: scalar::signed_sum,
    squares_masking: scalar::squares_masking,
    set_p: scalar::set_p,
    set_quotients: scalar::set_quotients,
    exp_p: scalar::exp_p,
    exp_p_in_order: scalar::exp_p_in_order,
    divide_p: scalar::divide_p,
    divide_p_double: scalar::divide_p_double,
    divide: scalar::divide,
    divide_logits: scalar::divide_logits,
    mask_below: scalar::mask_below,
    at_least: scalar::at_least,
    select: scalar::select,
    pick: scalar::pick,
    tail: scalar::tail,
    column: scalar::column,
    column_selecting: scalar::column_selecting,
    steps: scalar::steps,
    fetch: scalar::fetch,
    next_rise: scalar::next_rise,
    write_divided: scalar::write_divided,
    write_quotients: scalar::write_quotients,
    lns: scalar::lns,
    bend: scalar::bend,
    entropies: scalar::entropies,
    floats: floats::SCALAR_PASSES,
    buckets: None,
};

/// The function `table` of an instruction set: every algorithm of [`portable`](super::portable),
/// compiled with these features.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! instantiate {
    ($token:ident, $name:literal, $features:literal) => {
        use super::{BLOCK, Column, Curve, near::Rounded, portable, table::Table};

        super::instantiate!(@functions $token, portable, $features,
            fn max(data: &[TokenData]) -> f32;
            fn argmax(data: &[TokenData]) -> usize;
            fn near_max(data: &[TokenData], below: f32, to: &mut Vec<TokenData>) -> f32;
            fn logits(data: &[TokenData], to: &mut [f32]) -> f32;
            fn softmax_sum(xs: &[f32], max: f32) -> f32;
            fn rounded_sum(xs: &[f32], of: Rounded, doubtful: &mut Vec<u32>) -> f64;
            fn surprisals(es: &[f32], sum: f32, ps: &mut [f32], lns: &mut [f32], terms: &mut [f32]) -> f64;
            fn nearness(lns: &[f32], entropy: f32, to: &mut [f32]) -> ();
            fn exp_sum(start: f32, xs: &mut [f32], max: f32) -> f32;
            fn exp_sum_double(xs: &mut [f32], max: f32, sums: &mut [f64]) -> f64;
            fn exp_wide(xs: &mut [f32], max: f32) -> f64;
            fn exp_double(start: f64, xs: &mut [f32], max: f32) -> f64;
            fn sum(start: f32, xs: &[f32]) -> f32;
            fn sum_double(xs: &[f32], sums: &mut [f64]) -> f64;
            fn moments(data: &[TokenData], sums: &mut [[f64; 2]], maxima: &mut [f32], in_order: bool) -> (f32, Option<f32>);
            fn any_between(data: &[TokenData], low: f32, high: f32) -> bool;
            fn signed_sum(data: &[TokenData]) -> (f32, usize);
            fn squares_masking(data: &mut [TokenData], mean: f32, threshold: f32) -> f32;
            fn set_p(data: &mut [TokenData], ps: &[f32]) -> ();
            fn set_quotients(data: &mut [TokenData], ps: &[f32], by: f64) -> ();
            fn exp_p(data: &mut [TokenData], max: f32, values: &mut [f32; BLOCK], sums: &mut [f64]) -> f64;
            fn exp_p_in_order(data: &mut [TokenData], max: f32, values: &mut [f32; BLOCK]) -> f32;
            fn divide_p(data: &mut [TokenData], by: f32, sums: &mut [f64]) -> f64;
            fn divide_p_double(data: &mut [TokenData], by: f64) -> ();
            fn divide(xs: &mut [f32], by: f32) -> ();
            fn divide_logits(data: &mut [TokenData], by: f32) -> ();
            fn mask_below(data: &mut [TokenData], threshold: f32) -> ();
            fn at_least(data: &[TokenData], first: u32, threshold: f32, to: &mut Vec<u32>) -> ();
            fn select(xs: &[f32], threshold: f32, indices: &mut Vec<u32>, picked: &mut Vec<f32>) -> ();
            fn pick(keys: &[f32], xs: &[f32], low: f32, high: f32, to: &mut Vec<f32>) -> ();
            fn tail(keys: &[f32], terms: &[f32], above: f32, below: f32, c: f32, halfway: Option<&mut Vec<u32>>) -> f32;
            fn column(data: &[TokenData], to: &mut [f32]) -> Column;
            fn column_selecting(data: &[TokenData], to: &mut [f32], threshold: f32, indices: &mut Vec<u32>, picked: &mut Vec<f32>) -> Column;
            fn steps(xs: &[f32], max: f32, factor: f32, last: f32, to: &mut [u32]) -> ();
            fn fetch(from: &[f32], indices: &mut [u32], to: &mut [f32]) -> ();
            fn next_rise(xs: &[f32], start: usize) -> usize;
            fn write_divided(data: &mut [TokenData], ids: &[u32], logits: &[f32], ps: &[f32], by: f32) -> ();
            fn write_quotients(data: &mut [TokenData], ids: &[u32], logits: &[f32], ps: &[f32], by: f64) -> ();
            fn lns(xs: &[f32], to: &mut [f32]) -> ();
            fn bend(data: &mut [TokenData], by: f32, original: &mut [f32], curve: Curve) -> (f32, bool);
            fn entropies(ps: &[f32], to: &mut [f32]) -> f32;
        );

        /// Every pass with this instruction set.
        ///
        /// # Safety
        /// Only where the processor has it may a function of the table be called.
        pub unsafe fn table() -> &'static Table {
            static TABLE: Table = Table {
                name: $name, max, argmax, near_max, logits, softmax_sum, rounded_sum, surprisals, nearness, exp_sum, exp_sum_double, exp_wide, exp_double, sum, sum_double, moments, any_between,
                signed_sum, squares_masking, set_p, set_quotients, exp_p, exp_p_in_order, divide_p, divide_p_double, divide, divide_logits, mask_below, at_least, select, pick, tail, column,
                column_selecting, steps, fetch, next_rise, write_divided,
                write_quotients, lns,
                bend, entropies,
                floats: FLOATS,
                buckets: BUCKETS,
            };
            &TABLE
        }
    };
    (@functions $token:ident, $algorithms:ident, $features:literal,
        $(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        fn $name($($argument: $type),*) -> $result {
            #[target_feature(enable = $features)]
            fn compiled($($argument: $type),*) -> $result {
                // SAFETY: this function runs only where the processor has these features.
                $algorithms::$name(unsafe { $token::new() }, $($argument),*)
            }
            // SAFETY: the table is given out only where the processor has these features.
            unsafe { compiled($($argument),*) }
        }
    )*};
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) use instantiate;

/// The tables that this processor can use, the best one last.
pub(super) fn supported() -> Vec<&'static Table> {
    #[cfg_attr(
        not(any(target_arch = "x86_64", target_arch = "aarch64")),
        expect(unused_mut)
    )]
    let mut tables = vec![&SCALAR];
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
            && is_x86_feature_detected!("popcnt");
        if avx2 {
            // SAFETY: just asked.
            tables.push(unsafe { super::avx2::table() });
        }
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl");
        if avx2 && avx512 {
            // SAFETY: just asked.
            tables.push(unsafe { super::avx512::table() });
        }
    }
    #[cfg(target_arch = "aarch64")]
    {
        // SAFETY: the architecture has it.
        tables.push(unsafe { super::neon::table() });
    }
    tables
}

/// The table in use.
#[inline]
pub(super) fn current() -> &'static Table {
    // SAFETY: null, or what `choose` stored: a table that lives as long as the program and is never
    // written.
    match unsafe { CURRENT.load(Ordering::Acquire).as_ref() } {
        Some(table) => table,
        None => choose(),
    }
}

/// The table in use, null before the first choice. An atomic and no `OnceLock`: a thread sanitizer
/// does not see into the standard library, whose locks are compiled without it.
static CURRENT: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

/// The best, or the one that LLAMA_SIEVE_SIMD names.
#[cold]
fn choose() -> &'static Table {
    let supported = supported();
    let best = supported.last().copied().unwrap_or(&SCALAR);
    let name = environment::variable("LLAMA_SIEVE_SIMD");
    let named = name
        .as_deref()
        .and_then(|name| supported.iter().find(|t| t.name.to_str() == Ok(name)));
    let mut table = named.copied().unwrap_or(best);
    if !exp_agrees(table) || !exp_double_agrees(table) || !ln_agrees(table) {
        table = &SCALAR;
    }
    let chosen = ptr::from_ref(table).cast_mut();
    let first = CURRENT
        .compare_exchange(ptr::null_mut(), chosen, Ordering::AcqRel, Ordering::Acquire)
        .is_ok();
    // Only now, since the sink of the log may call the library.
    if let (Some(name), None, true) = (name, named, first) {
        log::warn(&format!(
            "LLAMA_SIEVE_SIMD={name} is unknown or not supported by this processor; {} is used",
            table.name.to_string_lossy()
        ));
    }
    table
}

/// Whether the table's `exp` gives what the host's `expf` gives, on some thousand values.
///
/// It does on the GNU C library since 2.27. Where it does not, exactness goes before speed, and the
/// built-ins themselves spend most of their time in `expf`.
pub(super) fn exp_agrees(table: &Table) -> bool {
    const N: usize = 4096;
    let mut xs: Vec<f32> = (0..N)
        .map(|i| {
            // Densest near 0, down to where everything rounds to 0.
            let x = i as f32 / N as f32;
            -104.5 * x * x
        })
        .collect();
    let expected: Vec<u32> = xs.iter().map(|&x| math::exp(x).to_bits()).collect();
    (table.exp_sum)(0.0, &mut xs, 0.0);
    xs.iter().zip(&expected).all(|(x, e)| x.to_bits() == *e)
}

/// The same in double precision, of the host's `exp`, and of the sum of all.
pub(super) fn exp_double_agrees(table: &Table) -> bool {
    const N: usize = 4096;
    // In no order, and with differences that no float holds.
    let xs: Vec<f32> = (0..N)
        .map(|i| i.wrapping_mul(2_654_435_761) % N)
        .map(|i| 0.3 - 700.0 * (i as f32 / N as f32).powi(5))
        .collect();
    let max = 0.3;
    let [mut ours, mut theirs] = [xs.clone(), xs];
    let sum = (table.exp_double)(1.0, &mut ours, max);
    let expected = (SCALAR.exp_double)(1.0, &mut theirs, max);
    let agrees = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits();
    sum.to_bits() == expected.to_bits() && ours.iter().zip(&theirs).all(agrees)
}

/// The same of its `ln` and the host's `logf`.
pub(super) fn ln_agrees(table: &Table) -> bool {
    const N: u32 = 4096;
    // Over all powers of two, with mantissas of every kind.
    let step = (f32::MAX.to_bits() - f32::MIN_POSITIVE.to_bits()) / N;
    let bits = (0..N).map(|i| f32::MIN_POSITIVE.to_bits() + i * step);
    let xs: Vec<f32> = bits.map(f32::from_bits).collect();
    let mut ours = vec![0.0; xs.len()];
    (table.lns)(&xs, &mut ours);
    let agrees = |(x, ours): (&f32, &f32)| math::ln(*x).to_bits() == ours.to_bits();
    xs.iter().zip(&ours).all(agrees)
}
