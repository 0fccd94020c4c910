//! Results of the C++ standard library that llama.cpp's samplers depend on.

use crate::sys;

/// `n` draws of `std::uniform_real_distribution<double>(0, 1)` from `std::mt19937(seed)`.
pub fn std_uniform_double(seed: u32, n: usize) -> Vec<f64> {
    let mut draws = vec![0.0; n];
    // SAFETY: `draws` has room for exactly the `n` values that the function writes.
    unsafe { sys::vendor_std_uniform_double(seed, n, draws.as_mut_ptr()) };
    draws
}

/// The order in which `std::sort` leaves `0..n` when its comparator calls all elements equal.
pub fn std_sort_equal_order(n: usize) -> Vec<u32> {
    let mut order = vec![0; n];
    // SAFETY: `order` has room for exactly the `n` values that the function writes.
    unsafe { sys::vendor_std_sort_equal_order(n, order.as_mut_ptr()) };
    order
}
