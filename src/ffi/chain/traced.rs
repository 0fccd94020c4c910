//! The trace of each token that is sampled with a chain.
//!
//! A token is observed while its chain runs. Its line is written only when the host's call returns
//! the token, since a host may run the chain again after a grammar has refused the first token.

use std::cell::Cell;
use std::collections::TryReserveError;
use std::ffi::{c_char, c_int};
use std::fmt::Display;
use std::ptr::null_mut;

use super::host::Functions;
use super::{Member, members_of, prepare, run_members, selected_of_array};
use crate::ffi::failure::part;
use crate::ffi::given::{Argument, argument};
use crate::ffi::grammar::hosted::HOSTED;
use crate::ffi::guard::guard;
use crate::ffi::host::llama_h::{llama_context, llama_sampler, llama_token_data_array};
use crate::ffi::host::per_host::PerHost;
use crate::ffi::host::vocabulary::llama_vocab;
use crate::ffi::host::{Host, host_function};
use crate::ffi::logits::ContextFunctions;
use crate::kernels::logits::Logits;
use crate::memory;
use crate::per_thread::PerThread;
use crate::pool::Pool;
use crate::sampler::{About, Expected};
use crate::token::{Token, TokenData};
use crate::trace::{self, Ask, Name, Observer, Watch};

const CALL: &str = "the trace";

/// The maximum number of bytes of a token's text.
const LONGEST: usize = 1 << 16;

/// A token whose line has not yet been written.
pub(super) struct Waiting {
    observer: Box<Observer>,
    sequence: u64,
    refused: Option<Token>,
}

thread_local! {
    static WAITING: PerThread<Cell<Option<Box<Waiting>>>> = const { PerThread::new() };
}

fn take() -> Option<Box<Waiting>> {
    PerThread::with(&WAITING, Cell::take).flatten()
}

fn put(waiting: Box<Waiting>) {
    let _ = PerThread::with(&WAITING, |place| place.set(Some(waiting)));
}

/// An observer whose methods run inside the guard.
struct Guarded(Box<Observer>);

impl Watch for Guarded {
    fn expects(&mut self, of: impl FnOnce() -> Option<Expected>) {
        guard(CALL, || (), || self.0.expects(of));
    }

    fn before(&mut self, ask: Ask<'_>) {
        guard(CALL, || (), || self.0.before(ask));
    }

    fn after(&mut self, name: impl FnOnce() -> Name, pool: &mut Pool<'_>, ask: Ask<'_>) {
        guard(CALL, || (), || self.0.after(name, pool, ask));
    }

    fn chosen(&mut self, token: Token, logits: Logits<'_>, pool: &mut Pool<'_>) {
        guard(CALL, || (), || self.0.chosen(token, logits, pool));
    }
}

impl Guarded {
    /// Returns the observations of `members` if these have chosen a token.
    fn ended(mut self, members: &[Member], pool: &mut Pool<'_>) -> Option<Box<Waiting>> {
        let token = pool.token()?;
        let logits = pool.logits();
        self.chosen(token, logits, pool);
        Some(Box::new(Waiting {
            observer: self.0,
            sequence: sequence_of(members),
            refused: None,
        }))
    }
}

/// Runs the members of a chain, and keeps the observations for [`deliver`].
///
/// # Safety
/// The requirements of [`run_members`] apply.
#[cold]
pub(super) unsafe fn run(
    call: &dyn Display,
    host: &Functions,
    members: &[Member],
    pool: &mut Pool<'_>,
    observer: Box<Observer>,
) -> Result<(), c_int> {
    let mut watch = Guarded(observer);
    // SAFETY: the caller guarantees the members.
    unsafe { run_members(call, host, members, pool, &mut watch) }?;
    if let Some(waiting) = watch.ended(members, pool) {
        put(waiting);
    }
    Ok(())
}

