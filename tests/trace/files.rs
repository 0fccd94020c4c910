//! Tests the file of a trace: its permissions, errors while it is written, and forked processes.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use llama_sieve::Chain;
use llama_sieve::samplers::{Dist, MinP, Temp, TopK, TopP};
use llama_sieve::sieve::{Params, Sieve};
use llama_sieve::trace::{self, Options};
use serde_json::Value;

use crate::record::{Lines, check, tokens};
use crate::support::{alone, fresh_rng};

/// The folder of one test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("llama-sieve-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("a new folder");
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn chain() -> Chain {
    Chain::new()
        .with(TopK::new(40))
        .with(TopP::new(0.95, 1))
        .with(MinP::new(0.05, 1))
        .with(Temp::new(0.8))
        .with(Some(Dist::new(42)))
}

fn logits() -> Vec<f32> {
    let mut rng = fresh_rng("logits of a trace");
    (0..1000).map(|_| 2.0 * rng.normal()).collect()
}

fn lines_of(path: impl AsRef<Path>) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("the file is there");
    assert!(text.ends_with('\n'), "{text:?}");
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

fn sample(chain: &mut Chain, n: usize) -> Vec<i32> {
    let logits = logits();
    let token = |_| {
        let token = chain.sample(&logits[..]).expect("a token");
        chain.accept(token);
        token
    };
    (0..n).map(token).collect()
}

#[test]
fn a_file_has_all_lines_and_is_for_its_user_alone() {
    let _alone = alone();
    let folder = Folder::new("all");
    let path = folder.file("trace.jsonl");
    let expected = sample(&mut chain(), 20);
    trace::to_file(&path, Options::default()).expect("a new file");
    assert_eq!(sample(&mut chain(), 20), expected);
    trace::stop();
    sample(&mut chain(), 1);
    let lines = lines_of(&path);
    check(&lines);
    let kinds: Vec<&Value> = lines.iter().map(|line| &line["kind"]).collect();
    assert_eq!(kinds[..3], ["start", "sequence", "token"]);
    let ids: Vec<&Value> = tokens(&lines).iter().map(|t| &t["token"]["id"]).collect();
    assert_eq!(ids, expected);
    let mode = fs::metadata(&path)
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    // Another trace replaces it.
    trace::to_file(&path, Options::default()).expect("the same file");
    trace::stop();
    assert_eq!(lines_of(&path).len(), 1);
}

#[test]
fn a_sieve_tells_its_stages_as_a_chain_does() {
    let _alone = alone();
    let logits = logits();
    let params = Params {
        seed: 42,
        ..Params::default()
    };
    let mut sieve = Sieve::new(&params).expect("parameters");
    let mut plain = sieve.clone();
    let lines = Lines::begin("");
    let token = sieve.sample(&logits).expect("a token");
    sieve.accept(token);
    let second = sieve.sample(&logits).expect("a token");
    let lines = lines.end();
    assert_eq!(plain.sample(&logits), Ok(token));
    plain.accept(token);
    assert_eq!(plain.sample(&logits), Ok(second));
    let names = |line: &Value| -> Vec<String> {
        let stages = line["stages"].as_array().expect("stages");
        stages
            .iter()
            .map(|s| s["name"].as_str().expect("a name").to_owned())
            .collect()
    };
    let token = tokens(&lines)[0];
    assert_eq!(names(token), ["top-k", "top-p", "min-p", "temp", "dist"]);
    let from_chain = Lines::begin("");
    sample(&mut chain(), 1);
    let from_chain = from_chain.end();
    let chains = tokens(&from_chain)[0];
    for field in ["token", "top", "entropy", "log_sum_exp"] {
        assert_eq!(token[field], chains[field], "{field}");
    }
}

#[test]
fn without_texts_no_token_can_be_told() {
    let _alone = alone();
    let lines = Lines::begin("n=3,text=off");
    sample(&mut chain(), 2);
    let lines = lines.end();
    let token = tokens(&lines)[1];
    assert_eq!(token["top"].as_array().map(Vec::len), Some(3));
    for piece in [&token["token"], &token["top"][0]] {
        for secret in ["id", "text", "bytes"] {
            assert_eq!(piece.get(secret), None, "{piece}");
        }
    }
}

