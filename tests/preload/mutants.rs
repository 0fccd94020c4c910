//! Tests the preload library under hosts whose samplers behave differently, or whose vtables and
//! arrays have other members: llama.cpp's own source, changed in one place at a time. Each host
//! must give the same results as without the preload library.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::altered::{self, PREAMBLE};
use crate::preloaded::{made, preloaded, preloaded_of_known_build};
use crate::programs::{Run, Said, build, model, source};
use crate::toolchain::{Build, empty_folder};

/// A change of llama.cpp's source.
struct Mutant {
    name: &'static str,
    /// The kinds of samplers that the change affects; none if it affects the chain.
    kinds: &'static [&'static str],
    /// The text in the source after which the first `from` is changed.
    behind: &'static str,
    from: &'static str,
    /// The new text. `M` in it is true if this mutant is active.
    to: &'static str,
}

const fn mutant(
    name: &'static str,
    kinds: &'static [&'static str],
    behind: &'static str,
    from: &'static str,
    to: &'static str,
) -> Mutant {
    Mutant {
        name,
        kinds,
        behind,
        from,
        to,
    }
}

#[rustfmt::skip] // A table.
const MUTANTS: &[Mutant] = &[
    mutant("greedy takes the last of equals", &["greedy"],
        "void llama_sampler_greedy_apply(",
        "if (cur_p->data[i].logit > cur_p->data[cur_p->selected].logit)",
        "const float best = cur_p->data[cur_p->selected].logit;
         if (M ? cur_p->data[i].logit >= best : cur_p->data[i].logit > best)"),

    mutant("dist draws once more", &["dist"],
        "void llama_sampler_dist_apply(",
        "const double rnd = dist(ctx->rng);",
        "if (M) { dist(ctx->rng); }
         const double rnd = dist(ctx->rng);"),
    mutant("dist draws nothing for one", &[],
        "void llama_sampler_dist_apply(",
        "(void) dist(ctx->rng);",
        "if (!M) { (void) dist(ctx->rng); }"),
    mutant("dist sorts", &["dist"],
        "void llama_sampler_dist_apply(",
        "std::uniform_real_distribution<double> dist(0.0f, 1.0f);",
        "if (M) { llama_token_data_array_partial_sort_inplace(cur_p, cur_p->size); }
         std::uniform_real_distribution<double> dist(0.0f, 1.0f);"),
    mutant("dist sums floats", &["dist"],
        "void llama_sampler_dist_apply(",
        "sum_cum += p;",
        "sum_cum = M ? (double) ((float) sum_cum + p) : sum_cum + p;"),
    mutant("dist copies no generator", &["dist"],
        "struct llama_sampler_dist :",
        "rng                       = src.rng;",
        "if (!M) { rng = src.rng; }"),
    mutant("dist clones no generator", &["dist"],
        "llama_sampler_dist_clone(",
        "result_ctx->rng                       = ctx->rng;",
        "if (!M) { result_ctx->rng = ctx->rng; }"),
    mutant("dist goes on behind a reset", &["dist"],
        "void llama_sampler_dist_reset(",
        "ctx->rng.seed(ctx->seed_cur);",
        "if (!M) { ctx->rng.seed(ctx->seed_cur); }"),
    mutant("dist has another seed", &["dist"],
        "llama_sampler * llama_sampler_init_dist(",
        "get_rng_seed(seed)",
        "get_rng_seed(M ? seed + 1 : seed)"),

    mutant("top-k sorts stably", &["top-k"],
        "void llama_sampler_top_k_impl(",
        "llama_token_data_array_partial_sort_inplace(cur_p, k);",
        "if (M) {
             std::stable_sort(cur_p->data, cur_p->data + cur_p->size,
                 [](const auto & a, const auto & b) { return a.logit > b.logit; });
             cur_p->sorted = true;
         } else {
             llama_token_data_array_partial_sort_inplace(cur_p, k);
         }"),
    mutant("top-k has other buckets", &["top-k", "top-p", "xtc"],
        "void llama_token_data_array_partial_sort(",
        "int ib = int(bucket_scale * val + bucket_inter);",
        "int ib = int((M ? 0.7f : 1.0f) * (bucket_scale * val + bucket_inter));"),

    mutant("top-p cuts behind", &["top-p"],
        "void llama_sampler_top_p_apply(",
        "cum_sum >= ctx->p &&",
        "(M ? cum_sum > ctx->p : cum_sum >= ctx->p) &&"),
    mutant("top-p keeps one more", &["top-p"],
        "void llama_sampler_top_p_apply(",
        "&& i + 1 >= ctx->min_keep",
        "&& (M ? i : i + 1) >= ctx->min_keep"),
    mutant("top-p sorts more at first", &["top-p"],
        "void llama_sampler_top_p_apply(",
        "std::min<size_t>(256, cur_p->size)",
        "std::min<size_t>(M ? 150 : 256, cur_p->size)"),

    mutant("min-p leaves out the last", &["min-p"],
        "void llama_sampler_min_p_apply(",
        "if (cur_p->data[i].logit >= min_logit)",
        "if (M ? cur_p->data[i].logit > min_logit : cur_p->data[i].logit >= min_logit)"),
    mutant("min-p leaves out the last of sorted ones", &["min-p"],
        "void llama_sampler_min_p_apply(",
        "cur_p->data[i].logit < min_logit &&",
        "(M ? cur_p->data[i].logit <= min_logit : cur_p->data[i].logit < min_logit) &&"),
    mutant("min-p keeps one more", &["min-p"],
        "void llama_sampler_min_p_apply(",
        "&& i >= ctx->min_keep",
        "&& (M ? i > ctx->min_keep : i >= ctx->min_keep)"),

    mutant("typical forgets a term", &["typical"],
        "void llama_sampler_typical_apply(",
        "for (size_t i = 0; i < cur_p->size; ++i) {\n        entropy +=",
        "for (size_t i = M ? 1 : 0; i < cur_p->size; ++i) {\n        entropy +="),
    mutant("typical cuts before", &["typical"],
        "void llama_sampler_typical_apply(",
        "cum_sum > ctx->p &&",
        "(M ? cum_sum >= ctx->p : cum_sum > ctx->p) &&"),
    mutant("typical keeps one more", &["typical"],
        "void llama_sampler_typical_apply(",
        "i >= ctx->min_keep - 1",
        "i >= ctx->min_keep - (M ? 0 : 1)"),

    mutant("temp multiplies", &["temp", "temp-ext"],
        "void llama_sampler_temp_impl(",
        "cur_p->data[i].logit /= temp;",
        "if (M) { cur_p->data[i].logit *= 1.0f / temp; } else { cur_p->data[i].logit /= temp; }"),
    mutant("temp leaves the last of equals", &["temp", "temp-ext"],
        "void llama_sampler_temp_impl(",
        "cur_p->data[i    ].logit > max_l",
        "(M ? cur_p->data[i].logit >= max_l : cur_p->data[i].logit > max_l)"),

    mutant("temp-ext goes below 0", &["temp-ext"],
        "void llama_sampler_temp_ext_apply(",
        "std::max(0.0f, ctx->temp - ctx->delta)",
        "(M ? ctx->temp - ctx->delta : std::max(0.0f, ctx->temp - ctx->delta))"),
    mutant("temp-ext has no exponent", &["temp-ext"],
        "void llama_sampler_temp_ext_apply(",
        "float exponent_val = ctx->exponent;",
        "float exponent_val = M ? 1.0f : ctx->exponent;"),

    mutant("xtc removes one more", &["xtc"],
        "void llama_sample_xtc_apply(",
        "if (cur_p->size - pos_last >= ctx->min_keep",
        "if (M && pos_last + 1 < (int) cur_p->size) { pos_last += 1; }
         if (cur_p->size - pos_last >= ctx->min_keep"),
    mutant("xtc spares the threshold", &["xtc"],
        "void llama_sample_xtc_apply(",
        "if (cur_p->data[i].p >= ctx->threshold)",
        "if (M ? cur_p->data[i].p > ctx->threshold : cur_p->data[i].p >= ctx->threshold)"),
    mutant("xtc keeps one more", &["xtc"],
        "void llama_sample_xtc_apply(",
        ">= ctx->min_keep &&",
        ">= ctx->min_keep + (M ? 1 : 0) &&"),
    mutant("xtc is off from lower thresholds on", &["xtc"],
        "llama_sampler * llama_sampler_init_xtc(",
        "t > 0.5f",
        "t > (M ? 0.4f : 0.5f)"),
    mutant("xtc clones no generator", &["xtc"],
        "llama_sampler_xtc_clone(",
        "result_ctx->rng = ctx->rng;",
        "if (!M) { result_ctx->rng = ctx->rng; }"),
    mutant("xtc goes on behind a reset", &["xtc"],
        "void llama_sampler_xtc_reset(",
        "ctx->rng.seed(ctx->seed_cur);",
        "if (!M) { ctx->rng.seed(ctx->seed_cur); }"),

    mutant("top-n-sigma cuts before", &["top-n-sigma"],
        "void llama_sampler_top_n_sigma_apply(",
        "cur_p->data[i].logit < max - (ctx->n * std)",
        "(M ? cur_p->data[i].logit <= max - (ctx->n * std)
            : cur_p->data[i].logit < max - (ctx->n * std))"),
    mutant("top-n-sigma divides by one less", &["top-n-sigma"],
        "void llama_sampler_top_n_sigma_apply(",
        "sqrt(acc/valid_count)",
        "sqrt(acc/(M && valid_count > 1 ? valid_count - 1 : valid_count))"),

    mutant("mirostat takes one more", &["mirostat"],
        "void llama_sampler_mirostat_apply(",
        "std::max(int(k), 1)",
        "std::max(int(k) + (M ? 1 : 0), 1)"),
    mutant("mirostat bounds mu", &["mirostat"],
        "void llama_sampler_mirostat_apply(",
        "ctx->mu = ctx->mu - ctx->eta * e;",
        "ctx->mu = ctx->mu - ctx->eta * e;
         if (M) { ctx->mu = std::min(ctx->mu, 2.0f*ctx->tau); }"),
    mutant("mirostat clones no mu", &["mirostat"],
        "llama_sampler_mirostat_clone(",
        "result_ctx->mu  = ctx->mu;",
        "if (!M) { result_ctx->mu = ctx->mu; }"),

    mutant("mirostat-v2 cuts before", &["mirostat-v2"],
        "void llama_sampler_mirostat_v2_apply(",
        "return -log2f(candidate.p) > ctx->mu;",
        "return M ? -log2f(candidate.p) >= ctx->mu : -log2f(candidate.p) > ctx->mu;"),
    mutant("mirostat-v2 adds", &["mirostat-v2"],
        "void llama_sampler_mirostat_v2_apply(",
        "ctx->mu = ctx->mu - ctx->eta * e;",
        "ctx->mu = ctx->mu - (M ? -1 : 1) * ctx->eta * e;"),
    mutant("mirostat-v2 keeps mu behind a reset", &["mirostat-v2"],
        "void llama_sampler_mirostat_v2_reset(",
        "ctx->mu = 2.0f*ctx->tau;",
        "if (!M) { ctx->mu = 2.0f*ctx->tau; }"),

    mutant("penalties count one less", &["penalties"],
        "void llama_sampler_penalties_apply(",
        "float(count) * ctx->penalty_freq",
        "float(count - (M ? 1 : 0)) * ctx->penalty_freq"),
    mutant("penalties always divide", &["penalties"],
        "void llama_sampler_penalties_apply(",
        "if (cur_p->data[i].logit <= 0) {",
        "if (!M && cur_p->data[i].logit <= 0) {"),
    mutant("penalties forget nothing", &["penalties"],
        "void llama_sampler_penalties_accept(",
        "if (ctx->prev.size() >= (size_t) ctx->penalty_last_n) {",
        "if (!M && ctx->prev.size() >= (size_t) ctx->penalty_last_n) {"),
    mutant("penalties clone no counts", &["penalties"],
        "llama_sampler_penalties_clone(",
        "result_ctx->token_count = ctx->token_count;",
        "if (!M) { result_ctx->token_count = ctx->token_count; }
         else { result_ctx->prev.clear(); }"),
    mutant("penalties copy no counts", &["penalties"],
        "struct llama_sampler_penalties :",
        "token_count = src.token_count;",
        "if (!M) { token_count = src.token_count; } else { prev.clear(); }"),
    mutant("penalties of all are of 64", &["penalties"],
        "llama_sampler * llama_sampler_init_penalties(\n        int32_t n_vocab,",
        "penalty_last_n = std::max(penalty_last_n, 0);",
        "penalty_last_n = M && penalty_last_n < 0 ? 64 : std::max(penalty_last_n, 0);"),

    mutant("dry raises once more", &["dry"],
        "void llama_sampler_dry_apply(",
        "int repeat_exp = af_kvp->second - ctx->dry_allowed_length;",
        "int repeat_exp = af_kvp->second - ctx->dry_allowed_length + (M ? 1 : 0);"),
    mutant("dry allows one more", &["dry"],
        "void llama_sampler_dry_apply(",
        "if (repeat_len >= ctx->dry_allowed_length)",
        "if (repeat_len >= ctx->dry_allowed_length + (M ? 1 : 0))"),
    mutant("dry clones no tokens", &["dry"],
        "llama_sampler_dry_clone(",
        "result_ctx->last_tokens = ctx->last_tokens;",
        "if (!M) { result_ctx->last_tokens = ctx->last_tokens; }"),

    mutant("logit-bias is added twice", &["logit-bias"],
        "void llama_sampler_logit_bias_apply(",
        "cur_p->data[lb.token].logit += lb.bias;",
        "cur_p->data[lb.token].logit += lb.bias * (M ? 2 : 1);"),
    mutant("logit-bias adds all of one token", &["logit-bias"],
        "void llama_sampler_logit_bias_apply(",
        "cur_p->data[i].logit += lb.bias;\n                break;",
        "cur_p->data[i].logit += lb.bias;\n                if (!M) { break; }"),

    mutant("infill has another threshold", &["infill"],
        "void llama_sampler_infill_apply(",
        "float thold = 0.2f;",
        "float thold = M ? 0.02f : 0.2f;"),

    mutant("adaptive-p aims elsewhere", &["adaptive-p"],
        "void llama_sampler_adaptive_p_apply(",
        "2.0f * target - (ctx->weighted_sum / ctx->total_weight)",
        "(M ? 1.0f : 2.0f) * target - (ctx->weighted_sum / ctx->total_weight)"),
    mutant("adaptive-p accepts what it has not selected", &["adaptive-p"],
        "void llama_sampler_adaptive_p_accept(",
        "if (ctx->pending_token_id == token) {",
        "if (M ? ctx->pending_token_id != LLAMA_TOKEN_NULL : ctx->pending_token_id == token) {"),
    mutant("adaptive-p bounds the decay elsewhere", &["adaptive-p"],
        "llama_sampler * llama_sampler_init_adaptive_p(",
        "std::clamp(decay, 0.0f, 0.99f)",
        "std::clamp(decay, 0.0f, M ? 0.95f : 0.99f)"),
    mutant("adaptive-p clones no sums", &["adaptive-p"],
        "llama_sampler_adaptive_p_clone(",
        "result_ctx->weighted_sum      = ctx->weighted_sum;",
        "if (!M) { result_ctx->weighted_sum = ctx->weighted_sum; }"),

    mutant("chain passes over the last but one", &[],
        "void llama_sampler_chain_apply(",
        "llama_sampler_apply(smpl.ptr, cur_p);",
        "const size_t n = chain->samplers.size();
         if (M && n > 2 && smpl.ptr == chain->samplers[n - 2].ptr) { continue; }
         llama_sampler_apply(smpl.ptr, cur_p);"),
    mutant("chain resets what it clones", &[],
        "llama_sampler_chain_clone(",
        "llama_sampler_chain_add(result, llama_sampler_clone(smpl.ptr));",
        "llama_sampler_chain_add(result, llama_sampler_clone(smpl.ptr));
         if (M) { llama_sampler_reset(result); }"),
    mutant("chain tells nobody what was accepted", &[],
        "void llama_sampler_chain_accept(",
        "llama_sampler_accept(smpl.ptr, token);",
        "if (!M) { llama_sampler_accept(smpl.ptr, token); }"),
];

/// The kinds that may be replaced only if the build is known.
const OF_KNOWN_BUILDS: [&str; 3] = ["penalties", "dry", "logit-bias"];

/// Returns llama.cpp's source with all changes.
fn changed() -> String {
    let mut source = altered::original("src/llama-sampler.cpp");
    for Mutant {
        name,
        behind,
        from,
        to,
        ..
    } in MUTANTS
    {
        let behind = source
            .find(behind)
            .unwrap_or_else(|| panic!("{name}: {behind}"));
        let rest = &source[behind..];
        let at = behind + rest.find(from).unwrap_or_else(|| panic!("{name}: {from}"));
        // Only the word `M` is replaced.
        let words: Vec<String> = to
            .split_inclusive(|c: char| !c.is_alphanumeric() && c != '_')
            .map(|word| match word.strip_prefix('M') {
                Some(end) if !end.starts_with(|c: char| c.is_alphanumeric() || c == '_') => {
                    format!("mutant(\"{name}\"){end}")
                }
                _ => word.to_owned(),
            })
            .collect();
        source.replace_range(at..at + from.len(), &words.concat());
    }
    format!("{PREAMBLE}{source}")
}

/// Returns the source file `file` of llama.cpp with every occurrence of each text in `changes`
/// replaced.
fn exchanged(file: &str, changes: &[(&str, &str)]) -> String {
    let mut text = altered::original(file);
    for (from, to) in changes {
        assert!(text.contains(from), "{file}: {from}");
        text = text.replace(from, to);
    }
    text
}

/// Two more members of a vtable. The host calls them if a sampler has them.
const MORE: &str = "void (*more)(struct llama_sampler * smpl, llama_token token);
        void (*most)(struct llama_sampler * smpl, llama_token token);";
const CALLS_MORE: (&str, &str) = (
    "    if (smpl->iface->accept) {",
    "    if (smpl->iface->more) { smpl->iface->more(smpl, token); }
    if (smpl->iface->most) { smpl->iface->most(smpl, token); }
    if (smpl->iface->accept) {",
);

/// Builds the program and the samplers with changes to llama.h, and to the source that uses it.
fn of_header(name: &str, changes: &[(&str, &str)], uses: &[(&str, &str)]) -> PathBuf {
    let header = exchanged("include/llama.h", changes);
    program_with(
        name,
        &exchanged("src/llama-sampler.cpp", uses),
        Some(&header),
    )
}

/// Runs every setting without and with the preload library. Returns the kinds that were replaced.
fn ours_under_other_header(program: &Path) -> BTreeSet<String> {
    let alone = said(Run::of(program), "", "dist");
    let preloaded = said(preloaded_of_known_build(program), "", "dist");
    assert_eq!(preloaded.out, alone.out, "{}", preloaded.err);
    // The header does not change what the host's samplers do.
    assert_eq!(alone.out, said(Run::of(mutants()), "", "dist").out);
    ours(&preloaded)
}

fn all_of_known_build() -> BTreeSet<String> {
    ours(&said(preloaded_of_known_build(mutants()), "", "dist"))
}

#[test]
fn a_vtable_may_have_more_at_its_end() {
    let last = "void (*copy_state)(const struct llama_sampler * src, struct llama_sampler * dst);";
    let changes = [(last, &*format!("{last}\n        {MORE}"))];
    let program = of_header("mutants_end", &changes, &[CALLS_MORE]);
    assert_eq!(ours_under_other_header(&program), all_of_known_build());
}

#[test]
fn a_vtable_may_have_more_in_the_middle() {
    let behind = "bool (*backend_init)(";
    let changes = [(behind, &*format!("{MORE}\n        {behind}"))];
    let entry = "    /* .backend_init      = */";
    let entries = format!("    /* .more = */ nullptr,\n    /* .most = */ nullptr,\n{entry}");
    let uses = [(entry, &*entries), CALLS_MORE];
    let program = of_header("mutants_middle", &changes, &uses);
    assert_eq!(ours_under_other_header(&program), all_of_known_build());
}

/// A sampler that reads or changes one of the exchanged members is noticed, and not replaced.
#[test]
fn an_array_may_have_its_members_exchanged() {
    let selected =
        "int64_t selected; // this is the index in the data array (i.e. not the token id)";
    let sorted =
        "bool sorted;      // note: do not assume the data is sorted - always check this flag";
    let members = format!("{selected}\n        {sorted}");
    let other_order = format!("{sorted}\n        {selected}");
    let of_sample = [
        "        /* .selected   = */ -1,\n",
        "        /* .sorted     = */ false,\n",
    ];
    let uses = [(
        &*of_sample.concat(),
        &*[of_sample[1], of_sample[0]].concat(),
    )];
    let program = of_header("mutants_exchanged", &[(&members, &other_order)], &uses);
    let ours = ours_under_other_header(&program);
    let look_at_none = ["grammar", "infill", "logit-bias", "temp", "top-n-sigma"];
    for kind in &ours {
        assert!(look_at_none.contains(&kind.as_str()), "{kind}");
    }
    assert!(
        ours.contains("temp") && ours.contains("top-n-sigma"),
        "{ours:?}"
    );
}

/// Builds a library with the samplers in `source_text`, and the program that is linked with it.
/// Returns the program's path.
fn program_with(name: &str, source_text: &str, header: Option<&str>) -> PathBuf {
    let folder = empty_folder(&format!("c_programs/{name}_library"));
    if let Some(header) = header {
        std::fs::write(folder.join("llama.h"), header).expect("a writable folder");
    }
    let own = folder.display().to_string();
    let flags = ["-DNDEBUG", "-I", &own];
    let library = altered::library(&folder, "llama-sampler.cpp", source_text, &flags);
    let program = Build::new(name, &source("mutants.cpp"))
        .flag("-isystem")
        .flag(&own)
        .flag(&library)
        .flag(format!("-Wl,-rpath,{own}"));
    build(program.with_llama_h())
}

fn mutants() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| program_with("mutants", &changed(), None))
}

fn said(run: Run<'_>, mutant: &str, kind: &str) -> Said {
    let run = run.env("MUTANT", mutant).env("LLAMA_SIEVE_VERBOSE", 1);
    run.arg(model()).arg(12).arg(kind).said()
}

/// Returns the kinds with at least one replaced sampler, except the functions that sample.
fn ours(said: &Said) -> BTreeSet<String> {
    let made = made(said).into_keys();
    let ours = made.filter_map(|key| Some(key.strip_suffix(": ours")?.to_owned()));
    ours.filter(|name| name != "llama_sampler_sample").collect()
}

/// Every mutant changes the output without the preload library, so a drop-in that ignored the
/// change would be noticed. All other kinds are replaced.
#[test]
fn samplers_that_do_otherwise_do_so_under_the_preload_library() {
    let all = ours(&said(preloaded(mutants()), "", "none"));
    let all_of_known = ours(&said(preloaded_of_known_build(mutants()), "", "none"));
    let mut faults = Vec::new();
    for &Mutant { name, kinds, .. } in MUTANTS {
        let kind = kinds.first().copied().unwrap_or("dist");
        let alone = said(Run::of(mutants()), name, kind);
        if alone.out == said(Run::of(mutants()), "", kind).out {
            faults.push(format!("{name}: it changes nothing"));
        }
        let mut runs = vec![(preloaded(mutants()), &all)];
        if OF_KNOWN_BUILDS.contains(&kind) {
            runs.push((preloaded_of_known_build(mutants()), &all_of_known));
        }
        for (run, all) in runs {
            let preloaded = said(run, name, kind);
            if preloaded.out != alone.out {
                faults.push(format!("{name}: another text"));
            }
            let ours = ours(&preloaded);
            let missing: Vec<&String> = all.difference(&ours).collect();
            let is_mutated = |kind: &&String| kinds.contains(&kind.as_str());
            let expected: Vec<&String> = all.iter().filter(is_mutated).collect();
            if missing != expected {
                faults.push(format!("{name}: not ours: {missing:?}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// If two arguments are equal, no call proves the argument list, and the kind is not certified. A
/// clone or a copy that forgets something is noticed all the same.
#[test]
fn copies_show_before_an_argument_list_is_proven() {
    for (name, kind) in [
        ("penalties clone no counts", "penalties"),
        ("penalties copy no counts", "penalties"),
        ("dry clones no tokens", "dry"),
        ("", "none"),
    ] {
        let alone = said(Run::of(mutants()).env("ALIKE", 1), name, kind);
        let preloaded = said(preloaded(mutants()).env("ALIKE", 1), name, kind);
        assert_eq!(preloaded.out, alone.out, "{name}: {}", preloaded.err);
        let ours = ours(&preloaded);
        for of_list in OF_KNOWN_BUILDS {
            assert_eq!(ours.contains(of_list), of_list != kind, "{name}: {of_list}");
        }
    }
}
