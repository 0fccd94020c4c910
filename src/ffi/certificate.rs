//! Whether the host's own samplers do what ours do, found out by trying.
//!
//! Built-ins have changed: other random streams for the same seed, other orders, other rounding
//! where a compiler fuses multiplications and additions. So before ours stands in for one of them,
//! both are made with the same arguments and work on the same arrays, and all that they leave must
//! be equal, bit for bit. The arrays hold what tells builds apart: one and two candidates, of which
//! older builds draw nothing; several draws in a row; ties, which show the order that a sort
//! leaves; products and sums that round otherwise where they are fused; sizes on both sides of the
//! kernels' thresholds.
//!
//! The host's functions are called outside the guard: what they throw passes through.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr::{null, null_mut};

use crate::ffi::failure::{Failure, answer};
use crate::ffi::guard::guard;
use crate::ffi::host::{Address, Host};
use crate::ffi::host_build::{Build, named};
use crate::ffi::host_built_ins::free_of;
use crate::ffi::host_vocabulary::{c_bytes, llama_vocab};
use crate::ffi::library::{LLAMA_SIEVE_ERROR_NO_HOST, LLAMA_SIEVE_ERROR_NOT_FOUND, LLAMA_SIEVE_OK};
use crate::ffi::llama_h::{llama_logit_bias, llama_sampler, llama_token_data_array};
use crate::ffi::samplers::*;
use crate::token::{Token, TokenData};

/// The host's sampler has another name.
pub const LLAMA_SIEVE_CERTIFY_NAME: c_int = 1;
/// The host's sampler leaves another number of candidates.
pub const LLAMA_SIEVE_CERTIFY_SIZE: c_int = 2;
/// One of the two calls the candidates sorted that the other does not.
pub const LLAMA_SIEVE_CERTIFY_SORTED: c_int = 3;
/// The two select different candidates, or one of them none.
pub const LLAMA_SIEVE_CERTIFY_SELECTED: c_int = 4;
/// Candidates stand in different places.
pub const LLAMA_SIEVE_CERTIFY_IDS: c_int = 5;
/// A logit has other bits.
pub const LLAMA_SIEVE_CERTIFY_LOGITS: c_int = 6;
/// A probability has other bits.
pub const LLAMA_SIEVE_CERTIFY_PROBABILITIES: c_int = 7;
/// The arguments of this constructor have changed between builds, or are pointers, and the host's
/// build is not known: it was not called.
pub const LLAMA_SIEVE_CERTIFY_ARGUMENTS: c_int = 8;
/// The sampler asks a vocabulary, so that it cannot be tried without one: it was not called.
pub const LLAMA_SIEVE_CERTIFY_VOCABULARY: c_int = 9;
/// The host's constructor gives NULL.
pub const LLAMA_SIEVE_CERTIFY_NOT_MADE: c_int = 10;

/// Compares ours with the bound host's own sampler of that name, as llama_sampler_name tells it
/// ("top-k"), on small arrays. What is found holds as long as the host stays loaded.
///
/// Returns LLAMA_SIEVE_OK if all that they left was equal, bit for bit; LLAMA_SIEVE_CERTIFY_*
/// (above 0) if not, or if it could not be tried; a negative LLAMA_SIEVE_ERROR_*: the name is NULL
/// or none of a built-in sampler, there is no host, or it has no such sampler.
/// llama_sieve_last_error says more. The build of the host, where arguments depend on it, is found
/// out as far as that is possible, or taken from the environment variable LLAMA_SIEVE_HOST. An
/// exception that the host throws passes through.
///
/// # Safety
/// `sampler_name` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_sieve_certify(sampler_name: *const c_char) -> c_int {
    const CALL: &str = "llama_sieve_certify";
    let mut trials = None;
    let prepared = answer(CALL, || {
        if sampler_name.is_null() {
            return Err(Failure::null("the name"));
        }
        // SAFETY: not NULL, and the caller guarantees a C string.
        let name = unsafe { c_bytes(sampler_name) };
        let name = String::from_utf8_lossy(name);
        let host = no_host(Host::get())?;
        trials = Some(Trials::new(&name, &host, || Build::of(&host, named()))?);
        Ok(LLAMA_SIEVE_OK)
    });
    let Some(mut trials) = trials.filter(|_| prepared == LLAMA_SIEVE_OK) else {
        return prepared;
    };
    // SAFETY: the host that was found is loaded.
    let verdict = unsafe { trials.run() };
    answer(CALL, || verdict.map(|()| LLAMA_SIEVE_OK))
}

