//! JSON Schemas for C.

use std::ffi::c_char;

use crate::errors::LLAMA_SIEVE_ERROR_PARAMS;
use crate::ffi::failure::{Failure, made, usable, value};
use crate::ffi::given::{Argument, argument};
use crate::ffi::grammar::making::invalid;
use crate::ffi::grammar::pattern::{PER_BYTE, constructed};
use crate::ffi::host::llama_h::llama_sampler;
use crate::ffi::host::vocabulary::{c_bytes, llama_vocab};
use crate::grammar::schema::{Options, Refusal, to_gbnf};
use crate::grammar::{Grammar, limits};
use crate::log;
use crate::memory;

/// A flag: the language of llama.cpp's own converter from JSON Schema, which llama-server uses for
/// "json_schema". Keywords that it ignores are ignored, and schemas that it refuses are refused. It
/// cannot be combined with another flag.
pub const LLAMA_SIEVE_JSON_LLAMA_CPP: u32 = 1;
/// A flag: no white space between the parts of the JSON.
pub const LLAMA_SIEVE_JSON_COMPACT: u32 = 2;
/// A flag: objects whose schema names properties have no other properties, unless the schema
/// mentions those, as if "additionalProperties" were false.
pub const LLAMA_SIEVE_JSON_CLOSED: u32 = 4;
/// A flag: properties in any order, instead of the schema's. Objects of more than 10 properties are
/// refused if "minProperties" or "maxProperties" bounds their number, if "not", "oneOf" or "if"
/// requires a property that is not named, and as GBNF.
pub const LLAMA_SIEVE_JSON_ANY_ORDER: u32 = 8;
/// A flag: a keyword that cannot be enforced is ignored, with a warning that names it. Without the
/// flag the schema is refused.
pub const LLAMA_SIEVE_JSON_LENIENT: u32 = 16;

/// The maximum number of bytes of a JSON Schema.
pub const LLAMA_SIEVE_JSON_MAX_TEXT: usize = 8_388_608;
const _: () = assert!(LLAMA_SIEVE_JSON_MAX_TEXT == limits::MAX_SCHEMA_TEXT);
/// The maximum nesting depth of a JSON Schema's text.
pub const LLAMA_SIEVE_JSON_MAX_DEPTH: usize = 128;
const _: () = assert!(LLAMA_SIEVE_JSON_MAX_DEPTH == limits::MAX_SCHEMA_DEPTH);
/// The maximum number of JSON values in a JSON Schema.
pub const LLAMA_SIEVE_JSON_MAX_VALUES: usize = 1_048_576;
const _: () = assert!(LLAMA_SIEVE_JSON_MAX_VALUES == limits::MAX_SCHEMA_VALUES);
/// The maximum number of schemas that may lead to one another for the same value, by "$ref",
/// "allOf" and similar keywords.
pub const LLAMA_SIEVE_JSON_MAX_CHAIN: usize = 100;
const _: () = assert!(LLAMA_SIEVE_JSON_MAX_CHAIN == limits::MAX_SCHEMA_CHAIN);
/// The maximum number of expressions that compiling a JSON Schema may create: one for each
/// subschema and each constant, and one for each different combination of these.
pub const LLAMA_SIEVE_JSON_MAX_COMBINATIONS: usize = 65_536;
const _: () = assert!(LLAMA_SIEVE_JSON_MAX_COMBINATIONS == limits::MAX_SCHEMA_COMBINATIONS);
/// The maximum number of alternatives for one value: the product of the numbers of alternatives in
/// "anyOf" and similar keywords.
pub const LLAMA_SIEVE_JSON_MAX_WAYS: usize = 1024;
const _: () = assert!(LLAMA_SIEVE_JSON_MAX_WAYS == limits::MAX_SCHEMA_WAYS);
/// The maximum number of elements of the grammar that a JSON Schema becomes.
pub const LLAMA_SIEVE_JSON_MAX_ELEMENTS: usize = 1_048_576;
const _: () = assert!(LLAMA_SIEVE_JSON_MAX_ELEMENTS == limits::MAX_SCHEMA_ELEMENTS);
/// The maximum number of steps that compiling a JSON Schema to a grammar may take: combining its
/// keywords, and building the automata of its patterns, names and numbers.
pub const LLAMA_SIEVE_JSON_MAX_STEPS: usize = 33_554_432;
const _: () = assert!(LLAMA_SIEVE_JSON_MAX_STEPS == limits::MAX_SCHEMA_STEPS);
/// The maximum number of characters of white space in a row.
pub const LLAMA_SIEVE_JSON_MAX_SPACE: u32 = 64;
const _: () = assert!(LLAMA_SIEVE_JSON_MAX_SPACE == limits::MAX_SCHEMA_SPACE);
/// The maximum number of states of one automaton: of a pattern, of names, of a number, or of an
/// intersection of these.
pub const LLAMA_SIEVE_JSON_MAX_STATES: usize = 16_384;
const _: () = assert!(LLAMA_SIEVE_JSON_MAX_STATES == limits::MAX_AUTOMATON_STATES);
/// The maximum number of nodes of the nondeterministic automaton of a pattern, in which repetitions
/// are expanded. A character takes two nodes.
pub const LLAMA_SIEVE_JSON_MAX_PATTERN: usize = 16_384;
const _: () = assert!(LLAMA_SIEVE_JSON_MAX_PATTERN == limits::MAX_SCHEMA_PATTERN);
/// The maximum nesting depth of groups in a pattern.
pub const LLAMA_SIEVE_JSON_MAX_GROUPS: usize = 100;
const _: () = assert!(LLAMA_SIEVE_JSON_MAX_GROUPS == limits::MAX_SCHEMA_GROUPS);

