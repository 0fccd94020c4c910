//! Replays the `std::sort` of the host's C++ library.

use super::item::Item;
pub use super::wanted::{All, Wanted};
use super::{introsort, libcxx, msvc};
use crate::host_profile::{HostProfile, Sort};

/// Sorts the parts of `items` that `wanted` selects, as the host's `std::sort` does.
pub fn sort(items: &mut [Item], wanted: &mut impl Wanted) {
    match HostProfile::current().sort {
        Sort::Libstdcxx | Sort::Stable => introsort::sort(items, wanted),
        Sort::Libcxx14 => libcxx::sort(items, wanted, libcxx::LLVM_14),
        Sort::Libcxx17 | Sort::Libcxx22 => libcxx::sort(items, wanted, libcxx::LLVM_17),
        Sort::Msvc => msvc::sort(items, wanted),
    }
}

/// Sorts `items` as [`sort`] does, for sorts of the host that move numbers instead of structs.
pub fn sort_numbers(items: &mut [Item], wanted: &mut impl Wanted) {
    match HostProfile::current().sort {
        Sort::Libcxx22 => libcxx::sort(items, wanted, libcxx::LLVM_22_NUMBERS),
        _ => sort(items, wanted),
    }
}
