//! A test call of every export, and every constructor of a sampler.

use std::ptr::null_mut;
use std::sync::Arc;

use super::world::*;
use crate::fault::armed;
use crate::ffi::attach::{llama_sieve_attach, llama_sieve_detach};
use crate::ffi::bans::*;
use crate::ffi::certificate::{llama_sieve_certify, llama_sieve_certify_build};
use crate::ffi::chain::*;
use crate::ffi::grammar::between::*;
use crate::ffi::grammar::pattern::*;
use crate::ffi::grammar::schema::{llama_sieve_init_json_schema, llama_sieve_json_schema_to_gbnf};
use crate::ffi::grammar::*;
use crate::ffi::host::llama_h::llama_logit_bias;
use crate::ffi::library::*;
use crate::ffi::loops::llama_sieve_init_loop_breaker;
use crate::ffi::metrics::*;
use crate::ffi::samplers::*;
use crate::ffi::seed::*;
use crate::ffi::sieve::*;
use crate::ffi::tests::mock_host;
use crate::ffi::trace::llama_sieve_trace;
use crate::ffi::trie::handles::*;
use crate::ffi::trie::*;
use crate::log;
use crate::token::TokenData;

// SAFETY of all calls below: the objects live, and arrays have the lengths that are passed.
#[rustfmt::skip]
#[allow(clippy::undocumented_unsafe_blocks)]
pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        case("llama_sieve_version", Leaves, |_| text(llama_sieve_version()), "a text", ""),
        case("llama_sieve_simd", Leaves, |_| text(llama_sieve_simd()), "a text", ""),
        case("llama_sieve_last_error", Leaves, |_| text(llama_sieve_last_error()), "a text", ""),
        case("llama_sieve_last_error_code", Leaves, |_| llama_sieve_last_error_code().to_string(), "-4", "0"),
        case("llama_sieve_trie_set", Clears, |w| unsafe { llama_sieve_trie_set(w.trie, OTHER_PAYLOAD.as_ptr(), OTHER_PAYLOAD.count_bytes(), 0) }.to_string(), "0", "-3"),
        case("llama_sieve_trie_clear", Leaves, |w| nothing(|| unsafe { llama_sieve_trie_clear(w.trie) }), "", ""),
        case("llama_sieve_trie_activate", Clears, |w| unsafe { llama_sieve_trie_activate(w.trie, c"p".as_ptr()) }.to_string(), "0", "-3"),
        case("llama_sieve_trie_is_active", Leaves, |w| unsafe { llama_sieve_trie_is_active(w.trie) }.to_string(), "true", "false"),
        case("llama_sieve_trie_leaf", Leaves, |w| text(unsafe { llama_sieve_trie_leaf(w.trie) }), "NULL", "NULL"),
        case("llama_sieve_trie_forced", Leaves, |w| unsafe { llama_sieve_trie_forced(w.trie, null_mut(), 0) }.to_string(), "0", "0"),
        case("llama_sieve_trie_allowed", Leaves, |w| unsafe { llama_sieve_trie_allowed(w.trie, null_mut(), 0) }.to_string(), "2", "0"),
        case("llama_sieve_trie_cache_stats", Leaves, |_| {
            let mut stats = llama_sieve_cache_stats { hits: u64::MAX, misses: 0, evictions: 0, entries: 0, bytes: 0 };
            unsafe { llama_sieve_trie_cache_stats(&mut stats) };
            if stats.hits == u64::MAX { "as it was" } else { "written" }.to_owned()
        }, "written", "as it was"),
        case("llama_sieve_trie_get_stats", Clears, |_| {
            let mut stats = llama_sieve_trie_stats { struct_size: size_of::<llama_sieve_trie_stats>(), hits: u64::MAX, reordered: 0, misses: 0, evictions: 0, entries: 0, bytes: 0 };
            let code = unsafe { llama_sieve_trie_get_stats(&mut stats) };
            format!("{code} {}", if stats.hits == u64::MAX { "as it was" } else { "written" })
        }, "0 written", "-3 as it was"),
        case("llama_sieve_grammar_mask", Leaves, |w| unsafe { llama_sieve_grammar_mask(w.grammar, null_mut(), 0) }.to_string(), "3", "0"),
        case("llama_sieve_grammar_is_complete", Leaves, |w| unsafe { llama_sieve_grammar_is_complete(w.grammar) }.to_string(), "true", "false"),
        case("llama_sieve_grammar_error", Leaves, |w| unsafe { llama_sieve_grammar_error(w.grammar) }.to_string(), "0", "-3"),
        case("llama_sieve_grammar_rollback", Clears, |w| unsafe { llama_sieve_grammar_rollback(w.grammar, 0) }.to_string(), "0", "-3"),
        case("llama_sieve_grammar_accepts", Leaves, |w| unsafe { llama_sieve_grammar_accepts(w.grammar, null_mut(), 0) }.to_string(), "0", "0"),
        case("llama_sieve_grammar_forced", Leaves, |w| unsafe { llama_sieve_grammar_forced(w.grammar, null_mut(), 0) }.to_string(), "0", "0"),
        case("llama_sieve_ban_rewind", Clears, |w| unsafe { llama_sieve_ban_rewind(w.bans) }.to_string(), "1", "-3"),
        case("llama_sieve_json_schema_to_gbnf", Leaves, |_| {
            unsafe { llama_sieve_json_schema_to_gbnf(c"{\"const\":1}".as_ptr(), 2, null_mut(), 0) > 0 }.to_string()
        }, "true", "false"),
        case("llama_sieve_grammar_cache_stats", Leaves, |_| {
            let mut stats = llama_sieve_cache_stats { hits: u64::MAX, misses: 0, evictions: 0, entries: 0, bytes: 0 };
            unsafe { llama_sieve_grammar_cache_stats(&mut stats) };
            if stats.hits == u64::MAX { "as it was" } else { "written" }.to_owned()
        }, "written", "as it was"),
        // The vocabulary is not a known one, so that the data of others stay.
        case("llama_sieve_vocab_forget", Leaves, |_| nothing(|| unsafe { llama_sieve_vocab_forget(mock_host::handle::<u64>().cast()) }), "", ""),
        case("eliza_inference_bind_token_trie", Clears, |w| unsafe { eliza_inference_bind_token_trie(mock_host::handle::<u64>().cast(), w.trie) }.to_string(), "0", "-3"),
        case("eliza_inference_set_token_trie", Clears, |_| nothing(|| unsafe { eliza_inference_set_token_trie(mock_host::handle::<u64>().cast(), OTHER_PAYLOAD.as_ptr(), OTHER_PAYLOAD.count_bytes(), 0) }), "", ""),
        case("eliza_inference_clear_token_trie", Clears, |_| nothing(|| eliza_inference_clear_token_trie(mock_host::handle::<u64>().cast())), "", ""),
        case("llama_sieve_get_seed", Leaves, |w| unsafe { llama_sieve_get_seed(w.dist) }.to_string(), "42", "4294967295"),
        // The mock host has no samplers of its own.
        case("llama_sieve_host_profile", Leaves, |_| text(llama_sieve_host_profile()), "a text", ""),
        case("llama_sieve_certify", Clears, |_| unsafe { llama_sieve_certify(c"greedy".as_ptr()) }.to_string(), "-2", "-3"),
        case("llama_sieve_certify_build", Clears, |_| unsafe { llama_sieve_certify_build(c"greedy".as_ptr(), 1) }.to_string(), "-2", "-3"),
        // Chains of the mock host have no members, so no token is selected. The tests of the
        // vtables inject faults in members.
        case("llama_sieve_chain_sample", Clears, |w| unsafe { llama_sieve_chain_sample(w.chain, mock_host::handle(), -1) }.to_string(), "-4", "-3"),
        case("llama_sieve_chain_sample_logits", Clears, |w| unsafe { llama_sieve_chain_sample_logits(w.chain, w.logits.as_ptr(), w.n()) }.to_string(), "-4", "-3"),
        case("llama_sieve_chain_sample_f16", Clears, |w| unsafe { llama_sieve_chain_sample_f16(w.chain, [0u16, 0x4000].as_ptr(), 2) }.to_string(), "-4", "-3"),
        case("llama_sieve_chain_sample_bf16", Clears, |w| unsafe { llama_sieve_chain_sample_bf16(w.chain, [0u16, 0x4000].as_ptr(), 2) }.to_string(), "-4", "-3"),
        case("llama_sieve_chain_sample_batch", Clears, |w| {
            let mut out = [-99];
            unsafe { llama_sieve_chain_sample_batch(&w.chain, &w.logits.as_ptr(), w.n(), 1, out.as_mut_ptr(), 1) }.to_string()
        }, "-4", "-3"),
        // No token was sampled with this chain, which is reported by a text, not by an error
        // number.
        case("llama_sieve_chain_check", Clears, |w| unsafe { llama_sieve_chain_check(w.chain, null_mut(), 0) }.min(0).to_string(), "0", "-3"),
        case("llama_sieve_chain_candidates", Clears, |w| format!("- {}", unsafe { llama_sieve_chain_candidates(w.chain, null_mut(), 0) }), "- 0", "- -3"),
        case("llama_sieve_default_params", Leaves, |_| llama_sieve_default_params().top_k.to_string(), "40", "40"),
        case("llama_sieve_new", Clears, |w| w.keep(unsafe { llama_sieve_new(&w.params) }, Made::Sieve), "an object", "NULL"),
        case("llama_sieve_clone", Clears, |w| w.keep(unsafe { llama_sieve_clone(w.sieve) }, Made::Sieve), "an object", "NULL"),
        case("llama_sieve_free", Leaves, |w| { let spare = w.spare_sieve.replace(null_mut()); nothing(|| unsafe { llama_sieve_free(spare) }) }, "", ""),
        case("llama_sieve_reset", Leaves, |w| nothing(|| unsafe { llama_sieve_reset(w.sieve) }), "", ""),
        case("llama_sieve_accept", Leaves, |w| nothing(|| unsafe { llama_sieve_accept(w.sieve, 7) }), "", ""),
        case("llama_sieve_set_params", Clears, |w| {
            let bias = llama_logit_bias { token: 3, bias: 1.0 };
            let params = llama_sieve_params { bias: &bias, n_bias: 1, penalty_last_n: 2000, ..w.params };
            unsafe { llama_sieve_set_params(w.sieve, &params) }.to_string()
        }, "0", "-3"),
        case("llama_sieve_sample", Clears, |w| unsafe { llama_sieve_sample(w.sieve, w.logits.as_ptr(), w.n()) }.to_string(), "3", "-3"),
        case("llama_sieve_sample_f16", Clears, |w| unsafe { llama_sieve_sample_f16(w.sieve, [0u16, 0x4000].as_ptr(), w.n().min(2)) }.to_string(), "1", "-3"),
        case("llama_sieve_sample_bf16", Clears, |w| unsafe { llama_sieve_sample_bf16(w.sieve, [0u16, 0x4000].as_ptr(), w.n().min(2)) }.to_string(), "1", "-3"),
        case("llama_sieve_sample_ctx", Clears, |w| unsafe { llama_sieve_sample_ctx(w.sieve, mock_host::handle(), -1) }.to_string(), "3", "-3"),
        case("llama_sieve_sample_batch", Clears, |w| {
            let mut out = [-99];
            let code = unsafe { llama_sieve_sample_batch(&w.sieve, &w.logits.as_ptr(), w.n(), 1, out.as_mut_ptr(), 1) };
            // After a fault of the call the output is unchanged. After a fault of the sieve it
            // contains an error.
            format!("{code} {}", if matches!(out[0], -99 | -3) { "none" } else { "a token" })
        }, "0 a token", "-3 none"),
        case("llama_sieve_candidates", Clears, |w| unsafe { llama_sieve_candidates(w.sieve, null_mut(), 0) }.to_string(), "0", "-3"),
        case("llama_sieve_measure", Clears, |w| unsafe { llama_sieve_measure(w.sieve, true) }.to_string(), "0", "-3"),
        case("llama_sieve_last_stats", Clears, |w| {
            // SAFETY: plain numbers.
            let mut stats: llama_sieve_stats = unsafe { std::mem::zeroed() };
            stats.struct_size = size_of::<llama_sieve_stats>();
            stats.n_vocab = -99;
            let code = unsafe { llama_sieve_last_stats(w.sieve, &mut stats) };
            format!("{code} {}", stats.n_vocab)
        }, "0 0", "-3 -99"),
        case("llama_sieve_state_size", Leaves, |w| unsafe { llama_sieve_state_size(w.sieve) }.to_string(), "140", "0"),
        case("llama_sieve_state_save", Clears, |w| {
            let mut state = [9; 256];
            let code = unsafe { llama_sieve_state_save(w.sieve, state.as_mut_ptr(), 256) };
            format!("{code} {}", state == [9; 256])
        }, "0 false", "-3 true"),
        case("llama_sieve_state_load", Clears, |w| unsafe { llama_sieve_state_load(w.sieve, w.state.as_ptr(), w.state.len()) }.to_string(), "0", "-3"),
        case("llama_sieve_state_load_with", Clears, |w| unsafe { llama_sieve_state_load_with(w.sieve, w.state.as_ptr(), w.state.len(), LLAMA_SIEVE_STATE_PARAMS) }.to_string(), "0", "-3"),
        case("llama_sieve_reserve", Clears, |w| unsafe { llama_sieve_reserve(w.sieve, 16) }.to_string(), "0", "-3"),
        case("llama_sieve_get_params", Clears, |w| {
            let mut seen = llama_sieve_params { top_k: -99, ..w.params };
            let code = unsafe { llama_sieve_get_params(w.sieve, &mut seen) };
            format!("{code} {}", seen.top_k)
        }, "0 40", "-3 -99"),
        case("llama_sieve_current_seed", Leaves, |w| unsafe { llama_sieve_current_seed(w.sieve) }.to_string(), "5", "4294967295"),
        case("llama_sieve_n_accepted", Leaves, |w| unsafe { llama_sieve_n_accepted(w.sieve) }.to_string(), "1", "0"),
        case("llama_sieve_history_size", Leaves, |w| unsafe { llama_sieve_history_size(w.sieve) }.to_string(), "1", "0"),
        case("llama_sieve_history_count", Leaves, |w| unsafe { llama_sieve_history_count(w.sieve, 4) }.to_string(), "1", "0"),
        case("llama_sieve_history_contains", Leaves, |w| unsafe { llama_sieve_history_contains(w.sieve, 4) }.to_string(), "true", "false"),
        case("llama_sieve_history_unique", Leaves, |w| {
            let mut out = [-99; 2];
            let n = unsafe { llama_sieve_history_unique(w.sieve, out.as_mut_ptr(), 2) };
            format!("{n} {out:?}")
        }, "1 [4, -99]", "0 [-99, -99]"),
        case("llama_sieve_adjusted_logit", Leaves, |w| some(unsafe { llama_sieve_adjusted_logit(w.sieve, 4, 1.0) }), "a number", "NaN"),
        case("llama_sieve_error", Leaves, |w| text(unsafe { llama_sieve_error(w.sieve) }), "", "NULL"),
        case("llama_sieve_of_sampler", Clears, |w| if unsafe { llama_sieve_of_sampler(w.in_chain) }.is_null() { "NULL" } else { "an object" }.to_owned(), "an object", "NULL"),
        case("llama_sieve_default_stages", Leaves, |_| llama_sieve_default_stages().n_stages.to_string(), "9", "9"),
        case("llama_sieve_set_stages", Clears, |w| unsafe { llama_sieve_set_stages(w.sieve, &w.stages) }.to_string(), "0", "-3"),
        case("llama_sieve_get_stages", Clears, |w| {
            let mut out = [-99];
            let code = unsafe { llama_sieve_get_stages(w.sieve, out.as_mut_ptr(), 1) };
            format!("{code} {}", out[0])
        }, "0 -99", "-3 -99"),
        case("llama_sieve_set_dry_breakers", Clears, |w| {
            let mut breakers = [c"a".as_ptr()];
            unsafe { llama_sieve_set_dry_breakers(w.sieve, mock_host::handle(), breakers.as_mut_ptr(), 1) }.to_string()
        }, "0", "-3"),
        case("llama_sieve_set_sampler", Clears, |w| unsafe { llama_sieve_set_sampler(w.sieve, 0, w.bans) }.to_string(), "0", "-3"),
        case("llama_sieve_top_candidates", Clears, |w| {
            let mut out = [TokenData::new(-99, 0.0)];
            let code = unsafe { llama_sieve_top_candidates(w.logits.as_ptr(), w.n(), 1, out.as_mut_ptr()) };
            format!("{code} {}", out[0].id)
        }, "1 3", "-3 -99"),
        case("llama_sieve_greedy", Clears, |w| unsafe { llama_sieve_greedy(w.logits.as_ptr(), w.n()) }.to_string(), "3", "-3"),
        case("llama_sieve_entropy", Leaves, |w| some(unsafe { llama_sieve_entropy(w.logits.as_ptr(), w.n(), 2) }), "a number", "NaN"),
        case("llama_sieve_surprisal", Leaves, |w| some(unsafe { llama_sieve_surprisal(w.logits.as_ptr(), w.n(), 1, 0) }), "a number", "NaN"),
        case("llama_sieve_candidates_entropy", Leaves, |w| { let d = data(w); some(unsafe { llama_sieve_candidates_entropy(d.as_ptr(), d.len(), 0) }) }, "a number", "NaN"),
        case("llama_sieve_candidates_surprisal", Leaves, |w| { let d = data(w); some(unsafe { llama_sieve_candidates_surprisal(d.as_ptr(), d.len(), 1, 0) }) }, "a number", "NaN"),
        case("llama_sieve_ppl_new", Clears, |w| w.keep(llama_sieve_ppl_new(), Made::Ppl), "an object", "NULL"),
        case("llama_sieve_ppl_clone", Clears, |w| w.keep(unsafe { llama_sieve_ppl_clone(w.ppl) }, Made::Ppl), "an object", "NULL"),
        case("llama_sieve_ppl_free", Leaves, |w| { let spare = w.spare_ppl.replace(null_mut()); nothing(|| unsafe { llama_sieve_ppl_free(spare) }) }, "", ""),
        case("llama_sieve_ppl_add", Leaves, |w| nothing(|| unsafe { llama_sieve_ppl_add(w.ppl, 1.0) }), "", ""),
        case("llama_sieve_ppl_value", Leaves, |w| some(unsafe { llama_sieve_ppl_value(w.ppl) }), "a number", "NaN"),
        case("llama_sieve_ppl_count", Leaves, |w| unsafe { llama_sieve_ppl_count(w.ppl) }.to_string(), "1", "0"),
        case("llama_sieve_ppl_reset", Leaves, |w| nothing(|| unsafe { llama_sieve_ppl_reset(w.ppl) }), "", ""),
        // Functions that affect the whole process. Other tests must not see another log callback.
        case("llama_sieve_log_set", Leaves, |_| {
            // The callback is set and restored at once. A fault comes before it is set.
            let before = log::sink();
            unsafe { llama_sieve_log_set(Some(no_log), null_mut()) };
            let changed = log::sink().is_some() != before.is_some() || !same_sink(&log::sink(), &before);
            log::set_sink(before);
            if changed { "another" } else { "as it was" }.to_owned()
        }, "another", "as it was"),
        // Other tests must not be traced.
        case("llama_sieve_trace", Clears, |_| unsafe { llama_sieve_trace(None, null_mut(), null_mut()) }.to_string(), "0", "-3"),
        // There is no shared library to attach to.
        case("llama_sieve_attach", Clears, |_| llama_sieve_attach(0).to_string(), "-2", "-3"),
        case("llama_sieve_detach", Clears, |_| llama_sieve_detach().to_string(), "0", "-3"),
        case("llama_sieve_bind_host", Clears, |_| unsafe { llama_sieve_bind_host(no_host()) }.to_string(), "-2", "-3"),
    ];
    cases.extend(samplers().into_iter().map(|(export, make, _)| constructor(export, make)));
    cases
}

