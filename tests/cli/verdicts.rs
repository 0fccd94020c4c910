//! Tests `certify` and `doctor` on the vendored llama.cpp.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;
use vendor_llama_cpp::paths;

use crate::programs::{SAMPLERS, generate};
use crate::toolchain::{empty_folder, root, succeed};
use crate::{answer, answer_to, call};

fn libllama() -> String {
    let library = fs::canonicalize(paths::shared_library());
    library.expect("it was built").display().to_string()
}

fn json(arguments: &[&str], expected: i32) -> Value {
    let (code, out, err) = answer(call(arguments));
    assert_eq!(code, expected, "{out}{err}");
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
}

#[test]
fn every_sampler_of_llama_cpp_is_equal_to_ours() {
    let certificate = json(&["certify", "--json", &libllama()], 0);
    assert_eq!(certificate["library"], libllama());
    let kinds = certificate["kinds"].as_array().expect("a list");
    let names: Vec<_> = kinds.iter().map(|trial| trial["kind"].as_str()).collect();
    let all = SAMPLERS.into_iter().filter(|name| *name != "infill");
    assert_eq!(names, all.map(Some).collect::<Vec<_>>());
    assert!(
        kinds
            .iter()
            .all(|trial| trial["code"] == 0 && trial["reason"] == "")
    );
    let (code, out, _) = answer(call(&["certify", &libllama()]));
    assert_eq!(code, 0);
    assert_eq!(out.matches(": equal\n").count(), names.len(), "{out}");
}

/// With a wrong host profile the drop-ins differ from the host.
#[test]
fn what_differs_is_named_and_has_its_own_code() {
    let mut command = call(&["certify", &libllama()]);
    command.env("LLAMA_SIEVE_PROFILE", "fusion=gcc");
    let (code, out, err) = answer(command);
    assert_eq!(code, 1, "{out}{err}");
    assert!(out.contains("\n  greedy: equal\n"), "{out}");
    assert!(!out.contains("\n  typical: equal\n"), "{out}");
}

#[test]
fn a_library_that_is_no_llama_cpp_is_answered() {
    let ours = root().join("Cargo.toml").display().to_string();
    let (code, _, err) = answer(call(&["certify", &ours]));
    assert!(code == 2 && err.contains("certify: "), "{err}");
    // The machine's C library is loaded into every program.
    let maps = fs::read_to_string("/proc/self/maps").expect("Linux has it");
    let libc = maps.lines().find_map(|line| {
        line.find('/')
            .map(|at| &line[at..])
            .filter(|path| path.contains("libc.so"))
    });
    let (code, _, err) = answer(call(&["certify", libc.expect("it is there")]));
    assert!(code == 2 && err.contains("llama_sampler_init"), "{err}");
}

/// A library whose initialiser prints a lot and then ends the process does not stop the command.
#[test]
fn a_library_that_ends_its_process_is_answered() {
    let folder = empty_folder("cli_ending");
    let text = "#include <stdio.h>\n#include <stdlib.h>\n\
        __attribute__((constructor)) static void begin(void) {\n\
        for (int i = 0; i < 1000000; i++) { puts(\"words\"); fputs(\"words\", stderr); }\n\
        fputs(\"\\nthe last words\\n\", stderr); _Exit(3); }\n\
        int llama_sampler_init(void) { return 0; }\n\
        int llama_sampler_chain_init(void) { return 0; }\n";
    fs::write(folder.join("ending.c"), text).expect("the folder was just made");
    let library = folder.join("libending.so");
    let mut compiler = Command::new(paths::c_compiler());
    compiler
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(folder.join("ending.c"));
    succeed(&mut compiler);
    let name = library.display().to_string();
    let (code, _, err) = answer(call(&["certify", &name]));
    assert!(code == 2 && err.contains("the last words"), "{err}");
    let report = json(&["doctor", "--json", &name], 1);
    assert_eq!(report["hosts"][0]["problem"], "the last words");
}

#[test]
fn the_doctor_tries_a_library() {
    let report = json(&["doctor", "--json", &libllama()], 0);
    let host = &report["hosts"][0];
    assert_eq!(host["path"], libllama());
    assert_eq!(host["kinds"]["top-k"], "");
    assert_eq!(host["kinds"]["dry"], "");
    assert_eq!(
        host["at_first_call"].to_string(),
        "[\"infill\",\"grammar\"]"
    );
    assert!(host["since"].as_u64() >= Some(10_394), "{host}");
    let notes = succeed(Command::new("readelf").arg("-n").arg(libllama()));
    match host["build_id"].as_str() {
        Some(id) => assert!(notes.contains(&format!("Build ID: {id}\n")), "{notes}"),
        None => assert!(!notes.contains("Build ID"), "{notes}"),
    }
    let (code, out, _) = answer(call(&["doctor", &libllama()]));
    assert!(
        code == 0 && out.contains("\n  ours: greedy, dist, top-k"),
        "{out}"
    );
}

