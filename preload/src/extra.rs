//! Members that the user wants in every chain: `LLAMA_SIEVE_EXTRA`.
//!
//! They are inserted before the member that chooses the token, which is the last one of a chain:
//! the call that adds this member adds them first. Bans come before all members, since after a
//! truncating sampler all remaining candidates may be banned. A copy of a chain already has these
//! members, and gets no others. Only this part of the library changes tokens, and this is reported
//! when the library is loaded.

use std::ffi::{CStr, CString, c_char, c_void};
use std::fmt::Display;
use std::io::{self, Read};
use std::mem::transmute;
#[cfg(unix)]
use std::os::unix::fs::OpenOptionsExt;
use std::ptr::{null, null_mut};

use llama_sieve::environment;
use llama_sieve::ffi::bans::{
    LLAMA_SIEVE_BAN_FOLD_CASE, LLAMA_SIEVE_BAN_MAX_BYTES, LLAMA_SIEVE_BAN_MAX_TEXTS,
    LLAMA_SIEVE_BAN_REGEX, llama_sieve_init_ban_strings,
};
use llama_sieve::ffi::guard::guard;
use llama_sieve::ffi::host::llama_h::llama_sampler;
use llama_sieve::ffi::loops::{llama_sieve_init_loop_breaker, llama_sieve_loop_params};
use llama_sieve::ffi::samplers::*;
use llama_sieve::last_error;
use llama_sieve::log;
use llama_sieve::quoted::quoted;
use llama_sieve::sync::OnceLock;

use crate::choice;
use crate::routes::Function;
use crate::settings::say;
use crate::vocabularies;

/// The environment variable that lists the members.
pub const VARIABLE: &str = "LLAMA_SIEVE_EXTRA";

/// A member of every chain.
#[derive(Clone, Debug, PartialEq)]
pub enum Extra {
    /// A loop breaker with the minimum number of tokens of a loop; 0 means the default.
    LoopBreaker(i32),
    /// Bans of these texts, with the flags of `llama_sieve_init_ban_strings`.
    BanStrings(Vec<CString>, u32),
    TopA(f32),
    EpsilonCutoff(f32),
    EtaCutoff(f32),
    PLess(bool),
    TopH(f32),
    MinK(f32),
    Quadratic(f32, f32),
}

/// Returns the members that `text` names, and a message for each one that is left out because of a
/// fault. `read` returns the contents of a file.
pub fn parse(text: &str, read: impl Fn(&str) -> io::Result<Vec<u8>>) -> (Vec<Extra>, Vec<String>) {
    let (mut extras, mut warnings) = (Vec::new(), Vec::new());
    for part in text
        .split(';')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let (name, value) = match part.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (part, None),
        };
        match extra(&name.replace('-', "_"), value, &read) {
            Ok(extra) => extras.push(extra),
            Err(why) => warnings.push(format!(
                "{VARIABLE}: \"{}\": {why}; chains go without it",
                quoted(part)
            )),
        }
    }
    (extras, warnings)
}

fn extra(
    name: &str,
    value: Option<&str>,
    read: &impl Fn(&str) -> io::Result<Vec<u8>>,
) -> Result<Extra, String> {
    let bans = |flags| Ok(Extra::BanStrings(texts(value, read)?, flags));
    match name {
        "loop_breaker" => match value {
            None => Ok(Extra::LoopBreaker(0)),
            Some(value) => {
                let tokens = value.parse().ok().filter(|&tokens| tokens > 0);
                let wrong = || "the least number of tokens is a whole number above 0".to_owned();
                tokens.map(Extra::LoopBreaker).ok_or_else(wrong)
            }
        },
        "ban_strings" => bans(0),
        "ban_strings_any_case" => bans(LLAMA_SIEVE_BAN_FOLD_CASE),
        "ban_regex" => bans(LLAMA_SIEVE_BAN_REGEX),
        "ban_regex_any_case" => bans(LLAMA_SIEVE_BAN_REGEX | LLAMA_SIEVE_BAN_FOLD_CASE),
        "top_a" => number(value).map(Extra::TopA),
        "epsilon_cutoff" => number(value).map(Extra::EpsilonCutoff),
        "eta_cutoff" => number(value).map(Extra::EtaCutoff),
        "top_h" => number(value).map(Extra::TopH),
        "min_k" => number(value.or(Some("0"))).map(Extra::MinK),
        "p_less" => match value {
            None => Ok(Extra::PLess(false)),
            Some("normalised") => Ok(Extra::PLess(true)),
            Some(_) => Err("it has no value but normalised".to_owned()),
        },
        "quadratic" => {
            let value = value.unwrap_or_default();
            let (factor, curve) = value.split_once(',').unwrap_or((value, "1"));
            Ok(Extra::Quadratic(
                number(Some(factor))?,
                number(Some(curve))?,
            ))
        }
        _ => Err(
            "known are loop_breaker, ban_strings, ban_strings_any_case, ban_regex, \
             ban_regex_any_case, top_a, epsilon_cutoff, eta_cutoff, p_less, top_h, min_k and \
             quadratic"
                .to_owned(),
        ),
    }
}