pub(super) fn same_sink(a: &Option<log::Sink>, b: &Option<log::Sink>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (None, None) => true,
        _ => false,
    }
}

/// Returns a handle of a library that is not a host: the C library.
pub(super) fn no_host() -> *mut std::ffi::c_void {
    if cfg!(miri) {
        return libc::RTLD_DEFAULT.wrapping_byte_add(1);
    }
    // SAFETY: a library that is loaded.
    let handle = unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY) };
    assert!(!handle.is_null());
    handle
}

/// The state of the candidates after a sampler has failed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Answer {
    /// All candidates are left.
    Filter,
    /// All candidates are left, and the largest is selected.
    Selector,
    /// Only the allowed candidates are left.
    Constraint,
    /// All candidates are left; those that are not allowed, including the end of the generation,
    /// have minus infinity.
    Masking,
}
pub(super) use Answer::{Constraint, Filter, Masking, Selector};

pub(super) type Make = fn(&World) -> String;

/// Returns every constructor of a sampler.
#[rustfmt::skip]
#[allow(clippy::undocumented_unsafe_blocks)]
pub(super) fn samplers() -> Vec<(&'static str, Make, Answer)> {
    vec![
        ("llama_sieve_init_greedy", |w| w.sampler(llama_sieve_init_greedy()), Selector),
        ("llama_sieve_init_dist", |w| w.sampler(llama_sieve_init_dist(1)), Selector),
        ("llama_sieve_init_top_k", |w| w.sampler(llama_sieve_init_top_k(2)), Filter),
        ("llama_sieve_init_top_p", |w| w.sampler(llama_sieve_init_top_p(0.5, 1)), Filter),
        ("llama_sieve_init_min_p", |w| w.sampler(llama_sieve_init_min_p(0.5, 1)), Filter),
        ("llama_sieve_init_typical", |w| w.sampler(llama_sieve_init_typical(0.5, 1)), Filter),
        ("llama_sieve_init_temp", |w| w.sampler(llama_sieve_init_temp(0.5)), Filter),
        ("llama_sieve_init_top_n_sigma", |w| w.sampler(llama_sieve_init_top_n_sigma(1.0)), Filter),
        ("llama_sieve_init_penalties", |w| w.sampler(llama_sieve_init_penalties(16, 64, 1.1, 0.1, 0.1)), Filter),
        ("llama_sieve_init_temp_ext", |w| w.sampler(llama_sieve_init_temp_ext(0.8, 0.3, 1.0)), Filter),
        ("llama_sieve_init_xtc", |w| w.sampler(llama_sieve_init_xtc(0.9, 0.1, 1, 3)), Filter),
        ("llama_sieve_init_mirostat", |w| w.sampler(llama_sieve_init_mirostat(16, 1, 5.0, 0.1, 10)), Selector),
        ("llama_sieve_init_mirostat_v2", |w| w.sampler(llama_sieve_init_mirostat_v2(1, 5.0, 0.1)), Selector),
        ("llama_sieve_init_dry", |w| {
            let mut breakers = [c"a".as_ptr()];
            w.sampler(unsafe { llama_sieve_init_dry(mock_host::handle(), 1.0, 1.75, 2, 64, breakers.as_mut_ptr(), 1) })
        }, Filter),
        ("llama_sieve_init_adaptive_p", |w| w.sampler(llama_sieve_init_adaptive_p(0.5, 0.9, 1)), Selector),
        ("llama_sieve_init_logit_bias", |w| {
            let bias = llama_logit_bias { token: 3, bias: 1.0 };
            w.sampler(unsafe { llama_sieve_init_logit_bias(16, 1, &bias) })
        }, Filter),
        ("llama_sieve_init_infill", |w| w.sampler(unsafe { llama_sieve_init_infill(mock_host::handle()) }), Filter),
        ("llama_sieve_init_tail_free", |w| w.sampler(llama_sieve_init_tail_free(0.5, 1)), Filter),
        ("llama_sieve_init_softmax", |w| w.sampler(llama_sieve_init_softmax()), Filter),
        ("llama_sieve_init_top_a", |w| w.sampler(llama_sieve_init_top_a(0.5)), Filter),
        ("llama_sieve_init_epsilon_cutoff", |w| w.sampler(llama_sieve_init_epsilon_cutoff(0.05)), Filter),
        ("llama_sieve_init_eta_cutoff", |w| w.sampler(llama_sieve_init_eta_cutoff(0.05)), Filter),
        ("llama_sieve_init_p_less", |w| w.sampler(llama_sieve_init_p_less(true)), Filter),
        ("llama_sieve_init_top_h", |w| w.sampler(llama_sieve_init_top_h(0.5)), Filter),
        ("llama_sieve_init_min_k", |w| w.sampler(llama_sieve_init_min_k(0.0)), Filter),
        ("llama_sieve_init_quadratic", |w| w.sampler(llama_sieve_init_quadratic(0.5, 1.0)), Filter),
        // Bans all letters except the children's, and the token that ends a generation.
        ("llama_sieve_init_ban_strings", |w| w.sampler(warm(|| {
            let letters = b"a\0d\0e\0f\0g\0h\0i\0j\0k\0l\0m\0n\0o\0";
            let texts: [_; 13] = std::array::from_fn(|i| letters[2 * i..].as_ptr().cast());
            unsafe { llama_sieve_init_ban_strings(mock_host::handle(), texts.as_ptr(), texts.len(), LLAMA_SIEVE_BAN_FOLD_CASE) }
        })), Masking),
        ("llama_sieve_init_ban_strings_bias", |w| w.sampler(warm(|| {
            let texts = [c"bc".as_ptr(), c"d".as_ptr()];
            unsafe { llama_sieve_init_ban_strings_bias(mock_host::handle(), texts.as_ptr(), texts.len(), LLAMA_SIEVE_BAN_FOLD_CASE, -1.0) }
        })), Filter),
        ("llama_sieve_init_loop_breaker", |w| w.sampler(unsafe { llama_sieve_init_loop_breaker(std::ptr::null()) }), Filter),
        ("llama_sieve_init_sampler", |w| w.sampler(unsafe { llama_sieve_init_sampler(&w.params) }), Selector),
        ("llama_sampler_init_token_trie", |w| w.sampler(unsafe { llama_sampler_init_token_trie(mock_host::handle(), PAYLOAD.as_ptr(), 1) }), Constraint),
        ("llama_sieve_init_trie_strings", |w| {
            // Tokens of the mock host are letters.
            let strings = [c"bd".as_ptr(), c"c".as_ptr()];
            w.sampler(unsafe { llama_sieve_init_trie_strings(mock_host::handle(), strings.as_ptr(), 2, 1) })
        }, Constraint),
        ("llama_sieve_init_trie_slot", |w| {
            let answer = w.sampler(unsafe { llama_sieve_init_trie_slot(mock_host::handle()) });
            if let Some(Made::Sampler(smpl)) = w.made.borrow().last() {
                // The case is the constructor alone. Without a fault the sampler then gets a
                // constraint.
                if !armed::is_armed() {
                    unsafe { llama_sieve_trie_set(*smpl, PAYLOAD.as_ptr(), PAYLOAD.count_bytes(), 1) };
                }
            }
            answer
        }, Constraint),
        ("llama_sieve_init_grammar", |w| w.sampler(grammar()), Masking),
        ("llama_sieve_init_grammar_lazy", |w| w.sampler(lazy_grammar(true)), Masking),
        ("llama_sieve_init_grammar_lazy_patterns", |w| w.sampler(lazy_grammar(false)), Masking),
        // No JSON begins with a child's letter.
        ("llama_sieve_init_json_schema", |w| {
            w.sampler(unsafe { llama_sieve_init_json_schema(mock_host::handle(), c"{\"type\":\"object\"}".as_ptr(), 0) })
        }, Masking),
        ("llama_sieve_init_regex", |w| w.sampler(warm(|| unsafe { llama_sieve_init_regex(mock_host::handle(), c"[bc]*".as_ptr(), 0) })), Masking),
        ("llama_sieve_init_choice", |w| w.sampler(warm(|| {
            let values = [c"bcbcbc".as_ptr(), c"cbcbcb".as_ptr(), c"b".as_ptr(), c"c".as_ptr(), c"".as_ptr()];
            unsafe { llama_sieve_init_choice(mock_host::handle(), values.as_ptr(), values.len()) }
        })), Masking),
        ("llama_sieve_init_tags", |w| w.sampler(begun_tags()), Masking),
    ]
}
