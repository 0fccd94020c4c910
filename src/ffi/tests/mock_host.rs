//! A host in Rust for tests that need no llama.cpp. It is the host of the current thread only, and
//! also runs under Miri.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{NonNull, null_mut};

use crate::ffi::chain::ChainParams;
use crate::ffi::host::llama_h::{
    SamplerInit, llama_sampler, llama_sampler_i, llama_token_data_array,
};

thread_local! {
    static IN_USE: Cell<bool> = const { Cell::new(false) };
    static SHELLS: Cell<usize> = const { Cell::new(0) };
    static TOKENIZED: Cell<usize> = const { Cell::new(0) };
}

/// Makes the mock host the host of this thread.
pub fn install() {
    IN_USE.set(true);
}

/// Returns the mock host's `llama_sampler_init`, if the mock host is in use on this thread.
pub fn sampler_init() -> Option<SamplerInit> {
    IN_USE.get().then_some(init as SamplerInit)
}

/// Returns the mock host's function `name`; the inner `None` if it has no such function, and the
/// outer `None` if the mock host is not in use on this thread.
pub fn function(name: &CStr) -> Option<Option<NonNull<c_void>>> {
    if !IN_USE.get() {
        return None;
    }
    let known = FUNCTIONS.iter().find(|(known, _)| *known == name);
    Some(known.and_then(|(_, address)| NonNull::new(address())))
}

/// Returns the number of live `llama_sampler` structs of this thread.
pub fn shells() -> usize {
    SHELLS.get()
}

/// Returns the number of texts that the mock host has tokenized for this thread.
pub fn tokenized() -> usize {
    TOKENIZED.get()
}

/// The mock host's `llama_sampler_free`.
///
/// # Safety
/// `smpl` came from this host and is not used any more.
pub unsafe extern "C" fn free(smpl: *mut llama_sampler) {
    // SAFETY: the caller guarantees the sampler; the struct was boxed below.
    unsafe {
        if let Some(free) = (*(*smpl).iface).free {
            free(smpl);
        }
        drop(Box::from_raw(smpl));
    }
    SHELLS.set(SHELLS.get() - 1);
}

/// The number of tokens in the mock host's one vocabulary.
pub const N_VOCAB: i32 = 16;

/// The logits of the mock host's one context.
static LOGITS: [f32; N_VOCAB as usize] = [
    1.0, 0.5, 2.0, 9.0, -1.0, 3.0, 0.0, 4.0, 1.5, 2.5, -2.0, 0.25, 0.75, 5.0, 6.0, 7.0,
];

/// Returns a pointer that is not NULL, for arguments that are never dereferenced.
pub fn handle<T>() -> *mut T {
    NonNull::<T>::dangling().as_ptr()
}

type Address = fn() -> *mut c_void;

/// The mock host's other functions: the name of each, and a function that returns its address.
static FUNCTIONS: [(&CStr, Address); 22] = [
    (c"llama_sampler_name", || name as *mut c_void),
    (c"llama_sampler_get_seed", || get_seed as *mut c_void),
    (c"llama_sampler_chain_n", || chain_n as *mut c_void),
    (c"llama_sampler_chain_get", || chain_get as *mut c_void),
    (c"llama_sampler_chain_init", || chain_init as *mut c_void),
    (c"llama_sampler_apply", || apply as *mut c_void),
    (c"llama_sampler_accept", || accept as *mut c_void),
    (c"llama_sampler_sample", || sample as *mut c_void),
    (c"llama_sampler_free", || free as *mut c_void),
    (c"llama_vocab_n_tokens", || n_tokens as *mut c_void),
    (c"llama_vocab_is_eog", || is_eog as *mut c_void),
    (c"llama_vocab_eot", || eot as *mut c_void),
    (c"llama_vocab_eos", || eot as *mut c_void),
    (c"llama_vocab_bos", || eot as *mut c_void),
    (c"llama_vocab_nl", || eot as *mut c_void),
    (c"llama_vocab_pad", || eot as *mut c_void),
    (c"llama_token_to_piece", || piece as *mut c_void),
    (c"llama_detokenize", || detokenize as *mut c_void),
    (c"llama_tokenize", || tokenize as *mut c_void),
    (c"llama_get_logits_ith", || logits_ith as *mut c_void),
    (c"llama_get_model", || same as *mut c_void),
    (c"llama_model_get_vocab", || same as *mut c_void),
];

unsafe extern "C" fn init(iface: *mut llama_sampler_i, ctx: *mut c_void) -> *mut llama_sampler {
    SHELLS.set(SHELLS.get() + 1);
    Box::into_raw(Box::new(llama_sampler { iface, ctx }))
}

unsafe extern "C" fn name(smpl: *const llama_sampler) -> *const c_char {
    // SAFETY: called with samplers of this host.
    unsafe { ((*(*smpl).iface).name.expect("ours have it"))(smpl) }
}

