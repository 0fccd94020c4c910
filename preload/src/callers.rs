//! Distinguishes calls by llama.cpp's own samplers from calls by the program, if one library or
//! program contains both.
//!
//! A call is attributed to the exported function that contains its address. If none does, the call
//! counts as one by the samplers if the exported function before or after the address is theirs:
//! the functions of one source file are contiguous.

use std::ffi::CStr;

use llama_sieve::ffi::host::libraries::{Address, Library};

/// The exported functions of a library, by address.
#[derive(Debug, Default)]
pub struct Functions(Vec<Function>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Function {
    start: usize,
    /// True for a function of llama.cpp's samplers. If several functions have one address, such a
    /// function comes last.
    is_of_samplers: bool,
    end: usize,
}

impl Functions {
    pub fn of(library: &Library<'_>) -> Self {
        let functions = library.functions().map(|(place, name)| Function {
            start: place.start,
            is_of_samplers: is_of_samplers(name),
            end: place.end,
        });
        let mut functions: Vec<Function> = functions.collect();
        functions.sort_unstable();
        Self(functions)
    }

    /// True if the code at this address belongs, or may belong, to llama.cpp's samplers.
    pub fn are_samplers_at(&self, address: Address) -> bool {
        let address = address.as_ptr() as usize;
        let behind = self.0.partition_point(|function| function.start <= address);
        let next = self.0.get(behind);
        let Some(last) = self.0[..behind].last() else {
            return next.is_none_or(|next| next.is_of_samplers);
        };
        match address < last.end {
            true => last.is_of_samplers,
            false => last.is_of_samplers || next.is_some_and(|next| next.is_of_samplers),
        }
    }
}

/// True if this is the name of a function of llama.cpp's samplers: it begins with `llama_sampler`,
/// after the prefix of a name that C++ has mangled (`_ZN` or `_Z`, and the length of the first
/// part).
fn is_of_samplers(name: &CStr) -> bool {
    let name = name.to_bytes();
    let mangled = name
        .strip_prefix(b"_ZN")
        .or_else(|| name.strip_prefix(b"_Z"));
    let name = mangled.map_or(name, |rest| {
        let is_digit = |byte: &u8| byte.is_ascii_digit();
        let length = rest.iter().position(|byte| !is_digit(byte));
        rest.split_at(length.unwrap_or(rest.len())).1
    });
    name.starts_with(b"llama_sampler")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_c_and_of_cpp() {
        for name in [
            c"llama_sampler_init_dist",
            c"_Z26llama_sampler_init_testingP13llama_sampler",
            c"_ZN17llama_sampler_top4makeEv",
        ] {
            assert!(is_of_samplers(name), "{name:?}");
        }
        for name in [
            c"",
            c"_Z",
            c"_Z9",
            c"llama_decode",
            c"_Z19common_sampler_initPK11llama_modelR22common_params_sampling",
            c"_Z4copyP13llama_sampler",
        ] {
            assert!(!is_of_samplers(name), "{name:?}");
        }
    }

    #[test]
    fn code_without_a_name_belongs_to_its_neighbours() {
        let function = |start, end, is_of_samplers| Function {
            start,
            is_of_samplers,
            end,
        };
        let functions = Functions(vec![
            function(10, 20, false),
            function(30, 40, false),
            function(50, 60, true),
            function(60, 70, false),
            function(60, 70, true),
            function(90, 95, false),
            function(97, 98, false),
        ]);
        let at = |address: usize| {
            let address = Address::new(address as *mut _).expect("not NULL");
            functions.are_samplers_at(address)
        };
        let own = [5, 15, 25, 35, 45, 55, 65, 75, 92, 96, 99].map(at);
        assert_eq!(
            own,
            [
                false, false, false, false, true, true, true, true, false, false, false
            ]
        );
        let nowhere = Functions::default();
        assert!(nowhere.are_samplers_at(Address::dangling()));
    }
}
