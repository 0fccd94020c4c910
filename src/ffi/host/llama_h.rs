//! Mirrors of the declarations in llama.h. They are checked by assertions in this module and by
//! `c-tests/llama_h_layout.c`, which is compiled against the vendored llama.h.
//!
//! The layouts hold for every llama.cpp since build b3681: members were added only at the end of
//! the vtable.

#![allow(non_camel_case_types)]

use std::ffi::{c_char, c_void};
use std::mem::{offset_of, size_of};

use crate::token::{Token, TokenData};

/// A sampler in the host's representation: made by the host's `llama_sampler_init` and freed by the
/// host.
#[repr(C)]
#[derive(Debug)]
pub struct llama_sampler {
    /// The vtable, whose address identifies the type of `ctx`.
    pub iface: *mut llama_sampler_i,
    /// The state, whose type the vtable determines.
    pub ctx: *mut c_void,
}

/// The candidates of one token position.
#[repr(C)]
#[derive(Debug)]
pub struct llama_token_data_array {
    /// `size` candidates, owned by the host.
    pub data: *mut TokenData,
    /// The number of candidates.
    pub size: usize,
    /// The index of the chosen candidate, or -1.
    pub selected: i64,
    /// A C `bool`, read as a byte: every value but 0 is true. A Rust `bool` of 2 would be undefined
    /// behaviour.
    pub sorted: u8,
}

/// The host's `llama_sampler_apply`.
pub(in crate::ffi) type Apply =
    unsafe extern "C-unwind" fn(*mut llama_sampler, *mut llama_token_data_array);
/// The host's `llama_sampler_accept`.
pub(in crate::ffi) type Accept = unsafe extern "C-unwind" fn(*mut llama_sampler, Token);

/// A bias for the logit of a token.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct llama_logit_bias {
    /// The token.
    pub token: Token,
    /// The number to add.
    pub bias: f32,
}

/// The vtable of a sampler in the vendored llama.cpp. Older hosts have only its first members.
#[repr(C)]
pub struct llama_sampler_i {
    /// Returns the sampler's name.
    pub name: Option<unsafe extern "C" fn(*const llama_sampler) -> *const c_char>,
    /// Accepts a chosen token. A grammar throws if it does not allow the token.
    pub accept: Option<unsafe extern "C-unwind" fn(*mut llama_sampler, Token)>,
    /// Filters, rewrites or selects the candidates.
    pub apply: Option<unsafe extern "C" fn(*mut llama_sampler, *mut llama_token_data_array)>,
    /// Restores the initial state.
    pub reset: Option<unsafe extern "C" fn(*mut llama_sampler)>,
    /// Returns another sampler in the same state.
    pub clone: Option<unsafe extern "C" fn(*const llama_sampler) -> *mut llama_sampler>,
    /// Frees `ctx`.
    pub free: Option<unsafe extern "C" fn(*mut llama_sampler)>,
    /// A function of the graph interface, since b7627.
    pub backend_init:
        Option<unsafe extern "C-unwind" fn(*mut llama_sampler, *mut c_void, u32) -> u8>,
    /// A function of the graph interface, since b7627.
    pub backend_accept:
        Option<unsafe extern "C" fn(*mut llama_sampler, *mut c_void, *mut c_void, *mut c_void)>,
    /// A function of the graph interface, since b7627.
    pub backend_apply:
        Option<unsafe extern "C" fn(*mut llama_sampler, *mut c_void, *mut c_void, *mut c_void)>,
    /// A function of the graph interface, since b7627.
    pub backend_set_input: Option<unsafe extern "C" fn(*mut llama_sampler)>,
    /// A function of the graph interface, since b10355.
    pub backend_reset: Option<unsafe extern "C" fn(*mut llama_sampler)>,
    /// Copies state between two samplers of one kind, since b10355.
    pub copy_state: Option<unsafe extern "C" fn(*const llama_sampler, *mut llama_sampler)>,
}

/// The host's `struct llama_context`.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Debug)]
pub struct llama_context {
    _opaque: [u8; 0],
}

/// The host's `struct llama_model`.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Debug)]
pub struct llama_model {
    _opaque: [u8; 0],
}

