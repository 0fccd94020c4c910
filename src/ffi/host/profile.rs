//! Determines by trial the arithmetic of the host where builds differ (see [`HostProfile`]).
//!
//! A few of the host's samplers are applied to a few arrays. This library's samplers are applied to
//! the same arrays under one profile after another. The profile with equal results, bit for bit, is
//! the host's. The arrays distinguish every two known profiles. The fused expressions are
//! determined first, on arrays without ties, and then, with these known, the order of ties.
//!
//! A profile that is found in this way does not prove that all samplers are equal: the certificate
//! compares each kind of sampler, on other arrays.
//!
//! The host's functions are called outside the guard, so that their exceptions pass through.

use std::mem::{self, transmute};

use crate::ffi::guard::guard;
use crate::ffi::host::build::{Build, named};
use crate::ffi::host::built_ins::{Free, free_of};
use crate::ffi::host::llama_h::{Apply, llama_sampler, llama_token_data_array};
use crate::ffi::host::{Host, host_function};
use crate::host_profile::{Fusion, HostProfile, Libm, OneCandidateDraw, Sort};
use crate::lcg::Lcg;
use crate::quoted::quoted;
use crate::samplers::{Dist, MirostatV2, Penalties, TempExt, TopK, Typical};
use crate::token::{Token, TokenData};
use crate::{Candidates, Sampler, environment, log};

/// A sampler of the host, and this library's with the same arguments.
struct Trial {
    name: &'static str,
    /// Makes the host's sampler, for this build if it is known.
    make: fn(&Host, Option<Build>) -> Result<*mut llama_sampler, String>,
    /// Returns the results of this library's sampler on arrays.
    ours: fn(&[Vec<TokenData>]) -> Left,
    arrays: fn(&mut Lcg) -> Vec<Vec<TokenData>>,
    /// True if the arrays are marked as sorted.
    sorted: bool,
}

/// The results for each array: the bits of all remaining candidates, and the index of the chosen
/// one.
type Left = Vec<(Vec<[u32; 3]>, Option<usize>)>;

/// Calls the host's constructor with this name and these types and arguments.
macro_rules! make {
    ($host:expr, $constructor:literal, $($argument:expr => $kind:ty),*) => {{
        type Make = unsafe extern "C-unwind" fn($($kind),*) -> *mut llama_sampler;
        let make = host_function!($host, $constructor, Make);
        // SAFETY: the host's constructor; if its list has changed between builds, the build is
        // known.
        Ok(unsafe { make($($argument),*) })
    }};
}

fn scattered(random: &mut Lcg) -> Vec<Vec<TokenData>> {
    [17, 17, 40, 145].map(|n| distinct(n, random)).into()
}

fn alone(random: &mut Lcg) -> Vec<Vec<TokenData>> {
    [1, 17, 17].map(|n| distinct(n, random)).into()
}

/// Returns `n` candidates with different logits.
fn distinct(n: Token, random: &mut Lcg) -> Vec<TokenData> {
    let candidate = |id| TokenData::new(id, random.unit() * 16.0 - 8.0);
    (0..n).map(candidate).collect()
}

/// The trial that reveals fused expressions, except that of penalties.
static TEMP_EXT: Trial = Trial {
    name: "temp-ext",
    make: |host, _| make!(host, c"llama_sampler_init_temp_ext", 0.8 => f32, 0.3 => f32, 1.5 => f32),
    ours: |arrays| left_by_ours(TempExt::new(0.8, 0.3, 1.5), arrays, false),
    arrays: scattered,
    sorted: false,
};

static PENALTIES: Trial = Trial {
    name: "penalties",
    make: |host, build| match build.ok_or("its build is not known")? {
        build if build.penalties_take_n_vocab() => make!(
            host, c"llama_sampler_init_penalties",
            145 => i32, 8 => i32, 1.3 => f32, 0.17 => f32, 0.2 => f32
        ),
        _ => make!(
            host, c"llama_sampler_init_penalties",
            8 => i32, 1.3 => f32, 0.17 => f32, 0.2 => f32
        ),
    },
    ours: |arrays| left_by_ours(Penalties::new(0, 8, 1.3, 0.17, 0.2), arrays, false),
    arrays: scattered,
    sorted: false,
};