/// Makes a sampler that lets through only tokens with which the text is, or can still become, JSON
/// that is valid against a JSON Schema.
///
/// The drafts 4, 6, 7, 2019-09 and 2020-12 are supported. "$schema" selects one; without it the
/// last one applies. `flags` is 0, for the standard's language, or a sum of LLAMA_SIEVE_JSON_*. A
/// text may have its properties in either of two orders: all in the order in which the schema names
/// them; or first the required ones, in the order in which "required" lists them, and then others.
/// Between the parts of the JSON there may be up to LLAMA_SIEVE_JSON_MAX_SPACE characters of white
/// space. No text is accepted that the schema does not allow: a keyword that cannot be enforced is
/// refused. LLAMA_SIEVE_JSON_LLAMA_CPP selects another language, which does not enforce everything.
/// A schema whose parts nest, or refer to each other in a row, or whose patterns have nested
/// groups, may take 512 KiB of stack. See docs/json-schema.md for each keyword.
///
/// The sampler is a grammar: except for the notation it behaves as that of
/// llama_sieve_init_grammar, llama_sieve_grammar_mask and the like accept it, and the
/// LLAMA_SIEVE_GRAMMAR_MAX_* of stacks and steps bound it. Returns NULL, and llama_sieve_last_error
/// names the location in the schema, the keyword and what to do, if the schema is not JSON, is
/// refused, is beyond LLAMA_SIEVE_JSON_MAX_*, or allows no value; also if `vocab` or `schema` is
/// NULL, a bit of `flags` is unknown, or two of the flags exclude each other.
///
/// # Safety
/// `vocab` is NULL or a vocabulary of the host; `schema` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_init_json_schema(
    vocab: *const llama_vocab,
    schema: *const c_char,
    flags: u32,
) -> *mut llama_sampler {
    made("llama_sieve_init_json_schema", || {
        let options = options(flags)?;
        usable("schema", schema)?;
        // SAFETY: not NULL, and the caller guarantees the string.
        let text = unsafe { c_bytes(schema) };
        room_for(text)?;
        let grammar = |tree: &_| {
            let (grammar, left_out) = Grammar::of_schema(text, options, tree)?;
            warn_of(&left_out);
            Ok(grammar)
        };
        // SAFETY: the caller guarantees the vocabulary.
        unsafe { constructed(vocab, grammar) }
    })
}