/// The host's `llama_sampler_init`.
pub type SamplerInit =
    unsafe extern "C" fn(*mut llama_sampler_i, *mut c_void) -> *mut llama_sampler;

/// The name and value of every fact about the layout, for the check against the vendored header.
pub const LAYOUT: &[(&str, usize)] = &[
    ("sizeof(llama_token)", size_of::<Token>()),
    ("sizeof(struct llama_token_data)", size_of::<TokenData>()),
    (
        "offsetof(struct llama_token_data, id)",
        offset_of!(TokenData, id),
    ),
    (
        "offsetof(struct llama_token_data, logit)",
        offset_of!(TokenData, logit),
    ),
    (
        "offsetof(struct llama_token_data, p)",
        offset_of!(TokenData, p),
    ),
    (
        "sizeof(struct llama_token_data_array)",
        size_of::<llama_token_data_array>(),
    ),
    (
        "offsetof(struct llama_token_data_array, data)",
        offset_of!(llama_token_data_array, data),
    ),
    (
        "offsetof(struct llama_token_data_array, size)",
        offset_of!(llama_token_data_array, size),
    ),
    (
        "offsetof(struct llama_token_data_array, selected)",
        offset_of!(llama_token_data_array, selected),
    ),
    (
        "offsetof(struct llama_token_data_array, sorted)",
        offset_of!(llama_token_data_array, sorted),
    ),
    (
        "sizeof(struct llama_logit_bias)",
        size_of::<llama_logit_bias>(),
    ),
    (
        "offsetof(struct llama_logit_bias, token)",
        offset_of!(llama_logit_bias, token),
    ),
    (
        "offsetof(struct llama_logit_bias, bias)",
        offset_of!(llama_logit_bias, bias),
    ),
    ("sizeof(struct llama_sampler)", size_of::<llama_sampler>()),
    (
        "offsetof(struct llama_sampler, iface)",
        offset_of!(llama_sampler, iface),
    ),
    (
        "offsetof(struct llama_sampler, ctx)",
        offset_of!(llama_sampler, ctx),
    ),
    (
        "sizeof(struct llama_sampler_i)",
        size_of::<llama_sampler_i>(),
    ),
    (
        "offsetof(struct llama_sampler_i, name)",
        offset_of!(llama_sampler_i, name),
    ),
    (
        "offsetof(struct llama_sampler_i, accept)",
        offset_of!(llama_sampler_i, accept),
    ),
    (
        "offsetof(struct llama_sampler_i, apply)",
        offset_of!(llama_sampler_i, apply),
    ),
    (
        "offsetof(struct llama_sampler_i, reset)",
        offset_of!(llama_sampler_i, reset),
    ),
    (
        "offsetof(struct llama_sampler_i, clone)",
        offset_of!(llama_sampler_i, clone),
    ),
    (
        "offsetof(struct llama_sampler_i, free)",
        offset_of!(llama_sampler_i, free),
    ),
    (
        "offsetof(struct llama_sampler_i, backend_init)",
        offset_of!(llama_sampler_i, backend_init),
    ),
    (
        "offsetof(struct llama_sampler_i, backend_accept)",
        offset_of!(llama_sampler_i, backend_accept),
    ),
    (
        "offsetof(struct llama_sampler_i, backend_apply)",
        offset_of!(llama_sampler_i, backend_apply),
    ),
    (
        "offsetof(struct llama_sampler_i, backend_set_input)",
        offset_of!(llama_sampler_i, backend_set_input),
    ),
    (
        "offsetof(struct llama_sampler_i, backend_reset)",
        offset_of!(llama_sampler_i, backend_reset),
    ),
    (
        "offsetof(struct llama_sampler_i, copy_state)",
        offset_of!(llama_sampler_i, copy_state),
    ),
];

// Except for the size of the vtable, these facts are the same in every llama.cpp since b3681.
#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<TokenData>() == 12);
    assert!(size_of::<llama_token_data_array>() == 32);
    assert!(offset_of!(llama_token_data_array, selected) == 16);
    assert!(offset_of!(llama_token_data_array, sorted) == 24);
    assert!(size_of::<llama_sampler>() == 16);
    assert!(size_of::<llama_sampler_i>() == 12 * 8);
};
