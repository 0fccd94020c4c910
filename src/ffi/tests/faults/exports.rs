//! Injects a fault at every point of every export.

use super::cases::*;
use super::entries::*;
use super::world::*;
use crate::fault::armed;
use crate::ffi::library::*;
use crate::ffi::tests::{memory, mock_host};
use crate::last_error;

/// Defines a test for each export, so that a run can choose among them;
/// `every_export_has_a_case_and_a_test` compares the names.
macro_rules! tests_of {
    ($names:ident $list:tt: $($module:ident, $body:ident);*) => {
        const $names: &[&str] = &names!$list;

        $(mod $module {
            tests!($body $list);
        })*
    };
}

macro_rules! names {
    ($($name:ident)*) => { [$(stringify!($name)),*] };
}

macro_rules! tests {
    ($body:ident { $($name:ident)* }) => {
        $(
            #[test]
            fn $name() {
                super::$body(stringify!($name));
            }
        )*
    };
}

tests_of! {
    EXPORTS {
    llama_sieve_version llama_sieve_simd llama_sieve_last_error llama_sieve_last_error_code llama_sieve_log_set
    llama_sieve_trace
    llama_sieve_trie_set llama_sieve_trie_clear llama_sieve_trie_activate llama_sieve_trie_is_active llama_sieve_trie_leaf llama_sieve_trie_forced
    llama_sieve_trie_allowed
    llama_sieve_trie_cache_stats llama_sieve_trie_get_stats
    llama_sieve_grammar_mask llama_sieve_grammar_is_complete llama_sieve_grammar_error llama_sieve_grammar_cache_stats llama_sieve_vocab_forget
    llama_sieve_ban_rewind llama_sieve_grammar_rollback llama_sieve_grammar_accepts llama_sieve_grammar_forced llama_sieve_json_schema_to_gbnf
    eliza_inference_bind_token_trie eliza_inference_set_token_trie eliza_inference_clear_token_trie
    llama_sieve_get_seed llama_sieve_host_profile llama_sieve_certify llama_sieve_certify_build
    llama_sieve_chain_sample llama_sieve_chain_sample_logits llama_sieve_chain_sample_f16 llama_sieve_chain_sample_bf16
    llama_sieve_chain_sample_batch llama_sieve_chain_candidates llama_sieve_chain_check
    llama_sieve_default_params llama_sieve_new llama_sieve_clone llama_sieve_free llama_sieve_reset llama_sieve_accept llama_sieve_set_params
    llama_sieve_sample llama_sieve_sample_f16 llama_sieve_sample_bf16 llama_sieve_sample_ctx llama_sieve_sample_batch
    llama_sieve_candidates llama_sieve_measure llama_sieve_last_stats llama_sieve_state_size llama_sieve_state_save llama_sieve_state_load
    llama_sieve_state_load_with llama_sieve_reserve llama_sieve_get_params llama_sieve_current_seed llama_sieve_n_accepted
    llama_sieve_history_size llama_sieve_history_count llama_sieve_history_contains llama_sieve_history_unique
    llama_sieve_adjusted_logit llama_sieve_error llama_sieve_of_sampler
    llama_sieve_default_stages llama_sieve_set_stages llama_sieve_get_stages llama_sieve_set_dry_breakers llama_sieve_set_sampler
    llama_sieve_top_candidates llama_sieve_greedy
    llama_sieve_entropy llama_sieve_surprisal llama_sieve_candidates_entropy llama_sieve_candidates_surprisal
    llama_sieve_ppl_new llama_sieve_ppl_clone llama_sieve_ppl_free llama_sieve_ppl_add llama_sieve_ppl_value llama_sieve_ppl_count llama_sieve_ppl_reset
    }: a_fault_gives_the_documented_answer_of, faults_in_export
}

tests_of! {
    CONSTRUCTORS {
    llama_sieve_init_greedy llama_sieve_init_dist llama_sieve_init_top_k llama_sieve_init_top_p llama_sieve_init_min_p llama_sieve_init_typical
    llama_sieve_init_temp llama_sieve_init_top_n_sigma llama_sieve_init_penalties llama_sieve_init_temp_ext llama_sieve_init_xtc
    llama_sieve_init_mirostat llama_sieve_init_mirostat_v2 llama_sieve_init_dry llama_sieve_init_adaptive_p llama_sieve_init_logit_bias
    llama_sieve_init_infill llama_sieve_init_tail_free llama_sieve_init_softmax llama_sieve_init_sampler
    llama_sieve_init_top_a llama_sieve_init_epsilon_cutoff llama_sieve_init_eta_cutoff llama_sieve_init_p_less llama_sieve_init_top_h
    llama_sieve_init_quadratic llama_sieve_init_min_k
    llama_sampler_init_token_trie llama_sieve_init_trie_slot llama_sieve_init_trie_strings llama_sieve_init_grammar llama_sieve_init_grammar_lazy llama_sieve_init_grammar_lazy_patterns llama_sieve_init_json_schema
    llama_sieve_init_regex llama_sieve_init_choice llama_sieve_init_tags llama_sieve_init_ban_strings llama_sieve_init_ban_strings_bias llama_sieve_init_loop_breaker
    }: a_fault_gives_the_documented_answer_of_constructor, faults_in_export;
    a_fault_gives_the_documented_answer_of_each_entry_made_by, faults_in_entries
}

const OF_LIBRARIES: [&str; 3] = [
    "llama_sieve_attach",
    "llama_sieve_bind_host",
    "llama_sieve_detach",
];