fn number(value: Option<&str>) -> Result<f32, String> {
    let number = value.and_then(|value| value.trim().parse::<f32>().ok());
    let finite = number.filter(|number| number.is_finite());
    finite.ok_or_else(|| "it wants a number, as top_h=0.4 has".to_owned())
}

/// Returns the lines of the file named `value` that are not empty, or the reason why there are
/// none.
fn texts(
    value: Option<&str>,
    read: &impl Fn(&str) -> io::Result<Vec<u8>>,
) -> Result<Vec<CString>, String> {
    let Some(path) = value.filter(|path| !path.is_empty()) else {
        return Err("it wants a file of texts, one in each line".to_owned());
    };
    let bytes = read(path).map_err(|error| format!("the file cannot be read: {error}"))?;
    let lines = bytes.split(|&byte| byte == b'\n');
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let lines = lines.filter(|line| !line.is_empty());
    let texts: Result<Vec<CString>, _> = lines.map(CString::new).collect();
    let texts = texts.map_err(|_| "there is a NUL in the file".to_owned())?;
    match texts.is_empty() {
        true => Err("there is no text in the file".to_owned()),
        false => Ok(texts),
    }
}

/// Returns the members that the environment names, and a message for each one that is left out
/// because of a fault. The environment is read once, so that chains get the members that were
/// announced.
fn from_environment() -> &'static (Vec<Extra>, Vec<String>) {
    static READ: OnceLock<(Vec<Extra>, Vec<String>)> = OnceLock::new();
    READ.get_or_init(|| match environment::variable(VARIABLE) {
        Some(text) => parse(&text, read_texts),
        None => (Vec::new(), Vec::new()),
    })
}