fn no_host<T>(found: Result<T, String>) -> Result<T, Failure> {
    found.map_err(|text| Failure::new(LLAMA_SIEVE_ERROR_NO_HOST, text))
}

/// Compares ours with the bound host's own, whose build is `build` where it is known. `Err` says
/// what differs, or why they could not be compared.
pub fn certify(name: &str, build: Option<Build>) -> Result<(), String> {
    let prepared = guard(
        "certify",
        || Err("internal error".to_owned()),
        || {
            let build = || build.ok_or_else(|| "its build is not known".to_owned());
            Trials::new(name, &Host::get()?, build).map_err(|failure| failure.text().to_owned())
        },
    );
    // SAFETY: the bound host is loaded.
    let verdict = unsafe { prepared?.run() };
    verdict.map_err(|failure| failure.text().to_owned())
}

/// One kind of sampler.
struct Kind {
    name: &'static str,
    constructor: &'static CStr,
    /// Which builds it can be made for with these arguments; `None`: all.
    takes: Option<fn(Build) -> bool>,
    /// Makes the host's and ours with the arguments of a trial; `None` after the last.
    make: unsafe fn(*mut c_void, usize) -> Option<Samplers>,
}

/// The host's and ours.
type Samplers = [*mut llama_sampler; 2];

/// A line for each trial: ours with its arguments, and those of the host's. The first works on all
/// arrays, the others on two.
macro_rules! kinds {
    ($(
        $name:literal, $constructor:literal, $takes:expr,
        $ours:ident, ($($kind:ty),*): $(($($mine:expr),*) ($($theirs:expr),*);)+
    )*) => {
        static KINDS: &[Kind] = &[$(Kind {
            name: $name,
            constructor: $constructor,
            takes: $takes,
            make: {
                unsafe fn make(address: *mut c_void, trial: usize) -> Option<Samplers> {
                    type Theirs = unsafe extern "C-unwind" fn($($kind),*) -> *mut llama_sampler;
                    // SAFETY: the host's constructor of that name; where its arguments have
                    // changed, the build was asked.
                    let theirs = unsafe { transmute::<*mut c_void, Theirs>(address) };
                    let mut left = trial;
                    $(
                        if left == 0 {
                            // SAFETY: arguments as both ask for them.
                            #[allow(unused_unsafe)]
                            return unsafe { Some([theirs($($theirs),*), $ours($($mine),*)]) };
                        }
                        left = left.wrapping_sub(1);
                    )+
                    let _ = left;
                    None
                }
                make
            },
        }),*];
    };
}

const BIASES: [llama_logit_bias; 4] = [
    bias(3, 1.7),
    bias(0, -2.3),
    bias(15, f32::NEG_INFINITY),
    bias(3, 0.1),
];

const fn bias(token: Token, bias: f32) -> llama_logit_bias {
    llama_logit_bias { token, bias }
}

fn new_penalties(build: Build) -> bool {
    build.penalties_take_n_vocab()
}
fn old_penalties(build: Build) -> bool {
    !build.penalties_take_n_vocab()
}
fn old_dry(build: Build) -> bool {
    build.dry_takes_n_ctx_train()
}
fn new_dry(build: Build) -> bool {
    !build.dry_takes_n_ctx_train()
}
fn any_known(_: Build) -> bool {
    true
}

const NO_VOCAB: *const llama_vocab = null();