#[test]
#[cfg_attr(miri, ignore = "there is no dynamic linker")]
fn a_fault_gives_the_documented_answer_of_what_asks_for_libraries() {
    for export in OF_LIBRARIES {
        faults_in_export(export);
    }
}

#[test]
fn every_export_has_a_case_and_a_test() {
    let sorted = |mut names: Vec<&'static str>| {
        names.sort_unstable();
        names
    };
    let exports = sorted(
        include_str!("../../../../tests/exports.txt")
            .lines()
            .collect(),
    );
    let cases = cases().iter().map(|case| case.export).collect();
    assert_eq!(sorted(cases), exports);
    assert_eq!(
        sorted([EXPORTS, CONSTRUCTORS, &OF_LIBRARIES].concat()),
        exports
    );
    let makers = samplers().iter().map(|(name, _, _)| *name).collect();
    assert_eq!(sorted(makers), sorted(CONSTRUCTORS.to_vec()));
}

pub(super) fn faults_in_export(export: &str) {
    let _turn = TURN.lock();
    mock_host::install();
    quiet();
    let case = cases().into_iter().find(|case| case.export == export);
    let case = case.expect("it has a case");
    let injected = each_point(export, |points| Some(fault(&case, points)));
    eprintln!("{injected} faults in {export}");
}

/// Calls `inject` with the number of the first point, of the second, and so on, until it returns
/// false because there is no such point. Returns the number of points; 0 if `inject` returns `None`
/// because there is nothing to test.
pub(super) fn each_point(what: &str, inject: impl Fn(usize) -> Option<bool>) -> usize {
    // Caches that are never freed are filled first: the room for this thread's last error, and
    // others by runs without a fault. Several runs are needed, since each sampler of a grammar
    // leaves its tables to the next one.
    last_error::set(LLAMA_SIEVE_ERROR_INVALID, &" ".repeat(1000));
    for _ in 0..8 {
        inject(usize::MAX);
    }
    inject(0);
    for points in 0.. {
        let before = (memory::held(), mock_host::shells());
        let fired = inject(points);
        last_error::set(LLAMA_SIEVE_ERROR_INVALID, "");
        let after = (memory::held(), mock_host::shells());
        assert_eq!(after, before, "{what} leaks at point {points}");
        match fired {
            Some(true) => {}
            Some(false) => {
                assert!(points > 0, "{what} passes no point");
                return points;
            }
            None => break,
        }
    }
    0
}

/// Exports that change nothing, so that the sieve stays usable after a fault in them.
pub(super) const LOOKS: [&str; 14] = [
    "llama_sieve_adjusted_logit",
    "llama_sieve_clone",
    "llama_sieve_current_seed",
    "llama_sieve_get_params",
    "llama_sieve_get_stages",
    "llama_sieve_history_contains",
    "llama_sieve_history_count",
    "llama_sieve_history_size",
    "llama_sieve_history_unique",
    "llama_sieve_n_accepted",
    "llama_sieve_candidates",
    "llama_sieve_last_stats",
    "llama_sieve_state_size",
    "llama_sieve_state_save",
];

/// Runs the case with a fault at this point, and checks the consequences. Returns false if the case
/// has no such point.
pub(super) fn fault(case: &Case, points: usize) -> bool {
    let export = case.export;
    let world = World::new();
    let before = world.seen();
    last_error::set(LLAMA_SIEVE_ERROR_INVALID, "an earlier one");
    let spare = (world.spare_sieve.get(), world.spare_ppl.get());
    let (answer, fired) = armed::with(points, || (case.call)(&world));
    let (told, code) = (last_error::get(), last_error::code());
    if !fired {
        assert_eq!(answer, case.good, "{export}");
        if told.is_empty() {
            assert_eq!(code, 0, "{export}");
        }
        // A case may expect an error, which the last error then reports.
        if !answer.starts_with('-') {
            let expected = if case.told == Clears {
                ""
            } else {
                "an earlier one"
            };
            assert_eq!(told, expected, "{export}");
        }
        return false;
    }
    if export.ends_with("_free") {
        // The objects were not freed.
        world.spare_sieve.set(spare.0);
        world.spare_ppl.set(spare.1);
    }
    let at = format!("{export}, point {points}");
    assert_eq!(answer, case.failed, "{at}");
    assert!(told.contains(armed::TEXT), "{at}: {told}");
    assert_eq!(code, LLAMA_SIEVE_ERROR_INTERNAL, "{at}");
    // If the fault occurs in a sampler that is queried or cloned, the error names the sampler. The
    // check that it is still in use follows.
    let in_sampler = [
        "dist: seed: ",
        "ban-strings: rewind: ",
        "ban-strings: clone: ",
    ];
    let in_sampler = points > 0 && in_sampler.iter().any(|begin| told.starts_with(begin));
    assert!(told.starts_with(export) || in_sampler, "{at}: {told}");
    let after = world.seen();
    assert_eq!(after.0, before.0, "{at}");
    let out_of_use = after.1 == Err(LLAMA_SIEVE_ERROR_BUSY);
    let may_fail = points > 0 && !LOOKS.contains(&export);
    assert!(after.1 == before.1 || (may_fail && out_of_use), "{at}");
    // The case runs once more, without a fault.
    last_error::set(LLAMA_SIEVE_ERROR_INVALID, "an earlier one");
    let again = (case.call)(&world);
    assert!(again == case.good || out_of_use, "{at}: {again}");
    fired
}