/// The number of bytes that must be available to read any schema, however short.
const READER: usize = 1 << 20;

/// Returns an error if there is not enough memory to read this schema.
fn room_for(schema: &[u8]) -> Result<(), Failure> {
    Ok(memory::room(
        READER + PER_BYTE * schema.len().min(READER / 16),
    )?)
}

const OUT: Argument = argument!("out", "cap");

/// Writes a grammar in GBNF, whose root rule is named root, for the texts that are valid against a
/// JSON Schema. It is for hosts that take a grammar, such as llama-server's "grammar". Returns the
/// size of the GBNF in bytes, including a final NUL, and writes it to `out` if `cap` is at least
/// that size. Otherwise it writes nothing, so `out` may be NULL to query the size.
///
/// The language is that of llama_sieve_init_json_schema with the same `flags`. llama.cpp's grammar
/// sampler refuses repetitions with a minimum above 2000, treats a maximum above 2000 as no bound,
/// and is slow where many derivations are possible. Returns 0, and llama_sieve_last_error says why,
/// where llama_sieve_init_json_schema returns NULL for the schema or the flags. Needs no host.
///
/// # Safety
/// `schema` is NULL or a C string; `out` is NULL or has room for `cap` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_json_schema_to_gbnf(
    schema: *const c_char,
    flags: u32,
    out: *mut c_char,
    cap: usize,
) -> usize {
    value("llama_sieve_json_schema_to_gbnf", 0, || {
        let options = options(flags)?;
        usable("schema", schema)?;
        // SAFETY: the caller guarantees the string and the room.
        let (text, room) = unsafe { (c_bytes(schema), OUT.room_or_none(out.cast::<u8>(), cap)?) };
        room_for(text)?;
        let (mut gbnf, left_out) =
            to_gbnf(text, options).map_err(|refusal| invalid(refusal.to_string()))?;
        warn_of(&left_out);
        gbnf.push('\0');
        let n = gbnf.len();
        if let Some(room) = room.get_mut(..n) {
            room.copy_from_slice(gbnf.as_bytes());
        }
        Ok::<_, Failure>(n)
    })
}

fn warn_of(left_out: &[Refusal]) {
    for refusal in left_out {
        log::warn(&format!("left out: {refusal}"));
    }
}

fn options(flags: u32) -> Result<Options, Failure> {
    const KNOWN: u32 = LLAMA_SIEVE_JSON_LLAMA_CPP
        | LLAMA_SIEVE_JSON_COMPACT
        | LLAMA_SIEVE_JSON_CLOSED
        | LLAMA_SIEVE_JSON_ANY_ORDER
        | LLAMA_SIEVE_JSON_LENIENT;
    let has = |flag| flags & flag != 0;
    if flags & !KNOWN != 0 {
        return Err(Failure::new(
            LLAMA_SIEVE_ERROR_PARAMS,
            format!("flags {flags:#x} have bits that are no LLAMA_SIEVE_JSON_*"),
        ));
    }
    let options = Options {
        compact: has(LLAMA_SIEVE_JSON_COMPACT),
        closed: has(LLAMA_SIEVE_JSON_CLOSED),
        any_order: has(LLAMA_SIEVE_JSON_ANY_ORDER),
        lenient: has(LLAMA_SIEVE_JSON_LENIENT),
        llama_cpp: has(LLAMA_SIEVE_JSON_LLAMA_CPP),
    };
    match options.conflict() {
        Some(what) => Err(Failure::new(LLAMA_SIEVE_ERROR_PARAMS, what)),
        None => Ok(options),
    }
}
