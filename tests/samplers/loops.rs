//! Tests the loop breaker from C: the parameters that it refuses, the candidates that it leaves,
//! and texts without loops.

use llama_sieve::ffi::host::llama_h::llama_sampler;
use llama_sieve::ffi::loops::*;
use llama_sieve::last_error;
use vendor_llama_cpp::{Model, sys};

use crate::support::family::vocabulary;
use crate::support::{Array, HostSampler, fresh_rng, trained_model};

/// Returns the default parameters.
fn params() -> llama_sieve_loop_params {
    llama_sieve_loop_params {
        struct_size: size_of::<llama_sieve_loop_params>(),
        action: 0,
        max_period: 0,
        min_tokens: 0,
        temperature: 0.0,
        tokens: std::ptr::null(),
        n_tokens: 0,
        vocab: std::ptr::null(),
    }
}

fn made(params: &llama_sieve_loop_params) -> *mut llama_sampler {
    // SAFETY: a struct of that size, with valid pointers.
    unsafe { llama_sieve_init_loop_breaker(params) }
}

fn masked(sampler: &HostSampler, n: usize) -> Vec<i32> {
    let mut array = Array::of_logits(std::iter::repeat_n(1.0, n));
    sampler.apply(&mut array);
    let masked = array.data.iter().filter(|c| c.logit == f32::NEG_INFINITY);
    masked.map(|c| c.id).collect()
}

/// Loops of a word, a list, a sentence, a paragraph and a page, each after a text without loops.
#[test]
fn loops_are_found_at_the_third_copy_and_not_before() {
    let mut rng = fresh_rng("loops");
    for period in [1, 4, 16, 100, 1000] {
        for min_tokens in [1, 128] {
            let sampler = HostSampler::new(made(&llama_sieve_loop_params {
                min_tokens,
                ..params()
            }));
            assert_eq!(sampler.name(), "loop-breaker");
            for i in 0..2000 {
                sampler.accept(5000 + i);
            }
            let copy: Vec<i32> = (0..period).map(|i| 2 * i + rng.below(2) as i32).collect();
            let enough = (3 * period as usize).max(min_tokens as usize);
            for (i, &token) in copy.iter().cycle().take(enough + 9).enumerate() {
                sampler.accept(token);
                let next = copy[(i + 1) % copy.len()];
                let expected = if i + 1 >= enough {
                    vec![next]
                } else {
                    Vec::new()
                };
                assert_eq!(masked(&sampler, 2100), expected, "{period}: {i}");
            }
            let clone = sampler.clone();
            clone.accept(4999);
            assert!(masked(&clone, 2100).is_empty() && masked(&sampler, 2100).len() == 1);
            sampler.reset();
            assert!(masked(&sampler, 2100).is_empty());
        }
    }
}

/// Without a loop every bit of the array stays unchanged, whatever it contains.
#[test]
fn off_a_loop_nothing_is_changed() {
    let mut rng = fresh_rng("off a loop");
    let sampler = HostSampler::new(made(&params()));
    for _ in 0..3000 {
        let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0];
        let logits = (0..20).map(|_| match rng.chance(0.2) {
            true => rng.pick(&odd),
            false => rng.normal(),
        });
        let input = Array::of_logits(logits.collect::<Vec<f32>>());
        let mut output = input.clone();
        sampler.apply(&mut output);
        assert!(crate::support::compare::same(&output, &input).is_ok());
        sampler.accept(rng.below(1000) as i32);
    }
}

#[test]
fn the_end_is_one_of_the_vocabulary() {
    let sampler = HostSampler::new(made(&llama_sieve_loop_params {
        action: LLAMA_SIEVE_LOOP_END,
        min_tokens: 1,
        vocab: vocabulary().cast(),
        ..params()
    }));
    for _ in 0..3 {
        sampler.accept(77);
    }
    let mut array = Array::of_logits(std::iter::repeat_n(1.0, 2048));
    sampler.apply(&mut array);
    for candidate in &array.data {
        // SAFETY: a live vocabulary.
        let is_end = unsafe { sys::llama_vocab_is_eog(vocabulary(), candidate.id) };
        assert_eq!(candidate.logit > f32::NEG_INFINITY, is_end);
    }
}