/// Returns the contents of a file of texts. Devices and pipes are refused, since they may never
/// end.
fn read_texts(path: &str) -> io::Result<Vec<u8>> {
    // Each text may end with one or two bytes of line break.
    const MOST: u64 = (LLAMA_SIEVE_BAN_MAX_BYTES + 2 * LLAMA_SIEVE_BAN_MAX_TEXTS) as u64;
    let mut options = std::fs::OpenOptions::new();
    #[cfg(unix)]
    options.custom_flags(libc::O_NONBLOCK);
    let file = options.read(true).open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::other(
            "it is no file; name one that has the texts",
        ));
    }
    if about.len() > MOST {
        let n = about.len();
        return Err(io::Error::other(format!(
            "it has {n} bytes; {MOST} are read at most"
        )));
    }
    let mut bytes = Vec::new();
    file.take(MOST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl Extra {
    /// Returns the name that `llama_sampler_name` reports.
    fn name(&self) -> &'static CStr {
        match self {
            Self::LoopBreaker(_) => c"loop-breaker",
            Self::BanStrings(..) => c"ban-strings",
            Self::TopA(_) => c"top-a",
            Self::EpsilonCutoff(_) => c"epsilon-cutoff",
            Self::EtaCutoff(_) => c"eta-cutoff",
            Self::PLess(_) => c"p-less",
            Self::TopH(_) => c"top-h",
            Self::MinK(_) => c"min-k",
            Self::Quadratic(..) => c"quadratic",
        }
    }

    /// True if this member comes before all members of the chain.
    fn is_first(&self) -> bool {
        matches!(self, Self::BanStrings(..))
    }

    /// Makes the sampler. Returns NULL, with the reason as last error, if that fails.
    fn make(&self) -> *mut llama_sampler {
        match self {
            Self::LoopBreaker(min_tokens) => {
                let params = llama_sieve_loop_params {
                    struct_size: size_of::<llama_sieve_loop_params>(),
                    action: 0,
                    max_period: 0,
                    min_tokens: *min_tokens,
                    temperature: 0.0,
                    tokens: null(),
                    n_tokens: 0,
                    vocab: null(),
                };
                // SAFETY: a struct of its size, without pointers.
                unsafe { llama_sieve_init_loop_breaker(&params) }
            }
            Self::BanStrings(texts, flags) => {
                let Some(vocab) = vocabularies::of_this_thread() else {
                    last_error::set(
                        llama_sieve::errors::LLAMA_SIEVE_ERROR_NOT_FOUND,
                        "no vocabulary was asked for by llama_model_get_vocab on this thread, and \
                         there are several, or none",
                    );
                    return null_mut();
                };
                let pointers: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
                // SAFETY: the host has returned this vocabulary, and its model was not freed; there
                // are as many strings as the number that is passed.
                unsafe {
                    llama_sieve_init_ban_strings(vocab, pointers.as_ptr(), pointers.len(), *flags)
                }
            }
            Self::TopA(a) => llama_sieve_init_top_a(*a),
            Self::EpsilonCutoff(epsilon) => llama_sieve_init_epsilon_cutoff(*epsilon),
            Self::EtaCutoff(eta) => llama_sieve_init_eta_cutoff(*eta),
            Self::PLess(normalised) => llama_sieve_init_p_less(*normalised),
            Self::TopH(alpha) => llama_sieve_init_top_h(*alpha),
            Self::MinK(tau) => llama_sieve_init_min_k(*tau),
            Self::Quadratic(factor, curve) => llama_sieve_init_quadratic(*factor, *curve),
        }
    }
}

/// True if the environment names any members.
pub fn is_named() -> bool {
    environment::variable(VARIABLE).is_some()
}

/// Reports, when the library is loaded, the members that every chain gets.
pub fn announce() {
    let (extras, warnings) = from_environment();
    for warning in warnings {
        log::warn(warning);
    }
    if !extras.is_empty() {
        let names = names(extras.iter().map(Extra::name));
        log::log(
            log::Level::Info,
            &format!(
                "{VARIABLE}: every chain gets {names}: bans in front of all members, the rest in \
                 front of the last"
            ),
        );
    }
}

fn names(names: impl Iterator<Item = &'static CStr>) -> String {
    let names: Vec<_> = names.map(|name| name.to_string_lossy()).collect();
    names.join(", ")
}

/// Names of the samplers that choose a token.
const CHOOSING: [&CStr; 5] = [
    c"greedy",
    c"dist",
    c"mirostat",
    c"mirostat-v2",
    c"adaptive-p",
];

static NAME_OF: Function = Function::new(c"llama_sampler_name");
static N_OF: Function = Function::new(c"llama_sampler_chain_n");
static MEMBER_OF: Function = Function::new(c"llama_sampler_chain_get");

/// Returns the name of a sampler; `None` if it has none.
///
/// # Safety
/// `smpl` is NULL or a live sampler.
unsafe fn name_of<'a>(smpl: *const llama_sampler) -> Option<&'a CStr> {
    if smpl.is_null() {
        return None;
    }
    let name = call_host!(
        NAME_OF.route(),
        (*const llama_sampler) -> *const c_char,
        (smpl),
        null()
    );
    // SAFETY: a sampler's name is NULL or a C string that lives as long as the sampler.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })
}

/// True if this is the name of the sampler for `extra`, perhaps with the `?` of a sampler that its
/// parameters disable.
fn is_of(name: &CStr, extra: &Extra) -> bool {
    let name = name.to_bytes();
    name.strip_prefix(b"?").unwrap_or(name) == extra.name().to_bytes()
}