kinds! {
    "greedy", c"llama_sampler_init_greedy", None, llama_sieve_init_greedy, ():
        () ();
    "dist", c"llama_sampler_init_dist", None, llama_sieve_init_dist, (u32):
        (42) (42);
        (7) (7);
    "top-k", c"llama_sampler_init_top_k", None, llama_sieve_init_top_k, (i32):
        (200) (200);
        (5) (5);
        (0) (0);
    "top-p", c"llama_sampler_init_top_p", None, llama_sieve_init_top_p, (f32, usize):
        (0.9, 1) (0.9, 1);
        (0.3, 3) (0.3, 3);
        (1.0, 1) (1.0, 1);
    "min-p", c"llama_sampler_init_min_p", None, llama_sieve_init_min_p, (f32, usize):
        (0.02, 1) (0.02, 1);
        (0.9, 6) (0.9, 6);
        (0.0, 1) (0.0, 1);
    "typical", c"llama_sampler_init_typical", None, llama_sieve_init_typical, (f32, usize):
        (0.8, 1) (0.8, 1);
        (0.1, 4) (0.1, 4);
        (1.0, 1) (1.0, 1);
    "temp", c"llama_sampler_init_temp", None, llama_sieve_init_temp, (f32):
        (0.7) (0.7);
        (0.0) (0.0);
        (1.0) (1.0);
    "temp-ext", c"llama_sampler_init_temp_ext", None, llama_sieve_init_temp_ext, (f32, f32, f32):
        (0.8, 0.3, 1.5) (0.8, 0.3, 1.5);
        (0.7, 0.0, 1.0) (0.7, 0.0, 1.0);
        (1.0, 0.0, 1.0) (1.0, 0.0, 1.0);
    "xtc", c"llama_sampler_init_xtc", None, llama_sieve_init_xtc, (f32, f32, usize, u32):
        (0.7, 0.02, 1, 42) (0.7, 0.02, 1, 42);
        (1.0, 0.05, 3, 7) (1.0, 0.05, 3, 7);
        (0.0, 0.1, 1, 42) (0.0, 0.1, 1, 42);
    "top-n-sigma", c"llama_sampler_init_top_n_sigma", None, llama_sieve_init_top_n_sigma, (f32):
        (1.0) (1.0);
        (0.4) (0.4);
        (-1.0) (-1.0);
    "mirostat", c"llama_sampler_init_mirostat", None, llama_sieve_init_mirostat,
        (i32, u32, f32, f32, i32):
        (1025, 42, 4.0, 0.1, 100) (1025, 42, 4.0, 0.1, 100);
        (129, 7, 2.0, 0.3, 20) (129, 7, 2.0, 0.3, 20);
    "mirostat-v2", c"llama_sampler_init_mirostat_v2", None, llama_sieve_init_mirostat_v2,
        (u32, f32, f32):
        (42, 4.0, 0.1) (42, 4.0, 0.1);
        (7, 2.0, 0.3) (7, 2.0, 0.3);
    "adaptive-p", c"llama_sampler_init_adaptive_p", None, llama_sieve_init_adaptive_p,
        (f32, f32, u32):
        (0.4, 0.9, 42) (0.4, 0.9, 42);
        (-1.0, 0.9, 7) (-1.0, 0.9, 7);
    "penalties", c"llama_sampler_init_penalties", Some(new_penalties), llama_sieve_init_penalties,
        (i32, i32, f32, f32, f32):
        (1025, 8, 1.3, 0.17, 0.2) (1025, 8, 1.3, 0.17, 0.2);
        (1025, 64, 1.0, 0.3, 0.0) (1025, 64, 1.0, 0.3, 0.0);
        (1025, 0, 1.3, 0.1, 0.2) (1025, 0, 1.3, 0.1, 0.2);
    "penalties", c"llama_sampler_init_penalties", Some(old_penalties), llama_sieve_init_penalties,
        (i32, f32, f32, f32):
        (0, 8, 1.3, 0.17, 0.2) (8, 1.3, 0.17, 0.2);
        (0, 64, 1.0, 0.3, 0.0) (64, 1.0, 0.3, 0.0);
        (0, 0, 1.3, 0.1, 0.2) (0, 1.3, 0.1, 0.2);
    "dry", c"llama_sampler_init_dry", Some(new_dry), llama_sieve_init_dry,
        (*const llama_vocab, f32, f32, i32, i32, *mut *const c_char, usize):
        (NO_VOCAB, 0.8, 1.75, 1, 64, null_mut(), 0) (NO_VOCAB, 0.8, 1.75, 1, 64, null_mut(), 0);
        (NO_VOCAB, 2.0, 1.1, 2, 6, null_mut(), 0) (NO_VOCAB, 2.0, 1.1, 2, 6, null_mut(), 0);
        (NO_VOCAB, 0.0, 1.1, 2, 6, null_mut(), 0) (NO_VOCAB, 0.0, 1.1, 2, 6, null_mut(), 0);
    "dry", c"llama_sampler_init_dry", Some(old_dry), llama_sieve_init_dry,
        (*const llama_vocab, i32, f32, f32, i32, i32, *mut *const c_char, usize):
        (NO_VOCAB, 0.8, 1.75, 1, 64, null_mut(), 0)
        (NO_VOCAB, 512, 0.8, 1.75, 1, 64, null_mut(), 0);
        (NO_VOCAB, 2.0, 1.1, 2, 6, null_mut(), 0)
        (NO_VOCAB, 512, 2.0, 1.1, 2, 6, null_mut(), 0);
    "logit-bias", c"llama_sampler_init_logit_bias", Some(any_known), llama_sieve_init_logit_bias,
        (i32, i32, *const llama_logit_bias):
        (1025, 4, BIASES.as_ptr()) (1025, 4, BIASES.as_ptr());
        (1025, 0, null()) (1025, 0, null());
}