/// The trial that reveals the order of ties after `std::sort` and after `std::partial_sort`.
static TOP_K: Trial = Trial {
    name: "top-k",
    make: |host, _| make!(host, c"llama_sampler_init_top_k", ties::LARGEST => i32),
    ours: |arrays| left_by_ours(TopK::new(ties::LARGEST), arrays, false),
    arrays: ties::of_top_k,
    sorted: false,
};

/// The trial that reveals the order of ties after a `std::sort` of numbers that runs out of levels,
/// which distinguishes two versions of libc++. It uses arrays that are wrongly marked as sorted.
static TYPICAL: Trial = Trial {
    name: "typical",
    make: |host, _| make!(host, c"llama_sampler_init_typical", 0.9999 => f32, 64 => usize),
    ours: |arrays| left_by_ours(Typical::new(0.9999, 64), arrays, true),
    arrays: ties::of_typical,
    sorted: true,
};

static DIST: Trial = Trial {
    name: "dist",
    make: |host, _| make!(host, c"llama_sampler_init_dist", 42 => u32),
    ours: |arrays| left_by_ours(Some(Dist::new(42)), arrays, false),
    arrays: alone,
    sorted: false,
};

/// The trial that reveals the draws of `std::discrete_distribution`.
static MIROSTAT_V2: Trial = Trial {
    name: "mirostat-v2",
    make: |host, _| make!(host, c"llama_sampler_init_mirostat_v2", 42 => u32, 4.0 => f32, 0.1 => f32),
    ours: |arrays| left_by_ours(Some(MirostatV2::new(42, 4.0, 0.1)), arrays, false),
    arrays: alone,
    sorted: false,
};

/// The trial that reveals a difference in the last bit of a single value of `expf`: each
/// probability is such a value divided by the sum of all.
static EXPONENTIALS: Trial = Trial {
    arrays: |random| (0..128).map(|_| distinct(64, random)).collect(),
    ..DIST
};

/// The trial that reveals a difference in the last bit of a single value of `logf` or `powf`. It
/// uses many small arrays: a sum of few terms hides few bits, and the temperature is a power to
/// which nothing is added. The sizes differ, since the logarithm of the size occurs in all arrays
/// of that size.
static LOGARITHMS: Trial = Trial {
    name: "temp-ext",
    make: |host, _| make!(host, c"llama_sampler_init_temp_ext", 0.5 => f32, 0.5 => f32, 1.5 => f32),
    ours: |arrays| left_by_ours(TempExt::new(0.5, 0.5, 1.5), arrays, false),
    arrays: |random| (0..4096).map(|i| distinct(2 + i % 6, random)).collect(),
    sorted: false,
};

/// The kinds that call no mathematical function of the C library, and so may be certified whatever
/// the host's C library is.
pub const WITHOUT_LIBM: [&str; 5] = ["greedy", "top-k", "temp", "logit-bias", "penalties"];

/// The name of all other kinds in messages.
const OF_LIBM: &str = "all that take exponentials, logarithms or powers";

/// The seed of all arrays, found by a search: each expression of temp-ext and penalties, if only it
/// is fused, has an effect on two of them.
const BEGINNING: u32 = 3_059_284_516;

/// The tokens that are accepted before the arrays. Some occur once, some more often.
const HISTORY: [Token; 6] = [3, 1, 2, 3, 1, 3];

/// A trial, its arrays, and the results of the host's sampler, if it could be made.
struct Asked {
    trial: &'static Trial,
    arrays: Vec<Vec<TokenData>>,
    theirs: Option<Left>,
}

/// Determines the profile of the host that was bound last, unless it is known, and sets it for this
/// library's samplers. Returns the kinds of samplers that differ under every profile, or `None`
/// after an internal error.
///
/// `build` is that of the host, if it is known: penalties are not tested with an argument list that
/// may be wrong. `LLAMA_SIEVE_PROFILE` has precedence.
pub fn settle(build: Option<Build>) -> Option<Vec<&'static str>> {
    let Some(host) = Host::bound().filter(|host| host.asks_profile(build.is_some())) else {
        return Some(Vec::new());
    };
    let prepare = || {
        let text = environment::variable("LLAMA_SIEVE_PROFILE");
        match text.as_deref().map(str::parse) {
            Some(Ok(profile)) => {
                host.keep_profile(profile, true);
                return Some(None);
            }
            Some(Err(error)) => {
                let text = quoted(text.as_deref().unwrap_or_default());
                log::warn(&format!(
                    "LLAMA_SIEVE_PROFILE is not used: \"{text}\": {error}"
                ));
            }
            None => {}
        }
        let Ok(free) = free_of(&host) else {
            host.keep_profile(host.first_profile(), true);
            return Some(None);
        };
        Some(Some((free, asked())))
    };
    let Some((free, mut asked)) = guard("profile", || None, prepare)? else {
        return Some(Vec::new());
    };
    let thrown = Thrown(&host);
    for Asked {
        trial,
        arrays,
        theirs,
    } in &mut asked
    {
        if let Ok(made) = (trial.make)(&host, build) {
            // SAFETY: just made by the host, whose function this is.
            *theirs = unsafe { Made(made, free).left(arrays, trial.sorted) };
        }
    }
    mem::forget(thrown);
    let choose = || {
        let (profile, others) = chosen(host.first_profile(), &asked);
        host.keep_profile(profile, build.is_some());
        Some(others)
    };
    guard("profile", || None, choose)
}

