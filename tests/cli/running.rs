//! Tests the command `run`.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crate::programs::{generate, model};
use crate::toolchain::{copy_program, empty_folder};
use crate::{answer, call, call_of, installed};

/// The library itself reports that it is loaded, and what it does.
#[test]
fn a_program_samples_with_ours() {
    let program = generate().display().to_string();
    let model = model();
    let arguments = [program.as_str(), &model, "1", "2"];
    let command = |before: &[&str]| answer(call(&[before, &arguments].concat()));
    let (code, ours, err) = command(&["run", "--verbose", "--"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("is loaded into"), "{err}");
    assert!(
        err.contains("llama-sieve: preload: top-k(k=40): ours"),
        "{err}"
    );
    let (_, alone, err) = command(&["run", "--only", "off", "--"]);
    assert_eq!(err, "");
    assert_eq!(ours, alone);
}

#[test]
fn the_exit_code_and_the_arguments_are_the_programs() {
    let script = "echo \"$0 $@\"; exit 7";
    let (code, out, err) = answer(call(&["run", "sh", "-c", script, "--", "--help", "-V"]));
    assert_eq!(
        (code, out.as_str(), err.as_str()),
        (7, "-- --help -V\n", "")
    );
}

#[test]
fn what_was_preloaded_stays_behind_ours() {
    let mut command = call(&["run", "--", "sh", "-c", "echo $LD_PRELOAD"]);
    command.env("LD_PRELOAD", "libm.so.6");
    let (code, out, err) = answer(command);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(
        out.ends_with("/lib/libllama_sieve_preload.so:libm.so.6\n"),
        "{out}"
    );
}

#[test]
fn what_cannot_be_run_has_the_codes_of_env() {
    let text = empty_folder("cli_text").join("text");
    fs::write(&text, "text\n").expect("the folder was just made");
    let name = text.display().to_string();
    for (program, expected, says) in [
        (name.as_str(), 126, "Permission denied"),
        ("/dev", 126, "Permission denied"),
        ("no-such-program-at-all", 127, "no such program"),
        ("/no/such/program", 127, "no such program"),
        ("", 127, "no such program"),
    ] {
        let (code, _, err) = answer(call(&["run", "--", program]));
        assert!(
            code == expected && err.contains(says),
            "{program}: {code}, {err}"
        );
    }
}

/// The dynamic linker silently ignores LD_PRELOAD for a setuid program.
#[test]
fn a_program_with_more_rights_is_told_of_and_runs() {
    let program = empty_folder("cli_setuid").join("program");
    copy_program(Path::new("/bin/echo"), &program);
    fs::set_permissions(&program, Permissions::from_mode(0o4755)).expect("it is ours");
    let (code, out, err) = answer(call(&["run", "--", &program.display().to_string(), "a"]));
    assert_eq!((code, out.as_str()), (0, "a\n"));
    assert!(err.contains("more rights than its user has"), "{err}");
}

#[test]
fn a_path_that_ld_preload_cannot_name_is_refused() {
    let folder = empty_folder("cli_path").join("with space");
    let bin = folder.join("bin");
    fs::create_dir_all(&bin).expect("the folder was just made");
    let own = installed();
    copy_program(own, &bin.join("llama-sieve"));
    fs::create_dir(folder.join("lib")).expect("the folder was just made");
    let library = "lib/libllama_sieve_preload.so";
    let ours = own.ancestors().nth(2).expect("it is in bin").join(library);
    fs::copy(&ours, folder.join(library)).expect("the folder was just made");
    let program = bin.join("llama-sieve");
    let (code, _, err) = answer(call_of(&program, &["run", "--", "true"]));
    assert!(
        code == 125 && err.contains("a space or a colon"),
        "{code}, {err}"
    );
    // A symbolic link is followed to the folder of the libraries.
    let link = empty_folder("cli_link").join("llama-sieve");
    symlink(own, &link).expect("the folder was just made");
    assert_eq!(answer(call_of(&link, &["run", "--", "true"])).0, 0);
}