/// The one sampler that needs a vocabulary.
const INFILL: &str = "infill";

/// Every candidate of this place among so many has the logit of one before it: the order in which
/// ties are left belongs to what is compared.
const TIED_EVERY: usize = 4;

/// The arrays in the order of their use; a generator's draws differ from the second on if it drew
/// more or less than ours for the one before.
const ARRAYS: [Shape; 6] = [
    Shape::scattered(1),
    Shape::scattered(2),
    Shape::scattered(17),
    Shape {
        sorted: true,
        ids_backward: true,
        ..Shape::scattered(17)
    },
    Shape::scattered(129),
    Shape {
        scatter: 0.25,
        ..Shape::scattered(LARGEST)
    },
];

/// Which of them every trial but the first uses.
const FEW: [usize; 2] = [2, 3];

const LARGEST: usize = 1025;

/// Accepted before all else: repetitions of one to four tokens.
const HISTORY: [Token; 14] = [3, 1, 2, 3, 1, 2, 3, 7, 1, 2, 3, 1, 2, 3];

#[derive(Clone, Copy)]
struct Shape {
    size: usize,
    /// Over how much of their range, from -8 to 8, the logits are random. The rest descends, so
    /// that sorting many takes less time.
    scatter: f32,
    sorted: bool,
    ids_backward: bool,
}

impl Shape {
    const fn scattered(size: usize) -> Self {
        Self {
            size,
            scatter: 16.0,
            sorted: false,
            ids_backward: false,
        }
    }

    /// Fills `data` with its candidates.
    fn fill(self, data: &mut Vec<TokenData>) {
        data.clear();
        let mut state = FIRST_STATE;
        for i in 0..self.size {
            // Logits of all 24 bits, so that every rounding shows.
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let random = (state >> 8) as f32 / (1 << 24) as f32;
            let tied = (i % TIED_EVERY == TIED_EVERY - 1).then(|| data.get(i - 3));
            let descending = (16.0 - self.scatter) * (1.0 - i as f32 / self.size as f32);
            let logit = descending + random * self.scatter - 8.0;
            let logit = tied
                .flatten()
                .map_or(logit, |other: &TokenData| other.logit);
            let id = match self.ids_backward {
                true => self.size - 1 - i,
                false => i,
            };
            data.push(TokenData {
                id: id as Token,
                logit,
                p: 0.0,
            });
        }
        if self.sorted {
            data.sort_by(|a, b| b.logit.total_cmp(&a.logit));
        }
    }
}

/// Where the random numbers of every array begin: one of those with which a build that fuses
/// multiplications and additions leaves other logits.
const FIRST_STATE: u32 = 1_274_836_067;

/// All that is needed to try a kind, so that nothing of ours can fail between calls of the host.
struct Trials {
    kind: &'static Kind,
    constructor: Address,
    free: unsafe extern "C-unwind" fn(*mut llama_sampler),
    arrays: [Vec<TokenData>; ARRAYS.len()],
    /// What the host's works on, and ours.
    work: [Vec<TokenData>; 2],
}

impl Trials {
    fn new(
        name: &str,
        host: &Host,
        build: impl Fn() -> Result<Build, String>,
    ) -> Result<Self, Failure> {
        if name == INFILL {
            let text = "infill asks a vocabulary, and cannot be tried without one";
            return Err(Failure::new(LLAMA_SIEVE_CERTIFY_VOCABULARY, text));
        }
        let mut kinds = KINDS.iter().filter(|kind| kind.name == name).peekable();
        if kinds.peek().is_none() {
            let text = format!("no built-in sampler is named {name}");
            return Err(Failure::new(LLAMA_SIEVE_ERROR_NOT_FOUND, text));
        }
        let mut kind = None;
        for one in kinds {
            let fits = match one.takes {
                None => true,
                Some(takes) => takes(build().map_err(|text| {
                    let text = format!("{name}: its arguments are not known: {text}");
                    Failure::new(LLAMA_SIEVE_CERTIFY_ARGUMENTS, text)
                })?),
            };
            if fits {
                kind = Some(one);
            }
        }
        let kind = kind.ok_or_else(Failure::caught)?;
        let arrays = ARRAYS.map(|shape| {
            let mut data = Vec::with_capacity(shape.size);
            shape.fill(&mut data);
            data
        });
        Ok(Self {
            kind,
            constructor: no_host(host.function(kind.constructor))?,
            free: no_host(free_of(host))?,
            arrays,
            work: [Vec::with_capacity(LARGEST), Vec::with_capacity(LARGEST)],
        })
    }