/// Runs the members of a chain, all of them this library's, on any thread, and returns the
/// observations.
///
/// # Safety
/// The requirements of [`run_own`](super::run_own) apply.
#[cold]
pub(super) unsafe fn run_own(
    members: &[Member],
    pool: &mut Pool<'_>,
    observer: Box<Observer>,
) -> Option<Box<Waiting>> {
    let mut watch = Guarded(observer);
    // SAFETY: the caller guarantees the members.
    unsafe { super::run_own(members, pool, &mut watch) };
    watch.ended(members, pool)
}

/// Returns the number that identifies the chain with these members, which is that of its last
/// member of this library. (The first member may be a grammar that was put before the chain.)
pub(super) fn sequence_of(members: &[Member]) -> u64 {
    let number = |member: &Member| {
        // SAFETY: a member that is alive; `list` has compared the vtables.
        unsafe { member.own?.sequence_of(member.smpl) }
    };
    // A chain without members of this library is identified by the address of its last member.
    let place = || members.last().map_or(0, |member| member.smpl as u64);
    members.iter().rev().find_map(number).unwrap_or_else(place)
}

/// Returns the token of the last run for [`again`], if its line has not been written. That line is
/// then never written.
pub(super) fn before() -> Option<Refused> {
    let waiting = trace::is_on().then(take).flatten()?;
    let token = waiting.observer.token();
    Some(Refused {
        before: waiting.refused,
        token,
    })
}

/// A token whose line was discarded, and the one that a grammar had refused before it.
pub(super) struct Refused {
    before: Option<Token>,
    token: Option<Token>,
}

/// Records, with the waiting token, the number of its chain and the token that a grammar has
/// refused before.
pub(super) fn again(sequence: u64, refused: Option<Refused>, behind_grammar: bool) {
    let Some(mut waiting) = take() else {
        return;
    };
    waiting.sequence = sequence;
    waiting.refused = match refused {
        Some(refused) if behind_grammar => refused.before.or(refused.token),
        _ => None,
    };
    put(waiting);
}

/// Records, with the waiting token, that a grammar checks it.
///
/// # Safety
/// `grammar` is a live sampler that a host was given in the place of its own grammar.
pub(super) unsafe fn checks(grammar: *const llama_sampler) {
    let Some(mut waiting) = take() else {
        return;
    };
    let asked = || {
        let mut waits = false;
        // SAFETY: the caller guarantees the grammar.
        unsafe {
            HOSTED.tell(grammar, About::Next, &mut |name, _| {
                waits |= name == "waits"
            })
        };
        waits
    };
    // SAFETY: the caller guarantees the grammar.
    let expected = || unsafe { HOSTED.expected_of(grammar) };
    guard(CALL, || (), || waiting.observer.check(asked(), expected));
    put(waiting);
}

/// Writes the line of the waiting token. If the host returned a different token, the line says so.
///
/// # Safety
/// `ctx` is NULL or a live context of the bound host.
pub(super) unsafe fn deliver(ctx: *mut llama_context, token: Option<Token>) {
    if !trace::is_on() {
        return;
    }
    if let (Some(waiting), Some(token)) = (take(), token) {
        // SAFETY: the caller guarantees the context.
        unsafe { waiting.deliver(ctx, token) };
    }
}

impl Waiting {
    /// Writes the line of this token. If the host returned a different token, the line says so.
    ///
    /// # Safety
    /// `ctx` is NULL or a live context of the bound host.
    pub(super) unsafe fn deliver(self, ctx: *mut llama_context, token: Token) {
        // SAFETY: the caller guarantees the context.
        let texts = unsafe { Texts::of(ctx) };
        let pieces = |token: Token, bytes: &mut Vec<u8>| {
            let written = texts.as_ref().and_then(|texts| texts.write(token, bytes));
            written.is_some()
        };
        let Self {
            observer,
            sequence,
            refused,
        } = self;
        guard(
            CALL,
            || (),
            || match observer.token() == Some(token) {
                true => observer.deliver(sequence, &pieces, refused),
                false => observer.deliver_other(sequence, &pieces, token),
            },
        );
    }
}

