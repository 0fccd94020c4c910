//! Results of the C++ standard library on which llama.cpp's samplers depend.

use crate::sys;

/// Returns `n` draws of `std::uniform_real_distribution<double>(0, 1)` from `std::mt19937(seed)`.
pub fn std_uniform_double(seed: u32, n: usize) -> Vec<f64> {
    let mut draws = vec![0.0; n];
    // SAFETY: `draws` has room for exactly the `n` values that the function writes.
    unsafe { sys::vendor_std_uniform_double(seed, n, draws.as_mut_ptr()) };
    draws
}

/// Returns the order in which `std::sort` leaves the indices of `keys`, larger keys first.
pub fn std_sort(keys: &[f32]) -> Vec<u32> {
    let mut order = vec![0; keys.len()];
    // SAFETY: `order` has room for as many places as there are keys.
    unsafe { sys::vendor_std_sort(keys.as_ptr(), keys.len(), order.as_mut_ptr()) };
    order
}

/// Returns the order in which `std::partial_sort` leaves the indices of `keys`, larger keys first,
/// including those after the first `k`.
///
/// # Panics
/// If `k` is larger than the number of keys.
pub fn std_partial_sort(keys: &[f32], k: usize) -> Vec<u32> {
    assert!(k <= keys.len());
    let mut order = vec![0; keys.len()];
    // SAFETY: `order` has room for as many places as there are keys, and `k` is no more than these.
    unsafe { sys::vendor_std_partial_sort(keys.as_ptr(), keys.len(), k, order.as_mut_ptr()) };
    order
}

/// Returns `n` keys on which `std::sort` exceeds its depth limit.
pub fn std_sort_killer(n: usize) -> Vec<f32> {
    let mut keys = vec![0.0; n];
    // SAFETY: `keys` has room for exactly the `n` values that the function writes.
    unsafe { sys::vendor_std_sort_killer(n, keys.as_mut_ptr()) };
    keys
}

/// A `std::regex` over bytes, in ECMAScript's syntax.
#[derive(Debug)]
pub struct StdRegex(std::ptr::NonNull<std::ffi::c_void>);

impl StdRegex {
    /// Returns the expression; `None` if the constructor of `std::regex` throws.
    pub fn new(pattern: &[u8]) -> Option<Self> {
        // SAFETY: the pointer is to a slice of this length.
        let made = unsafe { sys::vendor_std_regex(pattern.as_ptr().cast(), pattern.len()) };
        std::ptr::NonNull::new(made).map(Self)
    }

    /// Returns the beginning and end of the match and of each of its groups, by `std::regex_match`
    /// if `whole` is true, otherwise by `std::regex_search`.
    pub fn find(&self, text: &[u8], whole: bool) -> Option<Vec<Option<(usize, usize)>>> {
        let mut out = [0_i64; 128];
        // SAFETY: the expression is alive, and both pointers are to slices of these lengths.
        let n = unsafe {
            let regex = self.0.as_ptr().cast_const();
            let (text, n, room) = (text.as_ptr().cast(), text.len(), out.len());
            sys::vendor_std_regex_find(regex, text, n, whole, out.as_mut_ptr(), room)
        };
        let place = |at: i64| usize::try_from(at).ok();
        let group = |span: &[i64]| Some((place(span[0])?, place(span[1])?));
        (n > 0).then(|| out.chunks_exact(2).take(n).map(group).collect())
    }

    /// True if [`find`](Self::find) ends within `most` reads and comparisons of positions in the
    /// text. With some patterns it tries exponentially many possibilities.
    pub fn ends(&self, text: &[u8], whole: bool, most: usize) -> bool {
        // SAFETY: the expression is alive, and the pointer is to a slice of this length.
        unsafe {
            let regex = self.0.as_ptr().cast_const();
            sys::vendor_std_regex_ends(regex, text.as_ptr().cast(), text.len(), whole, most)
        }
    }
}

impl Drop for StdRegex {
    fn drop(&mut self) {
        // SAFETY: made by the constructor, freed once.
        unsafe { sys::vendor_std_regex_free(self.0.as_ptr()) };
    }
}