/// Returns the number of a chain's members.
///
/// # Safety
/// `chain` is a live chain.
unsafe fn n_members(chain: *const llama_sampler) -> i32 {
    call_host!(N_OF.route(), (*const llama_sampler) -> i32, (chain), 0)
}

/// True if the last members of a chain are those for `extras`, which means that the chain is a
/// copy.
///
/// # Safety
/// `chain` is a live chain.
unsafe fn has(chain: *mut llama_sampler, extras: &[&Extra]) -> bool {
    // SAFETY: the caller guarantees the chain.
    let first = unsafe { n_members(chain) } - i32::try_from(extras.len()).unwrap_or(i32::MAX);
    let is_there = |(i, extra): (i32, &&Extra)| {
        let member = call_host!(
            MEMBER_OF.route(),
            (*mut llama_sampler, i32) -> *mut llama_sampler,
            (chain, i),
            null_mut()
        );
        // SAFETY: a member lives as long as its chain.
        unsafe { name_of(member) }.is_some_and(|name| is_of(name, extra))
    };
    first >= 0 && (first..).zip(extras).all(is_there)
}

/// Returns the members to be added to `chain` before the sampler named `name`.
///
/// # Safety
/// `chain` is a live chain.
unsafe fn wanted<'a>(
    chain: *mut llama_sampler,
    name: &CStr,
    extras: &'a [Extra],
) -> Vec<&'a Extra> {
    let (first, others): (Vec<&Extra>, Vec<&Extra>) =
        extras.iter().partition(|extra| extra.is_first());
    let mut wanted = Vec::new();
    // SAFETY: the caller guarantees the chain.
    let is_empty = unsafe { n_members(chain) } == 0;
    // The first sampler that is added to a copy of a chain is one of these bans.
    if is_empty && !first.iter().any(|extra| is_of(name, extra)) {
        wanted.extend(first);
    }
    // SAFETY: the caller guarantees the chain.
    if CHOOSING.contains(&name) && !unsafe { has(chain, &others) } {
        wanted.extend(others);
    }
    wanted
}

/// Returns the samplers for `extras`. Those that cannot be made are left out, with a warning.
fn made(extras: &[&Extra]) -> Vec<*mut llama_sampler> {
    let mut all = Vec::new();
    for extra in extras {
        let sampler = extra.make();
        let name = extra.name().to_string_lossy();
        if sampler.is_null() {
            warn(&name, &last_error::get());
            continue;
        }
        say(format_args!("{name}(): added to a chain"));
        all.push(sampler);
    }
    all
}

fn warn(name: &dyn Display, why: &str) {
    log::warn(&format!("{VARIABLE}: a chain goes without {name}: {why}"));
}

