//! Tests that both forms of the library can be linked and loaded.

use std::ffi::{CStr, CString, c_char};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use vendor_llama_cpp::{paths, reference};

#[test]
fn the_shared_library_loads() {
    let path = CString::new(paths::shared_library().as_os_str().as_bytes()).unwrap();
    // SAFETY: the path ends with NUL, and libllama's constructors need nothing from the program.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!library.is_null());
    for name in [c"llama_sampler_init", c"ggml_init", c"gguf_init_empty"] {
        // SAFETY: the library stays loaded, and the name ends with NUL.
        let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
        assert!(!symbol.is_null(), "{name:?}");
    }
    // SAFETY: as above.
    let version = unsafe { libc::dlsym(library, c"llama_version".as_ptr()) };
    assert!(!version.is_null());
    // SAFETY: llama.h declares llama_version with this type.
    let version: extern "C" fn() -> *const c_char = unsafe { std::mem::transmute(version) };
    // SAFETY: it returns a constant string.
    let version = unsafe { CStr::from_ptr(version()) };
    assert_eq!(
        version.to_str().unwrap(),
        vendor_llama_cpp::model::version()
    );
}

#[test]
fn the_soname_leads_to_the_shared_library() {
    let library = paths::shared_library();
    let soname = library.with_file_name("libllama.so.0");
    assert_eq!(
        fs::canonicalize(soname).unwrap(),
        fs::canonicalize(library).unwrap()
    );
}

#[test]
fn c_programs_link_with_both() {
    let dir = std::env::temp_dir().join(format!("vendor-llama-link-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let source = dir.join("main.c");
    let text = "#include \"llama.h\"\n#include <stdio.h>\n\
                int main(void) { puts(llama_version()); return 0; }\n";
    fs::write(&source, text).unwrap();

    let mut statically = compile(&source, &dir.join("static"));
    statically.arg(paths::static_library());
    statically.args(paths::static_link_args());
    run(&mut statically);
    let mut shared = compile(&source, &dir.join("shared"));
    shared.arg(paths::shared_library());
    shared.arg(format!("-Wl,-rpath,{}", paths::build_dir().display()));
    run(&mut shared);

    for name in ["static", "shared"] {
        let said = run(&mut Command::new(dir.join(name)));
        assert_eq!(said.trim(), vendor_llama_cpp::model::version());
    }
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn random_numbers_are_those_of_the_standard() {
    // The C++ standard fixes the 10000th 32-bit draw of seed 5489; a double takes two draws, the
    // lower half first.
    let draws = reference::std_uniform_double(5489, 5000);
    let upper = (draws[4999] * 4_294_967_296.0) as u64;
    assert_eq!(upper, 4_123_659_995);
    assert!(draws.iter().all(|draw| (0.0..1.0).contains(draw)));
}

#[test]
fn sorting_equal_elements_permutes_them() {
    for n in [0, 1, 16, 17, 1000] {
        let mut order = reference::std_sort(&vec![1.0; n]);
        order.sort_unstable();
        assert!(order.iter().copied().eq(0..u32::try_from(n).unwrap()));
    }
}

fn compile(source: &Path, program: &Path) -> Command {
    let mut command = Command::new(paths::c_compiler());
    for dir in paths::include_dirs() {
        command.arg("-I").arg(dir);
    }
    command.arg("-o").arg(program).arg(source);
    command
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{error}");
    String::from_utf8(output.stdout).unwrap()
}