#[test]
fn what_is_no_file_of_ones_own_is_refused_with_the_reason() {
    let _alone = alone();
    let folder = Folder::new("refused");
    let plain = folder.file("plain");
    fs::write(&plain, "kept").expect("a new file");
    symlink(&plain, folder.file("link")).expect("a new link");
    fs::hard_link(&plain, folder.file("second")).expect("a second name");
    for (name, reason) in [
        ("link", "link"),
        ("second", "several names"),
        (".", "director"),
        ("missing/file", "No such file"),
    ] {
        let refused = trace::to_file(&folder.file(name), Options::default());
        let text = refused.expect_err(name);
        assert!(text.contains(reason), "{text}");
    }
    assert_eq!(fs::read_to_string(&plain).expect("it is there"), "kept");
    // A file that another process writes.
    let own = folder.file("own");
    trace::to_file(&own, Options::default()).expect("a new file");
    let locked = fs::OpenOptions::new()
        .write(true)
        .open(&own)
        .expect("it is there");
    trace::stop();
    locked.lock().expect("nobody has it");
    let text = trace::to_file(&own, Options::default()).expect_err("it is taken");
    assert!(text.contains("%p"), "{text}");
    for (options, word) in [("n=101", "100"), ("n=x", "100"), ("txt=off", "text=off")] {
        let text = Options::parse(options).expect_err(options);
        assert!(text.contains(word), "{text}");
    }
}

/// Returns the result of `work`, and the messages that it has logged.
fn heard_while<T>(work: impl FnOnce() -> T) -> (T, Vec<String>) {
    let heard = Arc::new(std::sync::Mutex::new(Vec::new()));
    let to = heard.clone();
    llama_sieve::log::set_sink(Some(Arc::new(move |_, text| {
        to.lock().expect("one thread").push(text.to_owned());
    })));
    let result = work();
    llama_sieve::log::set_sink(None);
    let heard = std::mem::take(&mut *heard.lock().expect("one thread"));
    (result, heard)
}

/// Returns the descriptor of this process that refers to the file.
fn descriptor_of(path: &str) -> i32 {
    let wanted = fs::metadata(path).expect("the file is there");
    let found = (3..1024).find(|descriptor| {
        let metadata = fs::metadata(format!("/proc/self/fd/{descriptor}"));
        metadata.is_ok_and(|it| (it.dev(), it.ino()) == (wanted.dev(), wanted.ino()))
    });
    found.expect("the trace has it open")
}

/// Checks that the trace of `path` ends with one message and whole lines after the program takes
/// its descriptor away by `take`.
fn check_end_without_descriptor(path: &str, take: impl FnOnce(i32)) {
    let expected = sample(&mut chain(), 5);
    trace::to_file(path, Options::default()).expect("a new file");
    sample(&mut chain(), 2);
    take(descriptor_of(path));
    let (tokens, heard) = heard_while(|| sample(&mut chain(), 5));
    assert_eq!(tokens, expected);
    assert!(!trace::is_on());
    trace::stop();
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert!(heard[0].contains("closed its descriptor"), "{heard:?}");
    assert_eq!(tokens_of(path), 2);
}

fn tokens_of(path: &str) -> usize {
    tokens(&lines_of(path)).len()
}

#[test]
fn a_file_that_has_got_the_descriptor_is_neither_written_nor_closed() {
    let _alone = alone();
    let folder = Folder::new("replaced");
    let (path, other) = (folder.file("trace.jsonl"), folder.file("other"));
    let mut at = -1;
    check_end_without_descriptor(&path, |descriptor| {
        let file = fs::File::create(&other).expect("a new file");
        // SAFETY: the trace's descriptor is replaced as a program does that closes all of them.
        at = unsafe { libc::dup2(file.as_raw_fd(), descriptor) };
        assert_eq!(at, descriptor);
    });
    assert_eq!(fs::read(&other).expect("it is there"), b"");
    assert_eq!(descriptor_of(&other), at, "it has been closed");
    // SAFETY: the trace has left the descriptor to this test.
    unsafe { libc::close(at) };
}