/// The token that was last selected in an array of a host.
#[derive(Clone, Copy)]
struct InArray {
    sequence: u64,
    token: Token,
    is_refused: bool,
}

thread_local! {
    static IN_ARRAY: Cell<Option<InArray>> = const { Cell::new(None) };
}

/// Does the work of llama_sampler_apply for a chain whose members are all this library's, and
/// records the token that it selects. Does nothing and returns `None` if the chain has other
/// members, or if the array was not filled from the logits of a vocabulary.
///
/// # Safety
/// `chain` is NULL or a live sampler of the bound host, `array` NULL or a valid array; no other
/// thread uses them during the call.
#[cold]
pub(super) unsafe fn apply(
    chain: *mut llama_sampler,
    array: *mut llama_token_data_array,
) -> Option<()> {
    if chain.is_null() || array.is_null() || !array.is_aligned() {
        return None;
    }
    // SAFETY: the caller guarantees the array.
    let array = unsafe { &mut *array };
    // SAFETY: as above.
    let data = unsafe { ARRAY.room(array.data, array.size) }.ok()?;
    if data.len() < 2 {
        return None;
    }
    let host = prepare(CALL, chain).ok()?;
    // SAFETY: the caller guarantees the chain.
    let is_chain = unsafe { host.chains.members(chain) }.is_some();
    if !is_chain {
        return None;
    }
    // SAFETY: as above.
    let mut workspace = unsafe { members_of(&CALL, &host, chain) }.ok()?;
    let lent = &mut *workspace;
    let (buffers, members) = (&mut lent.buffers, &lent.members);
    if members.is_empty() || members.iter().any(|member| member.own.is_none()) {
        return None;
    }
    let filled = part(CALL, || {
        let filled = Filled::of(data, array.selected < 0 && array.sorted == 0)?;
        let n = filled.as_ref().map_or(0, |filled| filled.logits.len());
        buffers.try_reserve(n)?;
        Ok(filled)
    });
    let filled = filled.ok()??;
    let logits = Logits::F32(&filled.logits);
    let observer = trace::begin(logits)?;
    let mut pool = Pool::new(logits, buffers);
    if !filled.is_whole {
        pool.keep(data, array.sorted != 0);
        pool.select(usize::try_from(array.selected).ok());
    }
    // SAFETY: the caller guarantees the members. Those of this library do not fail.
    let _ = unsafe { run(&CALL, &host, members, &mut pool, observer) };
    let _ = part(CALL, || {
        array.selected = selected_of_array(&mut pool);
        let (left, sorted) = pool.array();
        for (to, &candidate) in data.iter_mut().zip(&*left) {
            *to = candidate;
        }
        array.size = left.len().min(data.len());
        array.sorted = u8::from(sorted);
        Ok(())
    });
    drop(workspace);
    deliver_in_array();
    Some(())
}

/// Writes the line of the token that was selected in an array. If a grammar has refused the
/// previous token, the line replaces that token's line.
fn deliver_in_array() {
    let Some(mut waiting) = take() else {
        return;
    };
    let Some(token) = waiting.observer.token() else {
        return;
    };
    let sequence = waiting.sequence;
    let before = IN_ARRAY.replace(Some(InArray {
        sequence,
        token,
        is_refused: false,
    }));
    let refused = before.filter(|before| before.is_refused && before.sequence == sequence);
    if let Some(before) = refused {
        waiting.refused = Some(before.token);
        waiting.observer.replace();
    }
    // SAFETY: no context.
    unsafe { waiting.deliver(null_mut(), token) };
}