#[test]
fn what_is_wrong_is_refused_by_name() {
    let token = 5;
    let with_token = llama_sieve_loop_params {
        action: LLAMA_SIEVE_LOOP_FORCE,
        tokens: &raw const token,
        n_tokens: 1,
        ..params()
    };
    let cases = [
        (
            llama_sieve_loop_params {
                struct_size: 3,
                ..params()
            },
            "struct_size",
        ),
        (
            llama_sieve_loop_params {
                action: 4,
                ..params()
            },
            "action is 4",
        ),
        (
            llama_sieve_loop_params {
                action: -1,
                ..params()
            },
            "action is -1",
        ),
        (
            llama_sieve_loop_params {
                max_period: -1,
                ..params()
            },
            "max_period",
        ),
        (
            llama_sieve_loop_params {
                max_period: 1025,
                ..params()
            },
            "max_period",
        ),
        (
            llama_sieve_loop_params {
                min_tokens: i32::MIN,
                ..params()
            },
            "min_tokens",
        ),
        (
            llama_sieve_loop_params {
                min_tokens: 65_537,
                ..params()
            },
            "min_tokens",
        ),
        (
            llama_sieve_loop_params {
                action: 1,
                temperature: f32::NAN,
                ..params()
            },
            "temperature",
        ),
        (
            llama_sieve_loop_params {
                action: 1,
                temperature: 1.0,
                ..params()
            },
            "temperature",
        ),
        (
            llama_sieve_loop_params {
                n_tokens: 0,
                ..with_token
            },
            "no tokens",
        ),
        (
            llama_sieve_loop_params {
                n_tokens: 1025,
                ..with_token
            },
            "LLAMA_SIEVE_LOOP_MAX_FORCED",
        ),
        (
            llama_sieve_loop_params {
                tokens: std::ptr::null(),
                ..with_token
            },
            "tokens is NULL",
        ),
        (
            llama_sieve_loop_params {
                action: 3,
                ..params()
            },
            "vocab is NULL",
        ),
    ];
    for (params, told) in &cases {
        assert!(made(params).is_null(), "{told}");
        assert!(
            last_error::get().contains(told),
            "{told}: {}",
            last_error::get()
        );
    }
    drop(HostSampler::new(made(&with_token)));
    // SAFETY: NULL is allowed.
    drop(HostSampler::new(unsafe {
        llama_sieve_init_loop_breaker(std::ptr::null())
    }));
}

/// Appends the files below a folder whose names have one of these endings, in the order of their
/// names.
fn files(folder: &std::path::Path, ends: &[&str], to: &mut Vec<std::path::PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    let mut entries: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        let name = path.to_string_lossy();
        if path.is_dir() && !path.is_symlink() {
            files(&path, ends, to);
        } else if ends.iter().any(|end| name.ends_with(end)) {
            to.push(path);
        }
    }
}

/// True if the newest tokens are a repetition of at least three copies and at least 128 tokens. A
/// naive search: compares copy by copy, for each period.
fn repeats(tokens: &[i32]) -> bool {
    (1..=1024).any(|period| {
        let n = 128.max(3 * period);
        let newest = tokens.len().checked_sub(n).map(|from| &tokens[from..]);
        newest.is_some_and(|newest| newest[period..] == newest[..n - period])
    })
}

/// Counts repetitions in real texts: those in the folders that LLAMA_SIEVE_TEST_TEXTS lists,
/// separated by colons. Prints each repetition, found with three copies or the default number, with
/// its position. The sampler must find one exactly where the naive search does.
/// LLAMA_SIEVE_TEST_VOCABULARIES names a vocabulary to use in place of the trained model's.
#[test]
#[ignore = "it wants folders of texts: LLAMA_SIEVE_TEST_TEXTS"]
fn texts_of_others_hold_few_repetitions() {
    let folders = std::env::var("LLAMA_SIEVE_TEST_TEXTS").expect("folders are named");
    let most = crate::support::number_from_env("LLAMA_SIEVE_TEST_TOKENS", 10_000_000);
    let vocabulary = std::env::var("LLAMA_SIEVE_TEST_VOCABULARIES");
    let model = match vocabulary {
        Ok(path) => Model::load_vocabulary(path),
        Err(_) => Model::load_vocabulary(trained_model()),
    };
    let model = model.expect("the model loads");
    let ends = [
        ".html", ".txt", ".md", ".json", ".py", ".rs", ".js", ".c", ".h", ".ts", ".tex",
    ];
    for folder in folders.split(':') {
        let mut paths = Vec::new();
        files(std::path::Path::new(folder), &ends, &mut paths);
        let (mut n, mut bytes, mut n_files, mut found) = (0, 0, 0, 0);
        for path in paths {
            let Ok(text) = std::fs::read_to_string(&path) else {
                continue;
            };
            let sampler = HostSampler::new(made(&params()));
            let mut array = Array::of_logits(std::iter::repeat_n(1.0, model.n_vocab()));
            let (mut is_in, mut tokens) = (false, Vec::new());
            // In pieces that the tokenizer handles quickly.
            for line in text.split_inclusive('\n') {
                for token in model.tokenize(line, false) {
                    sampler.accept(token);
                    tokens.push(token);
                    let masked = masks(&sampler, &mut array);
                    let at = tokens.len();
                    assert_eq!(masked, repeats(&tokens), "{}: token {at}", path.display());
                    if masked && !is_in {
                        found += 1;
                        let from: String = line.chars().take(50).collect();
                        println!("{}: token {at}: {from:?}", path.display());
                    }
                    is_in = masked;
                }
            }
            n += tokens.len();
            bytes += text.len();
            n_files += 1;
            if n >= most {
                break;
            }
        }
        println!("{folder}: {n_files} files, {bytes} bytes, {n} tokens: {found} repetitions");
    }
}

/// True if the sampler bans a token of the array, which is then restored. Then, and only then, the
/// array must no longer be marked as sorted.
fn masks(sampler: &HostSampler, array: &mut Array) -> bool {
    array.sorted = true;
    sampler.apply(array);
    if array.sorted {
        return false;
    }
    let banned = array.data.iter_mut().find(|c| c.logit == f32::NEG_INFINITY);
    banned.expect("a token is banned").logit = 1.0;
    true
}
