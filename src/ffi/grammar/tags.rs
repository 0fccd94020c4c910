//! Tags in free text for C.

use std::ffi::c_char;
use std::ptr::null_mut;
use std::sync::Arc;

use crate::ffi::failure::{Failure, begin, made, part, usable};
use crate::ffi::given::c_bytes_within;
use crate::ffi::grammar::making::invalid;
use crate::ffi::grammar::pattern::{PARSER, PER_BYTE, no_flags, sampler};
use crate::ffi::host::Host;
use crate::ffi::host::llama_h::llama_sampler;
use crate::ffi::host::vocabulary::{Tokenizer, llama_vocab};
use crate::ffi::known_vocabularies::{Known, known};
use crate::grammar::tags::Tags;
use crate::grammar::{Grammar, limits};
use crate::memory;
use crate::random::HashMap;
use crate::token::Token;

/// The maximum number of tags of a description.
pub const LLAMA_SIEVE_TAGS_MAX: usize = 4096;
const _: () = assert!(LLAMA_SIEVE_TAGS_MAX == limits::MAX_TAGS);
/// The maximum number of bytes of a begin or end tag.
pub const LLAMA_SIEVE_TAGS_MAX_BYTES: usize = 1024;
const _: () = assert!(LLAMA_SIEVE_TAGS_MAX_BYTES == limits::MAX_TAG_TEXT);
/// The maximum number of bytes of all begin and end tags together; those that are tokens do not
/// count.
pub const LLAMA_SIEVE_TAGS_MAX_TEXT: usize = 131_072;
const _: () = assert!(LLAMA_SIEVE_TAGS_MAX_TEXT == limits::MAX_TAG_TEXTS);

const CALL: &str = "llama_sieve_init_tags";

/// Makes a sampler that leaves a text free until a begin tag opens a span. The content of the span,
/// up to its end tag, must satisfy a JSON Schema or match a regular expression or a grammar, as in
/// tool calls.
///
/// `json` describes the tags:
///
/// `{"tags": [{"begin": "<f>", "regex": "[0-9]+", "end": "</f>"},
///            {"begin": {"token": "<|call|>"}, "grammar": "root ::= ..."}],
///   "required": false, "once": false}`
///
/// "begin" and "end" are each a text, which any tokens may spell, or a token, given by number or
/// text, which is then never read as characters. Without "end" a span ends with its content. The
/// content is one of "json_schema", as for llama_sieve_init_json_schema without flags, "regex", as
/// for llama_sieve_init_regex, and "grammar", GBNF with the rule root and without !<...>. With
/// "required" the text may end only after a span; with "once" it ends after the first span. Free
/// text contains no begin tag, and no begin tag may contain another begin tag. `flags` is 0. See
/// docs/grammar.md.
///
/// The sampler is a grammar, like that of llama_sieve_init_regex. Returns NULL, and
/// llama_sieve_last_error names the tag and what is wrong with it, if the description cannot be
/// read, is beyond LLAMA_SIEVE_TAGS_MAX, LLAMA_SIEVE_TAGS_MAX_*, LLAMA_SIEVE_JSON_MAX_*,
/// LLAMA_SIEVE_PATTERN_MAX_* or LLAMA_SIEVE_GRAMMAR_MAX_*, if `vocab` or `json` is NULL, or a bit
/// of `flags` is set. The limits on classes of characters and on steps of schemas apply to all tags
/// together. The host's tokenizer finds tokens by their texts. Its exceptions pass through, and it
/// may take 512 KiB of stack.
///
/// # Safety
/// `vocab` is NULL or a vocabulary of the host; `json` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_sieve_init_tags(
    vocab: *const llama_vocab,
    json: *const c_char,
    flags: u32,
) -> *mut llama_sampler {
    let prepared = begin(CALL).and_then(|()| {
        // SAFETY: the caller guarantees the arguments.
        part(CALL, || unsafe { prepared(vocab, json, flags) })
    });
    let Ok(mut prepared) = prepared else {
        return null_mut();
    };
    for (text, token) in &mut prepared.tokens {
        // SAFETY: the caller guarantees the vocabulary. The call is outside the guard, through
        // which the host's exceptions would not pass.
        *token = unsafe { prepared.tokenizer.one_token(vocab, text) };
    }
    made(CALL, || {
        memory::room(PARSER + PER_BYTE * prepared.tags.json().len())?;
        prepared.sampler()
    })
}

/// A description whose tokens are not yet known.
struct Prepared {
    tags: Tags,
    known: Arc<Known>,
    tokenizer: Tokenizer,
    tokens: Vec<(Vec<u8>, Option<Token>)>,
}

/// Reads the description as far as that needs no tokenizer.
///
/// # Safety
/// The requirements of [`llama_sieve_init_tags`] apply.
unsafe fn prepared(
    vocab: *const llama_vocab,
    json: *const c_char,
    flags: u32,
) -> Result<Prepared, Failure> {
    no_flags(flags)?;
    usable("json", json)?;
    // SAFETY: not NULL, and the caller guarantees the string.
    let json = unsafe { c_bytes_within(json, limits::MAX_TEXT + 1) };
    memory::room(PARSER + PER_BYTE * json.len())?;
    let tags = Tags::read(json).map_err(invalid)?;
    let tokens = tags.token_texts().into_iter();
    let tokens = tokens.map(|text| (text, None)).collect();
    usable("the vocabulary", vocab.cast::<u8>())?;
    let host = Host::get().map_err(Failure::no_host)?;
    // SAFETY: the caller guarantees the vocabulary, which is read within this call only.
    let known = unsafe { known(vocab) }.map_err(Failure::no_host)?;
    Ok(Prepared {
        tags,
        known,
        // SAFETY: as above.
        tokenizer: unsafe { Tokenizer::of(&host, vocab) }?,
        tokens,
    })
}

impl Prepared {
    fn sampler(self) -> Result<*mut llama_sampler, Failure> {
        let tokens = self.tokens.into_iter();
        let tokens: HashMap<Vec<u8>, Token> = tokens
            .filter_map(|(text, token)| Some((text, token?)))
            .collect();
        let token = |text: &[u8]| tokens.get(text).copied();
        sampler(Grammar::tags(&self.tags, &self.known.tree, token))
    }
}