/// Keeps the initial profile of a host if one of its exceptions passes through a trial, so that the
/// next call does not cause it again.
struct Thrown<'a>(&'a Host);

impl Drop for Thrown<'_> {
    fn drop(&mut self) {
        self.0.keep_profile(self.0.first_profile(), true);
    }
}

/// Does the work of [`settle`] with the build that the host or the user states, unless that has
/// been done.
pub fn settle_by_itself() -> Option<Vec<&'static str>> {
    let Some(host) = Host::bound().filter(|host| host.asks_profile(false)) else {
        return Some(Vec::new());
    };
    let build = || Some(Build::of(&host, named()).ok());
    settle(guard("profile", || None, build)?)
}

/// Returns the profile of clang if the host's may be that of clang or that of gcc, which only
/// penalties distinguish.
#[cfg(all(any(target_os = "linux", windows), not(miri)))]
pub fn perhaps_clangs() -> Option<HostProfile> {
    let host = Host::bound().filter(|host| host.asks_profile(true))?;
    let profile = HostProfile::current();
    (!host.asks_profile(false) && profile.fusion == Fusion::GCC).then_some(HostProfile {
        fusion: Fusion::CLANG,
        ..profile
    })
}

/// Sets the profile of the host that was bound last to the one that its penalties have shown.
#[cfg(all(any(target_os = "linux", windows), not(miri)))]
pub fn keep(profile: HostProfile) {
    if let Some(host) = Host::bound() {
        host.keep_profile(profile, true);
    }
}

fn asked() -> [Asked; 8] {
    const ALL: [&Trial; 8] = [
        &TEMP_EXT,
        &PENALTIES,
        &TOP_K,
        &TYPICAL,
        &DIST,
        &MIROSTAT_V2,
        &EXPONENTIALS,
        &LOGARITHMS,
    ];
    ALL.map(|trial| Asked {
        trial,
        arrays: (trial.arrays)(&mut Lcg(BEGINNING)),
        theirs: None,
    })
}

/// Returns the profile under which this library's results are the host's, and the kinds for which
/// no profile is found. The property that such a kind would show is that of `first`.
fn chosen(first: HostProfile, asked: &[Asked; 8]) -> (HostProfile, Vec<&'static str>) {
    let [
        temp_ext,
        penalties,
        top_k,
        typical,
        dist,
        mirostat,
        exponentials,
        logarithms,
    ] = asked;
    let mut others = Vec::new();
    let mut among = |of: &[&Asked], values: &[HostProfile], otherwise: HostProfile| {
        let fits = |profile: &&HostProfile| of.iter().all(|asked| asked.agrees(**profile));
        let found = values.iter().find(fits).copied();
        if found.is_none() {
            others.extend(of.iter().map(|asked| asked.trial.name));
        }
        found.unwrap_or(otherwise)
    };
    let values = Fusion::KNOWN.map(|(_, fusion)| HostProfile { fusion, ..first });
    let profile = among(&[temp_ext, penalties], &values, first);
    let values = Sort::BY_CANDIDATES.map(|sort| HostProfile { sort, ..profile });
    let profile = match top_k.theirs.is_some() {
        true => among(&[top_k], &values, profile),
        false => profile,
    };
    let of_numbers = HostProfile {
        sort: profile.sort.of_later_numbers(),
        ..profile
    };
    let profile = match typical.agrees(profile) || !typical.agrees(of_numbers) {
        true => profile,
        false => of_numbers,
    };
    let draw = profile.one_candidate_draw;
    let values = [true, false].map(|dist| OneCandidateDraw { dist, ..draw });
    let values = values.map(|one_candidate_draw| HostProfile {
        one_candidate_draw,
        ..profile
    });
    let profile = among(&[dist], &values, profile);
    let draw = profile.one_candidate_draw;
    let values = [false, true].map(|discrete| OneCandidateDraw { discrete, ..draw });
    let values = values.map(|one_candidate_draw| HostProfile {
        one_candidate_draw,
        ..profile
    });
    let mut profile = among(&[mirostat], &values, profile);
    let of_libm = [(dist, exponentials), (temp_ext, logarithms)];
    if of_libm
        .iter()
        .any(|(few, many)| many.shows_libm(few.agrees(profile), profile))
    {
        profile.libm = Libm::Other;
        others.push(OF_LIBM);
    }
    (profile, others)
}