unsafe extern "C" fn get_seed(_smpl: *const llama_sampler) -> u32 {
    7
}

/// The vtable of the mock host's chains, which have no members and no state.
static CHAIN: Iface = Iface(llama_sampler_i {
    name: None,
    accept: None,
    apply: None,
    reset: None,
    clone: None,
    free: None,
    backend_init: None,
    backend_accept: None,
    backend_apply: None,
    backend_set_input: None,
    backend_reset: None,
    copy_state: None,
});

struct Iface(llama_sampler_i);

// SAFETY: the struct has pointers to functions only, all of which are NULL.
unsafe impl Sync for Iface {}

/// The mock host's `llama_sampler_chain_init`.
pub unsafe extern "C" fn chain_init(_params: ChainParams) -> *mut llama_sampler {
    // SAFETY: no code writes to the vtable.
    unsafe { init((&raw const CHAIN.0).cast_mut(), null_mut()) }
}

unsafe extern "C" fn apply(smpl: *mut llama_sampler, array: *mut llama_token_data_array) {
    // SAFETY: called with samplers of this host, and valid arrays.
    unsafe { ((*(*smpl).iface).apply.expect("asked before"))(smpl, array) }
}

unsafe extern "C" fn accept(smpl: *mut llama_sampler, token: i32) {
    // SAFETY: called with samplers of this host.
    if let Some(accept) = unsafe { (*(*smpl).iface).accept } {
        // SAFETY: as above.
        unsafe { accept(smpl, token) }
    }
}

unsafe extern "C" fn sample(_smpl: *mut llama_sampler, _ctx: *mut c_void, _idx: i32) -> i32 {
    0
}

unsafe extern "C" fn chain_n(_chain: *const llama_sampler) -> i32 {
    0
}

unsafe extern "C" fn chain_get(_chain: *mut llama_sampler, _i: i32) -> *mut llama_sampler {
    null_mut()
}

unsafe extern "C" fn n_tokens(_vocab: *const c_void) -> i32 {
    N_VOCAB
}

unsafe extern "C" fn is_eog(_vocab: *const c_void, token: i32) -> u8 {
    u8::from(token == N_VOCAB - 1)
}

unsafe extern "C" fn eot(_vocab: *const c_void) -> i32 {
    N_VOCAB - 1
}

/// Writes the text of a token, which is one letter; token 0 is 'a'.
fn letter(token: i32, buffer: *mut c_char, room: i32) -> i32 {
    if room < 1 {
        return -1;
    }
    // SAFETY: the caller guarantees the room.
    unsafe { buffer.write(b'a' as c_char + token as c_char) };
    1
}

unsafe extern "C" fn piece(
    _vocab: *const c_void,
    token: i32,
    buffer: *mut c_char,
    room: i32,
    _lstrip: i32,
    _special: bool,
) -> i32 {
    letter(token, buffer, room)
}

unsafe extern "C" fn detokenize(
    _vocab: *const c_void,
    tokens: *const i32,
    _n: i32,
    buffer: *mut c_char,
    room: i32,
    _remove_special: bool,
    _unparse_special: bool,
) -> i32 {
    // SAFETY: called with one token.
    letter(unsafe { *tokens }, buffer, room)
}

/// Tokenizes a text: each letter is a token, a space is three tokens and, if special tokens are
/// recognised, a letter between angle brackets is one token.
unsafe extern "C" fn tokenize(
    _vocab: *const c_void,
    text: *const c_char,
    length: i32,
    tokens: *mut i32,
    room: i32,
    _add_special: bool,
    parse_special: bool,
) -> i32 {
    TOKENIZED.set(TOKENIZED.get() + 1);
    // SAFETY: the text has the length that was passed.
    let whole = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length as usize) };
    if let (true, [b'<', letter, b'>']) = (parse_special && room > 0, whole) {
        // SAFETY: there is room.
        unsafe { *tokens = letter.wrapping_sub(b'a').into() };
        return 1;
    }
    let of_byte = |&byte: &u8| match byte {
        b' ' => [0, 1, 2].into_iter().take(3),
        _ => [byte.wrapping_sub(b'a').into(), 0, 0].into_iter().take(1),
    };
    let all: Vec<i32> = whole.iter().flat_map(of_byte).collect();
    let n = all.len() as i32;
    if room < n {
        return -n;
    }
    // SAFETY: there is room.
    unsafe { tokens.copy_from_nonoverlapping(all.as_ptr(), all.len()) };
    n
}

unsafe extern "C" fn logits_ith(_ctx: *mut c_void, _i: i32) -> *mut f32 {
    LOGITS.as_ptr().cast_mut()
}

unsafe extern "C" fn same(of: *const c_void) -> *const c_void {
    of
}
