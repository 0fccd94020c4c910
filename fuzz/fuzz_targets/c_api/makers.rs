//! Constructors of samplers, and chains of the new samplers.

use std::ffi::CString;
use std::ptr::{null, null_mut};

use llama_sieve::ffi::bans::{llama_sieve_init_ban_strings, llama_sieve_init_ban_strings_bias};
use llama_sieve::ffi::loops::{llama_sieve_init_loop_breaker, llama_sieve_loop_params};
use llama_sieve::ffi::samplers::*;
use llama_sieve::ffi::sieve::*;
use llama_sieve::ffi::trie::*;
use llama_sieve_fuzz::params::CParams;
use vendor_llama_cpp::sys;

use crate::answers::assert_reason;
use crate::calls::Maker;
use crate::grammars::{grammar, schema};
use crate::support::family::vocabulary;
use crate::tries::{mode_of, unbind};
use crate::{Smp, World};

impl World {
    /// Makes a sampler, and keeps it if the constructor succeeds.
    ///
    /// # Safety
    /// All objects must be alive.
    pub(crate) unsafe fn make(&mut self, maker: &Maker) {
        let vocab = |given: bool| if given { vocabulary().cast() } else { null() };
        let (mut is_trie, mut is_ours, mut may_fail) = (false, true, false);
        let is_grammar = matches!(maker, Maker::Grammar { .. } | Maker::Schema { .. });
        // SAFETY: the vocabulary lives as long as the process; arrays and strings live during the
        // calls.
        let ptr = unsafe {
            match maker {
                Maker::Greedy => llama_sieve_init_greedy(),
                Maker::Dist(seed) => llama_sieve_init_dist(*seed),
                Maker::TopK(k) => llama_sieve_init_top_k(k.0),
                Maker::TopP(p, keep) => llama_sieve_init_top_p(p.get(), keep.size()),
                Maker::MinP(p, keep) => llama_sieve_init_min_p(p.get(), keep.size()),
                Maker::Typical(p, keep) => llama_sieve_init_typical(p.get(), keep.size()),
                Maker::Temp(t) => llama_sieve_init_temp(t.get()),
                Maker::TopNSigma(n) => llama_sieve_init_top_n_sigma(n.get()),
                Maker::TempExt(t, d, e) => llama_sieve_init_temp_ext(t.get(), d.get(), e.get()),
                Maker::Xtc(p, t, keep, seed) => {
                    llama_sieve_init_xtc(p.get(), t.get(), keep.size(), *seed)
                }
                Maker::Mirostat(n, seed, tau, eta, m) => {
                    llama_sieve_init_mirostat(n.0, *seed, tau.get(), eta.get(), m.0)
                }
                Maker::MirostatV2(seed, tau, eta) => {
                    llama_sieve_init_mirostat_v2(*seed, tau.get(), eta.get())
                }
                Maker::Penalties(n, last, r, f, p) => {
                    llama_sieve_init_penalties(n.0, last.0, r.get(), f.get(), p.get())
                }
                Maker::Dry {
                    vocab: given,
                    numbers: (multiplier, base, allowed, last),
                    breakers,
                } => {
                    let mut texts = [c"\n".as_ptr(), null(), c"".as_ptr(), c"the LORD".as_ptr()];
                    let (pointer, n) = match breakers {
                        Some(n) => (texts.as_mut_ptr(), usize::from(n % 5)),
                        None => (null_mut(), 3),
                    };
                    llama_sieve_init_dry(
                        vocab(*given),
                        multiplier.get(),
                        base.get(),
                        allowed.0,
                        last.0,
                        pointer,
                        n,
                    )
                }
                Maker::TrieStrings {
                    vocab: given,
                    first,
                    n,
                    mode,
                } => {
                    (is_trie, may_fail) = (true, true);
                    let texts = [
                        c" Moses".as_ptr(),
                        c"\n".as_ptr(),
                        c"the LORD".as_ptr(),
                        null(),
                        c" Aaron".as_ptr(),
                        c"".as_ptr(),
                        c"\xFF".as_ptr(),
                    ];
                    let some = &texts[usize::from(*first) % texts.len()..];
                    let (pointer, n) = match n {
                        Some(n) => (some.as_ptr(), usize::from(*n) % (some.len() + 1)),
                        None => (null(), 3),
                    };
                    llama_sieve_init_trie_strings(vocab(*given), pointer, n, mode_of(mode.0))
                }
                Maker::AdaptiveP(target, decay, seed) => {
                    llama_sieve_init_adaptive_p(target.get(), decay.get(), *seed)
                }
                Maker::LogitBias {
                    biases: Some(biases),
                    n,
                } => {
                    let biases: Vec<_> = biases
                        .iter()
                        .map(|&(token, bias)| sys::llama_logit_bias {
                            token: token.into(),
                            bias: bias.value(),
                        })
                        .collect();
                    let n = n.0.min(biases.len() as i32);
                    llama_sieve_init_logit_bias(0, n, biases.as_ptr().cast())
                }
                Maker::LogitBias { biases: None, n } => llama_sieve_init_logit_bias(0, n.0, null()),
                Maker::Infill { vocab: given } => llama_sieve_init_infill(vocab(*given)),
                Maker::TailFree(z, keep) => llama_sieve_init_tail_free(z.get(), keep.size()),
                Maker::Softmax => llama_sieve_init_softmax(),
                Maker::TopA(a) => llama_sieve_init_top_a(a.get()),
                Maker::EpsilonCutoff(epsilon) => llama_sieve_init_epsilon_cutoff(epsilon.get()),
                Maker::EtaCutoff(eta) => llama_sieve_init_eta_cutoff(eta.get()),
                Maker::PLess(normalised) => llama_sieve_init_p_less(*normalised),
                Maker::TopH(alpha) => llama_sieve_init_top_h(alpha.get()),
                Maker::MinK(tau) => llama_sieve_init_min_k(tau.get()),
                Maker::Quadratic(factor, curve) => {
                    llama_sieve_init_quadratic(factor.get(), curve.get())
                }
                Maker::Trie {
                    vocab: given,
                    payload,
                    mode,
                } => {
                    (is_trie, may_fail) = (true, true);
                    // A C string ends at the first NUL, so the payload must contain none.
                    let json = payload.bytes().map(|mut bytes| {
                        bytes.retain(|&byte| byte != 0);
                        CString::new(bytes).expect("no NUL")
                    });
                    let json = json.as_ref().map_or(null(), |json| json.as_ptr());
                    llama_sampler_init_token_trie(vocab(*given), json, mode_of(mode.0))
                }
                Maker::Slot { vocab: given } => {
                    is_trie = true;
                    llama_sieve_init_trie_slot(vocab(*given))
                }
                Maker::Sieve(changes) => {
                    let params = changes.as_ref().map(|changes| CParams::new(changes));
                    let ptr = llama_sieve_init_sampler(
                        params.as_ref().map_or(null(), |p| &raw const p.raw),
                    );
                    assert_eq!(
                        ptr.is_null(),
                        !params.is_some_and(|params| params.is_valid())
                    );
                    may_fail = true;
                    ptr
                }
                Maker::Grammar {
                    vocab: given,
                    text,
                    root,
                    lazy,
                } => {
                    may_fail = true;
                    grammar(vocab(*given), text, root, lazy.as_ref())
                }
                Maker::Bans {
                    vocab: given,
                    texts,
                    flags,
                    bias,
                } => {
                    may_fail = true;
                    let texts: Option<Vec<CString>> = texts.as_ref().map(|texts| {
                        let text = |text: &[u8; 3]| {
                            let n = text.iter().position(|&byte| byte == 0).unwrap_or(3);
                            CString::new(&text[..n]).expect("no NUL")
                        };
                        texts.iter().map(text).collect()
                    });
                    let pointers: Option<Vec<_>> = texts
                        .as_ref()
                        .map(|texts| texts.iter().map(|text| text.as_ptr()).collect());
                    let (pointer, n) = match &pointers {
                        Some(pointers) => (pointers.as_ptr(), pointers.len()),
                        None => (null(), 3),
                    };
                    let flags = u32::from(*flags);
                    match bias {
                        Some(bias) => llama_sieve_init_ban_strings_bias(
                            vocab(*given),
                            pointer,
                            n,
                            flags,
                            bias.get(),
                        ),
                        None => llama_sieve_init_ban_strings(vocab(*given), pointer, n, flags),
                    }
                }
                Maker::Loops {
                    numbers: [action, max_period, min_tokens],
                    temperature,
                    tokens,
                    vocab: given,
                } => {
                    may_fail = true;
                    let (pointer, n) = match tokens {
                        Some(tokens) => (tokens.as_ptr(), tokens.len()),
                        None => (null(), 3),
                    };
                    llama_sieve_init_loop_breaker(&llama_sieve_loop_params {
                        struct_size: size_of::<llama_sieve_loop_params>(),
                        action: action.0,
                        max_period: max_period.0,
                        min_tokens: min_tokens.0,
                        temperature: temperature.get(),
                        tokens: pointer,
                        n_tokens: n,
                        vocab: vocab(*given),
                    })
                }
                Maker::Schema {
                    vocab: given,
                    text,
                    flags,
                } => {
                    may_fail = true;
                    schema(vocab(*given), text, *flags)
                }
                Maker::BuiltIn => {
                    is_ours = false;
                    sys::llama_sampler_init_temp(0.5).cast()
                }
            }
        };
        if ptr.is_null() {
            assert!(may_fail);
            return assert_reason();
        }
        let puts_back = matches!(maker, Maker::Infill { .. } | Maker::Loops { .. });
        self.puts_back |= is_trie || is_grammar || puts_back;
        self.samplers.push(Smp {
            ptr,
            is_trie,
            is_grammar,
            is_ours,
        });
        if is_trie {
            self.query(ptr);
        }
    }

    /// Adds some of the samplers to a chain of the host.
    ///
    /// # Safety
    /// All objects must be alive.
    pub(crate) unsafe fn chain(&mut self, members: &[u8]) {
        // SAFETY: each member is taken over once; a chain of a chain is left out.
        unsafe {
            let chain = sys::llama_sampler_chain_init(sys::llama_sampler_chain_default_params());
            for &which in members {
                let ptr = self.smp(which);
                let Some(at) = self
                    .samplers
                    .iter()
                    .position(|smp| smp.ptr == ptr && smp.is_ours)
                else {
                    continue;
                };
                let member = self.samplers.remove(at);
                // The sampler still lives, but from now on the chain changes its state.
                self.bound
                    .retain(|handle, bound| *bound != member.ptr || !unbind(handle));
                sys::llama_sampler_chain_add(chain, member.ptr.cast());
            }
            self.samplers.push(Smp {
                ptr: chain.cast(),
                is_trie: false,
                is_grammar: false,
                is_ours: false,
            });
        }
    }
}