/// Records that the token that was last selected in an array is refused, if it is the only
/// candidate of `array` and has minus infinity.
///
/// # Safety
/// `array` is NULL or a valid array.
pub(super) unsafe fn looked_at(array: *const llama_token_data_array) {
    if array.is_null() || !array.is_aligned() {
        return;
    }
    // SAFETY: the caller guarantees the array.
    let array = unsafe { &*array };
    // SAFETY: as above.
    let Ok([one]) = (unsafe { ARRAY.slice(array.data, array.size) }) else {
        return;
    };
    let last = IN_ARRAY.get().filter(|last| last.token == one.id);
    if let (Some(last), f32::NEG_INFINITY) = (last, one.logit) {
        let is_refused = true;
        IN_ARRAY.set(Some(InArray { is_refused, ..last }));
    }
}

/// The maximum number of tokens of a vocabulary for which logits are read from an array.
const MOST_TOKENS: usize = 1 << 22;

const ARRAY: Argument = argument!("data", "size", MOST_TOKENS);

/// The logits of an array, indexed by token.
struct Filled {
    /// The logits; minus infinity for tokens that are not in the array.
    logits: Vec<f32>,
    /// True if the array has exactly all tokens, in order, as a host fills it: not marked as
    /// sorted, with no token selected, and with every `p` 0.
    is_whole: bool,
}

impl Filled {
    /// Returns the logits of the candidates; `None` if the id of a candidate cannot be that of a
    /// token, and an error if there is too little memory.
    fn of(data: &[TokenData], is_fresh: bool) -> Result<Option<Self>, TryReserveError> {
        let places = || {
            data.iter()
                .map(|c| usize::try_from(c.id).unwrap_or(MOST_TOKENS))
        };
        let n = places().max().map_or(0, |last| last + 1);
        if n > MOST_TOKENS {
            return Ok(None);
        }
        let mut logits = memory::with_room(n)?;
        logits.resize(n, f32::NEG_INFINITY);
        for (place, candidate) in places().zip(data) {
            if let Some(logit) = logits.get_mut(place) {
                *logit = candidate.logit;
            }
        }
        let in_order = places().eq(0..n);
        let is_whole = is_fresh && in_order && data.iter().all(|c| c.p == 0.0);
        Ok(Some(Self { logits, is_whole }))
    }
}

type TokenToPiece =
    unsafe extern "C" fn(*const llama_vocab, Token, *mut c_char, i32, i32, bool) -> i32;

/// The texts of a context's tokens.
struct Texts {
    vocab: *const llama_vocab,
    n_tokens: i32,
    write: TokenToPiece,
}

impl Texts {
    /// Returns the texts; `None` without a context, or if the host does not provide them.
    ///
    /// # Safety
    /// `ctx` is NULL or a live context of the bound host.
    unsafe fn of(ctx: *mut llama_context) -> Option<Self> {
        static PIECE: PerHost<TokenToPiece> = PerHost::new();
        fn piece(host: &Host) -> Result<TokenToPiece, String> {
            Ok(host_function!(host, c"llama_token_to_piece", TokenToPiece))
        }
        if ctx.is_null() {
            return None;
        }
        let write = PIECE.of_host(piece).ok()?;
        let functions = ContextFunctions::of_host().ok()?;
        // SAFETY: the caller guarantees the context.
        let (vocab, n_tokens) = unsafe { functions.vocabulary(ctx) };
        Some(Self {
            vocab,
            n_tokens,
            write,
        })
    }

    fn write(&self, token: Token, bytes: &mut Vec<u8>) -> Option<()> {
        if !(0..self.n_tokens).contains(&token) {
            return None;
        }
        bytes.resize(64, 0);
        for _ in 0..2 {
            let (to, room) = (bytes.as_mut_ptr().cast(), bytes.len() as i32);
            // SAFETY: a token of the vocabulary, which lives as long as the context; there is room.
            let length = unsafe { (self.write)(self.vocab, token, to, room, 0, true) };
            if let Ok(length) = usize::try_from(length) {
                bytes.truncate(length);
                return Some(());
            }
            bytes.resize((length.unsigned_abs() as usize).min(LONGEST), 0);
        }
        None
    }
}