    /// Runs them all, up to the first difference.
    ///
    /// # Safety
    /// The host is loaded.
    unsafe fn run(&mut self) -> Result<(), Failure> {
        for trial in 0.. {
            // SAFETY: the kind's constructor, of a host that is loaded.
            let Some(made) = (unsafe { (self.kind.make)(self.constructor.as_ptr(), trial) }) else {
                break;
            };
            let pair = Pair {
                made,
                free: self.free,
            };
            let all: &[usize] = &[0, 1, 2, 3, 4, 5];
            let arrays = if trial == 0 { all } else { &FEW };
            // SAFETY: the samplers were just made.
            let found = unsafe { pair.compare(arrays, &self.arrays, &mut self.work) };
            drop(pair);
            if let Err(found) = found {
                return Err(found.failure(self.kind.name));
            }
        }
        Ok(())
    }
}

/// What differs, on an array of how many candidates.
struct Difference {
    code: c_int,
    size: usize,
}

impl Difference {
    fn failure(&self, name: &str) -> Failure {
        let what = match self.code {
            LLAMA_SIEVE_CERTIFY_NAME => "the name",
            LLAMA_SIEVE_CERTIFY_SIZE => "the number of candidates left",
            LLAMA_SIEVE_CERTIFY_SORTED => "whether the candidates are sorted",
            LLAMA_SIEVE_CERTIFY_SELECTED => "the selected candidate",
            LLAMA_SIEVE_CERTIFY_IDS => "the order of the candidates",
            LLAMA_SIEVE_CERTIFY_LOGITS => "a logit",
            LLAMA_SIEVE_CERTIFY_PROBABILITIES => "a probability",
            _ => "what is made",
        };
        let size = self.size;
        let text = format!("{name}: llama.cpp's own differs on {size} candidates in {what}");
        Failure::new(self.code, text)
    }
}

/// The host's sampler and ours, freed also when the host throws.
struct Pair {
    made: Samplers,
    free: unsafe extern "C-unwind" fn(*mut llama_sampler),
}

impl Drop for Pair {
    fn drop(&mut self) {
        for smpl in self.made.into_iter().filter(|smpl| !smpl.is_null()) {
            // SAFETY: a live sampler of the host, not used again.
            unsafe { (self.free)(smpl) };
        }
    }
}

impl Pair {
    /// Lets both work on these arrays, one after the other.
    ///
    /// # Safety
    /// The samplers are live or NULL.
    unsafe fn compare(
        &self,
        which: &[usize],
        arrays: &[Vec<TokenData>; ARRAYS.len()],
        work: &mut [Vec<TokenData>; 2],
    ) -> Result<(), Difference> {
        let [theirs, ours] = self.made;
        let differ = |code, size| Err(Difference { code, size });
        // SAFETY: both are live or NULL.
        let complete =
            |smpl: *mut llama_sampler| unsafe { !smpl.is_null() && !(*smpl).iface.is_null() };
        if !complete(theirs) || !complete(ours) {
            return differ(LLAMA_SIEVE_CERTIFY_NOT_MADE, 0);
        }
        // SAFETY: both are live.
        if unsafe { name_of(theirs) != name_of(ours) } {
            return differ(LLAMA_SIEVE_CERTIFY_NAME, 0);
        }
        for token in HISTORY {
            for smpl in self.made {
                // SAFETY: as above.
                unsafe { accept(smpl, token) };
            }
        }
        for (shape, data) in ARRAYS.iter().zip(arrays).enumerate() {
            let (index, (shape, data)) = (shape, data);
            if !which.contains(&index) {
                continue;
            }
            let left = std::array::from_fn(|side| {
                let (Some(&smpl), Some(work)) = (self.made.get(side), work.get_mut(side)) else {
                    return Left::nothing();
                };
                work.clear();
                work.extend_from_slice(data);
                // SAFETY: as above, and the array is this call's.
                unsafe { apply(smpl, work, shape.sorted) }
            });
            let [theirs, ours]: [Left; 2] = left;
            let [of_theirs, of_ours] = &*work;
            if let Some(code) = theirs.differs_from(of_theirs, &ours, of_ours) {
                return differ(code, shape.size);
            }
            let chosen = theirs.chosen(of_theirs).unwrap_or(1);
            for smpl in self.made {
                // SAFETY: as above.
                unsafe { accept(smpl, chosen) };
            }
        }
        Ok(())
    }
}