#[test]
fn a_record_that_is_stopped_leaves_a_descriptor_that_is_not_its_own() {
    let _alone = alone();
    let folder = Folder::new("stopped");
    let (path, other) = (folder.file("trace.jsonl"), folder.file("other"));
    trace::to_file(&path, Options::default()).expect("a new file");
    let descriptor = descriptor_of(&path);
    let file = fs::File::create(&other).expect("a new file");
    // SAFETY: the trace's descriptor is replaced as a program does that closes all of them.
    let replaced = unsafe { libc::dup2(file.as_raw_fd(), descriptor) };
    assert_eq!(replaced, descriptor);
    drop(file);
    trace::stop();
    assert_eq!(descriptor_of(&other), descriptor);
    // SAFETY: the trace has left the descriptor to this test.
    unsafe { libc::close(descriptor) };
}

#[test]
fn a_closed_descriptor_ends_the_record_and_nothing_else() {
    let _alone = alone();
    let folder = Folder::new("closed");
    let path = folder.file("trace.jsonl");
    // In a separate process, so that no other thread opens a file with the same number.
    forked(|| {
        check_end_without_descriptor(&path, |descriptor| {
            // SAFETY: the trace's descriptor is closed as a program does that closes all of them.
            assert_eq!(unsafe { libc::close(descriptor) }, 0);
        });
    });
}

#[test]
fn a_full_disk_ends_the_record_and_nothing_else() {
    let _alone = alone();
    let folder = Folder::new("full");
    let path = folder.file("trace.jsonl");
    let expected = sample(&mut chain(), 50);
    // In a separate process, since the limit is also one for the file of the tests' own output.
    forked(|| {
        let (tokens, heard) = heard_while(|| {
            // SAFETY: only changes the limit of this process on the size of files.
            unsafe {
                libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
                let mut limit = std::mem::zeroed::<libc::rlimit>();
                libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit);
                limit.rlim_cur = 10_000;
                assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
            }
            trace::to_file(&path, Options::default()).expect("a new file");
            sample(&mut chain(), 50)
        });
        trace::stop();
        assert_eq!(tokens, expected);
        assert_eq!(heard.len(), 1, "{heard:?}");
        assert!(heard[0].contains("cannot be written"), "{heard:?}");
    });
    let lines = lines_of(&path);
    assert!((2..30).contains(&lines.len()), "{}", lines.len());
}

/// Runs `body` in a forked process, which must end successfully within 300 seconds. Returns its
/// process id.
fn forked(body: impl FnOnce()) -> u32 {
    // SAFETY: the child runs only `body`, and ends without running the parent's cleanup.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(300);
            let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            libc::_exit(i32::from(ran.is_err()));
        }
        let mut status = -1;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(status, 0, "the child has failed or hung");
        child as u32
    }
}

#[test]
fn a_forked_process_has_its_own_file_or_none() {
    let _alone = alone();
    let folder = Folder::new("forked");
    let shared = folder.file("shared.jsonl");
    trace::to_file(&shared, Options::default()).expect("a new file");
    let mut parents = chain();
    sample(&mut parents, 2);
    forked(|| {
        sample(&mut chain(), 2);
        assert!(!trace::is_on());
    });
    sample(&mut parents, 1);
    trace::stop();
    assert_eq!(tokens(&lines_of(&shared)).len(), 3);

    trace::to_file(&folder.file("own-%p-%%.jsonl"), Options::default()).expect("a new file");
    sample(&mut parents, 2);
    let child = forked(|| {
        sample(&mut chain(), 4);
    });
    trace::stop();
    let of = |pid: u32| lines_of(folder.file(&format!("own-{pid}-%.jsonl")));
    assert_eq!(tokens(&of(std::process::id())).len(), 2);
    let childs = of(child);
    assert_eq!(childs[0]["pid"], child);
    assert_eq!(tokens(&childs).len(), 4);
}

#[test]
fn a_function_may_sample_and_end_the_record() {
    let _alone = alone();
    let logits = logits();
    let heard = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = heard.clone();
    let function = move |_: &[u8]| {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        chain().sample(&logits[..]).expect("a token");
        trace::stop();
    };
    trace::to_function(Arc::new(function), Options::default()).expect("it cannot fail");
    sample(&mut chain(), 3);
    trace::stop();
    assert!(!trace::is_on());
    assert_eq!(heard.load(std::sync::atomic::Ordering::Relaxed), 1);
}