/// A report that another program made, such as the Python package, is printed like the doctor's
/// own. Its kinds of samplers keep their order.
#[test]
fn a_report_of_others_is_told_as_the_doctors_own() {
    let told = |report: &str, arguments: &[&str]| {
        let command = call(&[&[".report"], arguments].concat());
        answer_to(command, report)
    };
    let (code, report, err) = answer(call(&["doctor", "--json", &libllama()]));
    assert_eq!(code, 0, "{err}");
    assert_eq!(told(&report, &["--json"]), (0, report.clone(), err));
    let (code, text, _) = answer(call(&["doctor", &libllama()]));
    assert_eq!(told(&report, &[]), (code, text, String::new()));

    let host = "{\"path\": \"p\", \"version\": null, \"since\": null, \"build_id\": null, \
        \"profile\": null, \"kinds\": {\"dry\": \"no \\u001b\", \"dist\": \"no\"}, \
        \"at_first_call\": [], \"problem\": null, \"callers\": []}";
    let report = format!("{{\"subject\": \"s\", \"hosts\": [{host}], \"remarks\": [\"r\"]}}");
    let (code, text, err) = told(&report, &[]);
    assert!(
        code == 1 && text.ends_with(": dry: no \\u{1b}\n  its own: dist: no\n\nr\n"),
        "{text}{err}"
    );
    for (report, says) in [
        ("", "EOF"),
        ("{}", "subject"),
        ("[\u{1b}", "expected value"),
    ] {
        let (code, text, err) = told(report, &[]);
        assert!(code == 2 && text.is_empty() && err.contains(says), "{err}");
    }
    let (code, _, err) = told("", &["--what"]);
    assert!(code == 2 && err.contains("--what"), "{err}");
}

/// The kinds are the same as in the Python package.
#[test]
fn python_knows_the_same_kinds() {
    let python = fs::read_to_string(root().join("python/src/llama_sieve/host.py"));
    let python = python.expect("it is there");
    let (_, list) = python.split_once("KINDS = (\n").expect("it has a list");
    let (list, _) = list.split_once("\n)").expect("it ends");
    let theirs: Vec<_> = list
        .lines()
        .map(|line| line.trim().trim_matches([',', '"']))
        .collect();
    assert_eq!(theirs, SAMPLERS);
}

#[test]
fn the_doctor_sees_who_calls_a_programs_llama_cpp() {
    let program = generate();
    let report = json(&["doctor", "--json", &program.display().to_string()], 0);
    let host = &report["hosts"][0];
    let path = host["path"].as_str().expect("a text");
    let found = fs::canonicalize(path).expect("it is there");
    assert_eq!(found.display().to_string(), libllama());
    assert_eq!(host["callers"][0], program.display().to_string());
    assert_eq!(report["remarks"].as_array().map(Vec::len), Some(0));
}

#[test]
fn a_program_without_llama_cpp_has_a_code_of_its_own() {
    let (code, out, _) = answer(call(&["doctor", "sh"]));
    assert!(code == 1 && out.contains("No llama.cpp here"), "{out}");
}

/// Reports on a process that waits for input.
#[test]
fn the_doctor_looks_at_a_process() {
    let script = format!(
        "import ctypes, sys; ctypes.CDLL({:?}); print('ready', flush=True); sys.stdin.read()",
        libllama()
    );
    for (before, says) in [
        (&[][..], "is not in it"),
        (&["run", "--"], "is in the process"),
    ] {
        let mut process = call(&[before, &["python3", "-c", &script]].concat());
        if before.is_empty() {
            process = Command::new("python3");
            process.args(["-c", &script]);
        }
        let process = process.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = process.expect("python3 is installed");
        let mut said = String::new();
        let out = process.stdout.take().expect("it is a pipe");
        BufReader::new(out)
            .read_line(&mut said)
            .expect("it is read");
        assert_eq!(said, "ready\n");
        let report = json(&["doctor", "--json", &process.id().to_string()], 0);
        drop(process.stdin.take());
        assert!(process.wait().expect("it ends").success());
        assert_eq!(report["hosts"][0]["path"], libllama());
        let remark = report["remarks"][0].as_str().unwrap_or_default();
        assert!(remark.contains(says), "{remark}");
    }
}
