//! Tests the command `schema`, which prints the text of `llama_sieve_json_schema_to_gbnf`.

use std::ffi::CString;
use std::fs;
use std::io::Write;
use std::process::Stdio;

use llama_sieve::ffi::grammar::schema::llama_sieve_json_schema_to_gbnf;

use crate::toolchain::{empty_folder, root};
use crate::{answer, call};

fn gbnf(schema: &str, flags: u32) -> String {
    let schema = CString::new(schema).expect("no NUL is in it");
    let mut text = vec![0u8; 1 << 20];
    // SAFETY: a C string, and as much room as the call is told.
    let size = unsafe {
        llama_sieve_json_schema_to_gbnf(schema.as_ptr(), flags, text.as_mut_ptr().cast(), 1 << 20)
    };
    text.truncate(size - 1);
    String::from_utf8(text).expect("it is text")
}

#[test]
fn each_option_is_the_flag_of_the_header() {
    let file = empty_folder("cli_flags").join("schema.json");
    let schema = "{\"type\": \"object\", \"required\": [\"a\"], \"properties\": \
        {\"a\": {\"type\": \"integer\"}, \"b\": {\"type\": \"string\"}}}";
    fs::write(&file, schema).expect("the folder was just made");
    let file = file.display().to_string();
    let header = fs::read_to_string(root().join("include/llama_sieve.h")).expect("it is there");
    let mut seen = vec![gbnf(schema, 0)];
    let (code, out, _) = answer(call(&["schema", &file]));
    assert_eq!((code, &out), (0, &seen[0]));
    for option in ["llama-cpp", "compact", "closed", "any-order", "lenient"] {
        let name = option.to_uppercase().replace('-', "_");
        let define = format!("#define LLAMA_SIEVE_JSON_{name} ");
        let (_, rest) = header.split_once(&define).expect("the header has it");
        let bit = rest.lines().next().and_then(|number| number.parse().ok());
        let (code, out, err) = answer(call(&["schema", &format!("--{option}"), &file]));
        assert_eq!(code, 0, "{option}: {err}");
        assert_eq!(out, gbnf(schema, bit.expect("a number")), "{option}");
        seen.push(out);
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 5, "all are told apart, but for what is lenient");
}

/// Each grammar is made only once, although its length is not known in advance.
#[test]
fn what_a_lenient_grammar_leaves_out_is_told_once() {
    let file = empty_folder("cli_lenient").join("schema.json");
    let schema = "{\"type\": \"array\", \"uniqueItems\": true}";
    fs::write(&file, schema).expect("the folder was just made");
    let file = file.display().to_string();
    assert_eq!(answer(call(&["schema", &file])).0, 1);
    let (code, out, err) = answer(call(&["schema", "--lenient", &file]));
    assert_eq!((code, out), (0, gbnf(schema, 16)));
    assert_eq!(err.matches("uniqueItems").count(), 1, "{err}");
}

#[test]
fn a_grammar_of_any_length_is_printed_whole() {
    let file = empty_folder("cli_long").join("schema.json");
    let values: Vec<String> = (0..27_500).map(|i| format!("\"{i:0>30}\"")).collect();
    let schema = format!("{{\"enum\": [{}]}}", values.join(", "));
    fs::write(&file, &schema).expect("the folder was just made");
    let (code, out, err) = answer(call(&["schema", &file.display().to_string()]));
    assert_eq!(code, 0, "{err}");
    assert!(out.len() > 1 << 20, "{}", out.len());
    assert!(out.starts_with("root ::= ") && out.ends_with('\n'));
}

#[test]
fn the_standard_input_is_a_file_too() {
    let mut child = call(&["schema", "--compact", "-"]);
    let child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.expect("it runs");
    let mut input = child.stdin.take().expect("it is a pipe");
    input
        .write_all(b"{\"type\": \"boolean\"}")
        .expect("it is read");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success());
    let expected = gbnf("{\"type\": \"boolean\"}", 2);
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

#[test]
fn a_schema_that_is_refused_has_a_code_of_its_own() {
    let folder = empty_folder("cli_schemas");
    let cases: [(&[u8], i32, &str); 5] = [
        (b"", 1, "schema"),
        (b"{\"type\": \"nothing\"}", 1, "nothing"),
        (b"{\"$ref\": \"#/none\"}", 1, "leads nowhere"),
        (b"{}\0{}", 2, "NUL"),
        (b"\xff", 1, "schema"),
    ];
    for (text, expected, says) in cases {
        let file = folder.join("schema.json");
        fs::write(&file, text).expect("the folder was just made");
        let (code, out, err) = answer(call(&["schema", &file.display().to_string()]));
        assert_eq!((code, out.as_str()), (expected, ""), "{text:?}: {err}");
        assert!(err.contains(says), "{text:?}: {err}");
    }
    let (code, _, err) = answer(call(&["schema", "no/such/file"]));
    assert!(
        code == 2 && err.contains("no/such/file: No such file"),
        "{err}"
    );
    let (code, _, err) = answer(call(&["schema", "/dev/zero"]));
    assert!(code == 2 && err.contains("longer than"), "{err}");
}
