//! Results of the C++ standard library that llama.cpp's samplers depend on.

use crate::sys;

/// `n` draws of `std::uniform_real_distribution<double>(0, 1)` from `std::mt19937(seed)`.
pub fn std_uniform_double(seed: u32, n: usize) -> Vec<f64> {
    let mut draws = vec![0.0; n];
    // SAFETY: `draws` has room for exactly the `n` values that the function writes.
    unsafe { sys::vendor_std_uniform_double(seed, n, draws.as_mut_ptr()) };
    draws
}

/// The order in which `std::sort` leaves the places of `keys`, larger keys first.
pub fn std_sort(keys: &[f32]) -> Vec<u32> {
    let mut order = vec![0; keys.len()];
    // SAFETY: `order` has room for as many places as there are keys.
    unsafe { sys::vendor_std_sort(keys.as_ptr(), keys.len(), order.as_mut_ptr()) };
    order
}

/// The order in which `std::partial_sort` leaves them, what it leaves behind the first `k`
/// included.
///
/// # Panics
/// If `k` is more than there are.
pub fn std_partial_sort(keys: &[f32], k: usize) -> Vec<u32> {
    assert!(k <= keys.len());
    let mut order = vec![0; keys.len()];
    // SAFETY: `order` has room for as many places as there are keys, and `k` is no more than these.
    unsafe { sys::vendor_std_partial_sort(keys.as_ptr(), keys.len(), k, order.as_mut_ptr()) };
    order
}

/// `n` keys on which `std::sort` runs out of levels.
pub fn std_sort_killer(n: usize) -> Vec<f32> {
    let mut keys = vec![0.0; n];
    // SAFETY: `keys` has room for exactly the `n` values that the function writes.
    unsafe { sys::vendor_std_sort_killer(n, keys.as_mut_ptr()) };
    keys
}
