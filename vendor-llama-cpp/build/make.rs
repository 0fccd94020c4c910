//! Compiles the units and joins them into the two libraries.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::UNIX_EPOCH;

use crate::SYSTEM_LIBRARIES;
use crate::fnv::Fnv;
use crate::source::Source;
use crate::toolchain::Toolchain;
use crate::units::{self, Unit};

/// The static library's name as the linker expects it.
pub const STATIC_LIBRARY_NAME: &str = "llama_static";

const SHARED_LIBRARY: &str = "libllama.so";
const SONAME: &str = "libllama.so.0";

/// The files that the build has made.
pub struct Made {
    pub static_library: PathBuf,
    pub shared_library: PathBuf,
    /// A file that is written, with a mark of the shim's version, once both libraries are complete.
    pub stamp: PathBuf,
}

pub fn libraries(source: &Source, tools: &Toolchain, shim: &Path, build_dir: &Path) -> Made {
    for dir in [units::objects(build_dir), units::generated(build_dir)] {
        check(fs::create_dir_all(&dir), "creating", &dir);
    }
    // Held until this function returns: a second cargo waits for the lock and then finds everything
    // built.
    let _lock = lock(&build_dir.join("lock"));

    let made = Made {
        static_library: build_dir.join(format!("lib{STATIC_LIBRARY_NAME}.a")),
        shared_library: build_dir.join(SHARED_LIBRARY),
        stamp: build_dir.join("complete"),
    };
    let shim_version = text_hash(shim);
    let mark = format!("shim {shim_version:016x}\n");
    if is_complete(&made, &mark) {
        return made;
    }

    let llama_cpp = units::llama_cpp(&source.root, tools, build_dir);
    let shim = units::shim(&source.root, shim, shim_version, build_dir);
    compile(tools, &llama_cpp);
    compile(tools, std::slice::from_ref(&shim));

    // The shim is only for this repository's tests, so the shared library is a plain libllama.
    let objects: Vec<&Path> = llama_cpp.iter().map(|unit| unit.object.as_path()).collect();
    link_shared(tools, &objects, &made.shared_library);
    archive(&objects, &shim.object, &made.static_library);
    write_stamp(&made.stamp, &mark);
    made
}

/// Writes the stamp, and sets its modification time to the earliest one. Cargo runs a build script
/// again if a file that it watches is newer than the script's last start, and the stamp is written
/// after that start.
fn write_stamp(stamp: &Path, mark: &str) {
    check(fs::write(stamp, mark), "writing", stamp);
    let file = check(File::options().write(true).open(stamp), "opening", stamp);
    check(file.set_modified(UNIX_EPOCH), "dating", stamp);
}

fn is_complete(made: &Made, mark: &str) -> bool {
    let stamped = fs::read_to_string(&made.stamp).is_ok_and(|text| text == mark);
    stamped && made.static_library.is_file() && made.shared_library.is_file()
}

fn lock(path: &Path) -> File {
    let file = check(File::create(path), "creating", path);
    check(file.lock(), "locking", path);
    file
}

fn text_hash(file: &Path) -> u64 {
    let mut hash = Fnv::new();
    hash.text(&check(fs::read_to_string(file), "reading", file));
    hash.finish()
}

/// Compiles all units, as many in parallel as cargo allows this build script.
fn compile(tools: &Toolchain, units: &[Unit]) {
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    let work = || {
        while let Some(unit) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(message) = compile_one(tools, unit) {
                // No further units are started; those that are being compiled end by themselves.
                next.store(units.len(), Ordering::Relaxed);
                failure.lock().unwrap().get_or_insert(message);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..jobs().min(units.len()) {
            scope.spawn(work);
        }
    });
    if let Some(message) = failure.into_inner().unwrap() {
        panic!("{message}");
    }
}

fn jobs() -> usize {
    let asked = env::var("NUM_JOBS").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from))
}

fn compile_one(tools: &Toolchain, unit: &Unit) -> Result<(), String> {
    if is_fresh(unit) {
        return Ok(());
    }
    let compiler = if unit.is_cxx() { &tools.cxx } else { &tools.c };
    let unfinished = unit.object.with_extension("o.part");
    let mut command = compiler.command();
    command.args(&unit.flags).arg("-c").arg(&unit.source);
    command.arg("-o").arg(&unfinished);
    run(&mut command)?;
    // The object is renamed only when it is complete, so that an interrupted build leaves no
    // partial object.
    fs::rename(&unfinished, &unit.object).map_err(|error| format!("{unfinished:?}: {error}"))
}

fn is_fresh(unit: &Unit) -> bool {
    let time = |file: &Path| fs::metadata(file).and_then(|data| data.modified()).ok();
    match (time(&unit.object), time(&unit.source)) {
        (Some(object), Some(source)) => object >= source,
        _ => false,
    }
}

fn link_shared(tools: &Toolchain, objects: &[&Path], library: &Path) {
    let unfinished = library.with_extension("so.part");
    let mut command = tools.cxx.command();
    command.args(["-shared", &format!("-Wl,-soname,{SONAME}"), "-o"]);
    command.arg(&unfinished).args(objects);
    command.args(SYSTEM_LIBRARIES.map(|library| format!("-l{library}")));
    run(&mut command).unwrap_or_else(|message| panic!("{message}"));
    check(fs::rename(&unfinished, library), "renaming", &unfinished);

    let link = library.with_file_name(SONAME);
    if fs::symlink_metadata(&link).is_ok() {
        check(fs::remove_file(&link), "removing", &link);
    }
    check(
        std::os::unix::fs::symlink(SHARED_LIBRARY, &link),
        "linking",
        &link,
    );
}

fn archive(objects: &[&Path], shim: &Path, library: &Path) {
    let unfinished = library.with_extension("a.part");
    // `ar` adds to an existing archive.
    if unfinished.exists() {
        check(fs::remove_file(&unfinished), "removing", &unfinished);
    }
    let mut command = cc::Build::new().get_archiver();
    command.arg("crs").arg(&unfinished).args(objects).arg(shim);
    run(&mut command).unwrap_or_else(|message| panic!("{message}"));
    check(fs::rename(&unfinished, library), "renaming", &unfinished);
}

/// Runs a command without printing its output. The error contains the command and its stderr.
fn run(command: &mut Command) -> Result<(), String> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}\n{}\n{said}", output.status))
}

fn check<T>(result: std::io::Result<T>, doing: &str, path: &Path) -> T {
    result.unwrap_or_else(|error| panic!("{doing} {}: {error}", path.display()))
}
