//! Tests `npx llama-sieve`, the npm package's command, with and without the program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::toolchain::{
    Link, copy_program, empty_folder, our_library, preload_library, root, skipped,
};
use crate::{answer, installed};

/// Makes a folder with the package's `bin` and `lib`, and `files` in `lib`. Returns the path of the
/// script in `bin`; `None` without node.
fn package(name: &str, files: &[&Path]) -> Option<PathBuf> {
    if Command::new("node").arg("--version").output().is_err() {
        skipped("npx llama-sieve: node is not installed");
        return None;
    }
    let folder = empty_folder(name);
    for part in ["bin", "lib"] {
        fs::create_dir(folder.join(part)).expect("the folder was just made");
    }
    let script = folder.join("bin/llama-sieve.cjs");
    fs::copy(root().join("node/bin/llama-sieve.cjs"), &script).expect("the script is there");
    for file in files {
        let name = file.file_name().expect("it has a name");
        copy_program(file, &folder.join("lib").join(name));
    }
    Some(script)
}

fn npx(script: &Path, arguments: &[&str]) -> (i32, String, String) {
    let mut node = Command::new("node");
    node.arg(script).args(arguments);
    node.env_remove("LD_PRELOAD")
        .env_remove("LLAMA_SIEVE_LIBRARY");
    answer(node)
}

#[test]
fn without_the_program_it_runs_others() {
    let Some(script) = package("cli_node", &[preload_library()]) else {
        return;
    };
    let shell = ["run", "--verbose", "--only", "off", "--", "sh", "-c"];
    let call = |text: &str| npx(&script, &[&shell[..], &[text]].concat());
    let (code, out, err) = call("echo $LD_PRELOAD $LLAMA_SIEVE_PRELOAD; exit 7");
    assert_eq!(code, 7, "{err}");
    assert!(
        out.ends_with("/lib/libllama_sieve_preload.so off\n"),
        "{out}"
    );
    assert!(err.contains("is loaded into"), "{err}");
    assert_eq!(call("kill -TERM $$").0, 128 + 15);
    let wrong: [(&[&str], i32, &str); 6] = [
        (&[], 2, "no command"),
        (&["doctor", "sh"], 2, "without the program"),
        (&["run"], 2, "which program?"),
        (&["run", "--"], 2, "which program?"),
        (&["run", "--what", "sh"], 2, "--what"),
        (
            &["run", "--", "no-such-program-at-all"],
            127,
            "cannot be run",
        ),
    ];
    for (arguments, expected, says) in wrong {
        let (code, _, err) = npx(&script, arguments);
        assert!(
            code == expected && err.contains(says),
            "{arguments:?}: {code}, {err}"
        );
    }
}

/// Installed as from the released packages: the libraries are in a separate package.
#[test]
fn the_libraries_of_a_package_for_the_machine_are_found() {
    let Some(script) = package("cli_node_platform", &[]) else {
        return;
    };
    let cpu = if cfg!(target_arch = "x86_64") {
        "x64"
    } else {
        "arm64"
    };
    let own = script.ancestors().nth(2).expect("it is in bin");
    let folder = own.join(format!("node_modules/@llama-sieve/linux-{cpu}"));
    fs::create_dir_all(&folder).expect("the folder was just made");
    let library = folder.join("libllama_sieve_preload.so");
    fs::copy(preload_library(), library).expect("the folder was just made");
    fs::write(folder.join("package.json"), "{}").expect("the folder was just made");
    let (code, out, err) = npx(&script, &["run", "sh", "-c", "echo $LD_PRELOAD"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("/node_modules/@llama-sieve/linux-"), "{out}");
}

#[test]
fn without_the_library_it_says_how_to_make_it() {
    let Some(script) = package("cli_node_empty", &[]) else {
        return;
    };
    let (code, _, err) = npx(&script, &["run", "true"]);
    assert!(code == 125 && err.contains("npm run build"), "{err}");
}

#[test]
fn with_the_program_it_is_the_program() {
    let libraries = [&our_library(Link::Shared), preload_library(), installed()];
    let Some(script) = package("cli_node_packed", &libraries) else {
        return;
    };
    let (code, out, _) = npx(&script, &["doctor", "sh"]);
    assert!(code == 1 && out.contains("No llama.cpp here"), "{out}");
    assert_eq!(npx(&script, &["run", "--", "sh", "-c", "exit 7"]).0, 7);
    assert_eq!(npx(&script, &["schema"]).0, 2);
}