impl Asked {
    /// Returns true if this library's results under `profile` equal the host's, or if the host's
    /// sampler could not be made.
    fn agrees(&self, profile: HostProfile) -> bool {
        let ours = || profile.trying(|| (self.trial.ours)(&self.arrays));
        self.theirs.as_ref().is_none_or(|theirs| *theirs == ours())
    }

    /// Returns true if the results under `profile` differ as they would with a different C library.
    /// If the results of the same kind of sampler on a few arrays differ as well (`agrees` is
    /// false), only a few results may differ: another formula or other roundings change many.
    fn shows_libm(&self, agrees: bool, profile: HostProfile) -> bool {
        const FEW_OF: usize = 16;
        let Some(theirs) = &self.theirs else {
            return false;
        };
        let ours = profile.trying(|| (self.trial.ours)(&self.arrays));
        let (mut all, mut different) = (0, 0);
        for ((mine, _), (theirs, _)) in ours.iter().zip(theirs) {
            all += mine.len();
            different += mine.iter().zip(theirs).filter(|(a, b)| a != b).count();
            different += mine.len().abs_diff(theirs.len());
        }
        different > 0 && (agrees || different < all / FEW_OF)
    }
}

/// A sampler made by the host, freed even if the host throws.
struct Made(*mut llama_sampler, Free);

impl Drop for Made {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: a live sampler of the host, not used again.
            unsafe { (self.1)(self.0) };
        }
    }
}

impl Made {
    /// Returns the sampler's results on the arrays; `None` if it cannot be applied, or leaves
    /// candidates that are not in them.
    ///
    /// # Safety
    /// The sampler is live, or NULL.
    unsafe fn left(&self, arrays: &[Vec<TokenData>], sorted: bool) -> Option<Left> {
        // SAFETY: the caller guarantees the sampler, which has a vtable. A host's entries may
        // throw.
        let (accept, apply) = unsafe {
            let iface = self.0.as_ref()?.iface.as_ref()?;
            let apply: Apply = transmute(iface.apply?);
            (iface.accept, apply)
        };
        for token in HISTORY {
            if let Some(accept) = accept {
                // SAFETY: as above.
                unsafe { accept(self.0, token) };
            }
        }
        let left = arrays.iter().map(|array| {
            let mut data = array.clone();
            let start = data.as_mut_ptr();
            let mut array = llama_token_data_array {
                data: start,
                size: data.len(),
                selected: -1,
                sorted: sorted.into(),
            };
            // SAFETY: as above, and the array is valid.
            unsafe { apply(self.0, &raw mut array) };
            let kept = data.get(..array.size).filter(|_| array.data == start)?;
            Some((bits(kept), usize::try_from(array.selected).ok()))
        });
        left.collect()
    }
}

/// Returns the results of this library's sampler on the arrays, which are marked as sorted or not.
/// Without a sampler there are no results.
fn left_by_ours<S: Sampler>(ours: Option<S>, arrays: &[Vec<TokenData>], sorted: bool) -> Left {
    let Some(mut ours) = ours else {
        return Left::new();
    };
    HISTORY.iter().for_each(|&token| ours.accept(token));
    let left = arrays.iter().map(|array| {
        let mut data = array.clone();
        let mut candidates = Candidates::new(&mut data, sorted);
        ours.apply(&mut candidates);
        (bits(candidates.as_slice()), candidates.selected())
    });
    left.collect()
}

fn bits(data: &[TokenData]) -> Vec<[u32; 3]> {
    let bits = |c: &TokenData| [c.id as u32, c.logit.to_bits(), c.p.to_bits()];
    data.iter().map(bits).collect()
}

mod ties;

#[cfg(test)]
mod tests;