/// The name, without the question mark of one that is disabled: older builds have none.
///
/// # Safety
/// `smpl` is live.
unsafe fn name_of<'a>(smpl: *const llama_sampler) -> &'a [u8] {
    // SAFETY: the caller guarantees the sampler, a sampler its vtable, and that its name.
    unsafe {
        let Some(name) = (*(*smpl).iface).name else {
            return &[];
        };
        let name = name(smpl);
        if name.is_null() {
            return &[];
        }
        let name = c_bytes(name);
        name.strip_prefix(b"?").unwrap_or(name)
    }
}

/// # Safety
/// `smpl` is live.
unsafe fn accept(smpl: *mut llama_sampler, token: Token) {
    type Accept = unsafe extern "C-unwind" fn(*mut llama_sampler, Token);
    // SAFETY: the caller guarantees the sampler, and a sampler its vtable. A host's may throw.
    unsafe {
        if let Some(accept) = (*(*smpl).iface).accept {
            let accept: Accept = transmute(accept);
            accept(smpl, token);
        }
    }
}

/// # Safety
/// `smpl` is live.
unsafe fn apply(smpl: *mut llama_sampler, data: &mut [TokenData], sorted: bool) -> Left {
    type Apply = unsafe extern "C-unwind" fn(*mut llama_sampler, *mut llama_token_data_array);
    let start = data.as_mut_ptr();
    let mut array = llama_token_data_array {
        data: start,
        size: data.len(),
        selected: -1,
        sorted: u8::from(sorted),
    };
    // SAFETY: the caller guarantees the sampler, and a sampler its vtable; the array is valid. A
    // host's may throw.
    unsafe {
        if let Some(apply) = (*(*smpl).iface).apply {
            let apply: Apply = transmute(apply);
            apply(smpl, &raw mut array);
        }
    }
    let offset = (array.data as usize).wrapping_sub(start as usize) / size_of::<TokenData>();
    Left {
        offset,
        size: array.size,
        selected: array.selected,
        sorted: array.sorted != 0,
    }
}

/// What a sampler left of an array.
struct Left {
    /// Where in the array it begins: XTC moves the beginning.
    offset: usize,
    size: usize,
    selected: i64,
    sorted: bool,
}

impl Left {
    fn nothing() -> Self {
        Self {
            offset: 0,
            size: 0,
            selected: -1,
            sorted: false,
        }
    }

    /// The candidates; `None` if they are not in the array.
    fn of<'a>(&self, data: &'a [TokenData]) -> Option<&'a [TokenData]> {
        data.get(self.offset..)?.get(..self.size)
    }

    fn chosen(&self, data: &[TokenData]) -> Option<Token> {
        let index = usize::try_from(self.selected).ok()?;
        self.of(data)?.get(index).map(|candidate| candidate.id)
    }

    fn differs_from(
        &self,
        data: &[TokenData],
        other: &Self,
        others: &[TokenData],
    ) -> Option<c_int> {
        let (Some(left), Some(right)) = (self.of(data), other.of(others)) else {
            return Some(LLAMA_SIEVE_CERTIFY_SIZE);
        };
        let all = |equal: fn(&TokenData, &TokenData) -> bool| {
            left.iter().zip(right).all(|(a, b)| equal(a, b))
        };
        let equal = [
            (left.len() == right.len(), LLAMA_SIEVE_CERTIFY_SIZE),
            (all(|a, b| a.id == b.id), LLAMA_SIEVE_CERTIFY_IDS),
            (
                all(|a, b| a.logit.to_bits() == b.logit.to_bits()),
                LLAMA_SIEVE_CERTIFY_LOGITS,
            ),
            (
                all(|a, b| a.p.to_bits() == b.p.to_bits()),
                LLAMA_SIEVE_CERTIFY_PROBABILITIES,
            ),
            (self.sorted == other.sorted, LLAMA_SIEVE_CERTIFY_SORTED),
            (
                self.selected == other.selected,
                LLAMA_SIEVE_CERTIFY_SELECTED,
            ),
        ];
        equal
            .into_iter()
            .find_map(|(equal, code)| (!equal).then_some(code))
    }
}