/// Stand-in for `llama_sampler_chain_add`: adds the members that the user wants in every chain,
/// before its first member and before the one that chooses.
///
/// # Safety
/// The arguments meet the requirements of llama.h.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_sampler_chain_add(
    chain: *mut llama_sampler,
    smpl: *mut llama_sampler,
) {
    type Add = unsafe extern "C-unwind" fn(*mut llama_sampler, *mut llama_sampler);
    static HOSTS: Function = Function::new(c"llama_sampler_chain_add");
    let (extras, _) = from_environment();
    let theirs = match choice::other(&HOSTS) {
        choice::Other::Ours(theirs) if !extras.is_empty() => theirs,
        choice::Other::Ours(theirs) | choice::Other::Theirs(theirs) => {
            return call_host!(theirs, (*mut llama_sampler, *mut llama_sampler) -> (), (chain, smpl));
        }
        choice::Other::Nowhere => return,
    };
    // SAFETY: the host's function of this name.
    let add = unsafe { transmute::<*mut c_void, Add>(theirs.address()) };
    // SAFETY: the caller guarantees chain and sampler.
    let wanted = match unsafe { name_of(smpl) } {
        // SAFETY: as above.
        Some(name) if !chain.is_null() => unsafe { wanted(chain, name, extras) },
        _ => Vec::new(),
    };
    for extra in guard("llama_sampler_chain_add", Vec::new, || made(&wanted)) {
        // SAFETY: as above; a new sampler, which the chain takes over.
        unsafe { add(chain, extra) };
    }
    // SAFETY: as above.
    unsafe { add(chain, smpl) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> io::Result<Vec<u8>> {
        match path {
            "texts" => Ok(b"delve\n\r\n a tapestry\r\n".to_vec()),
            "empty" => Ok(b"\n\n".to_vec()),
            "nul" => Ok(b"a\0b\n".to_vec()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    #[test]
    fn members_are_read_in_their_order() {
        let text = "loop_breaker; ban_strings=texts;top-h=0.4;;p_less;quadratic=0.3,2;min_k";
        let (extras, warnings) = parse(text, read);
        let texts = vec![c"delve".to_owned(), c" a tapestry".to_owned()];
        let expected = [
            Extra::LoopBreaker(0),
            Extra::BanStrings(texts.clone(), 0),
            Extra::TopH(0.4),
            Extra::PLess(false),
            Extra::Quadratic(0.3, 2.0),
            Extra::MinK(0.0),
        ];
        assert_eq!(extras, expected);
        assert!(warnings.is_empty());
        let (extras, _) = parse(
            "ban_strings_any_case=texts;ban_regex=texts;loop_breaker=30",
            read,
        );
        assert_eq!(
            extras,
            [
                Extra::BanStrings(texts.clone(), LLAMA_SIEVE_BAN_FOLD_CASE),
                Extra::BanStrings(texts, LLAMA_SIEVE_BAN_REGEX),
                Extra::LoopBreaker(30)
            ]
        );
        let text = "top_a=.2; epsilon_cutoff=3e-4;eta-cutoff = 2e-4;p_less=normalised;quadratic=.2";
        let (extras, _) = parse(text, read);
        let expected = [
            Extra::TopA(0.2),
            Extra::EpsilonCutoff(3e-4),
            Extra::EtaCutoff(2e-4),
            Extra::PLess(true),
            Extra::Quadratic(0.2, 1.0),
        ];
        assert_eq!(extras, expected);
    }

    #[test]
    fn what_is_wrong_is_left_out_and_told() {
        for (text, told) in [
            ("loopbreaker", "known are loop_breaker"),
            ("loop_breaker=0", "above 0"),
            ("loop_breaker=x", "above 0"),
            ("ban_strings", "wants a file"),
            ("ban_strings=", "wants a file"),
            ("ban_strings=nowhere", "cannot be read"),
            ("ban_strings=empty", "no text in the file"),
            ("ban_strings=nul", "NUL"),
            ("top_h", "wants a number"),
            ("top_h=nan", "wants a number"),
            ("p_less=0.5", "normalised"),
            ("quadratic", "wants a number"),
        ] {
            let (extras, warnings) = parse(&format!("top_a=0.1;{text}"), read);
            assert_eq!(extras, [Extra::TopA(0.1)]);
            assert_eq!(warnings.len(), 1);
            assert!(warnings[0].contains(told), "{}", warnings[0]);
            assert!(warnings[0].contains("go without it"));
        }
    }

    #[test]
    fn neither_pipes_nor_devices_nor_huge_files_are_read() {
        let folder = std::env::temp_dir().join(format!("llama-sieve-extra-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("made");
        let path = |name: &str| folder.join(name).to_str().expect("UTF-8").to_owned();
        let pipe = CString::new(path("pipe")).expect("no NUL");
        // SAFETY: a C string.
        assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
        std::fs::write(path("huge"), vec![b'a'; 1 << 19]).expect("written");
        std::fs::write(path("texts"), "a\n").expect("written");
        for (file, told) in [
            (path("pipe"), "is no file"),
            ("/dev/zero".to_owned(), "is no file"),
            (path("huge"), "524288 bytes"),
            (path("none"), "No such file"),
        ] {
            let error = read_texts(&file).expect_err("it is not read").to_string();
            assert!(error.contains(told), "{error}");
        }
        assert_eq!(read_texts(&path("texts")).expect("a file"), b"a\n");
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
