//! Checks that the JSON Schema of the payload and the parser accept the same payloads, except for
//! rules that a schema cannot express.

use llama_sieve::trie::Payload;
use serde_json::Value;

use crate::schemas::Schema;

fn schema() -> Schema {
    Schema::of("docs/token-tree-payload.schema.json")
}

#[test]
fn the_schema_and_the_parser_agree() {
    let schema = schema();
    let cases = [
        r#"{"modelId":"m","descriptors":[{"path":"a","leaves":[{"name":"n","tokens":[1,2]}]}]}"#,
        r#"{"descriptors":[{"path":"a","leaves":[{"name":"n","tokens":[0]}]}]}"#,
        r#"{"x":1,"descriptors":[{"path":"a","y":[],"leaves":[{"name":"n","tokens":[1],"z":{}}]}]}"#,
        r#"{"descriptors":[{"path":"a","leaves":[]},{"path":"b","leaves":[{"name":"n","tokens":[2147483647]}]}]}"#,
        r#"{"modelId":3,"descriptors":[{"path":"a","leaves":[{"name":"n","tokens":[1]}]}]}"#,
        r#"{"descriptors":[{"leaves":[{"name":"n","tokens":[1]}]}]}"#,
        r#"{"descriptors":[{"path":"a"}]}"#,
        r#"{"descriptors":[{"path":"a","leaves":[{"tokens":[1]}]}]}"#,
        r#"{"descriptors":[{"path":"a","leaves":[{"name":"n"}]}]}"#,
        r#"{"descriptors":[{"path":"a","leaves":[{"name":"n","tokens":[-1]}]}]}"#,
        r#"{"descriptors":[{"path":"a","leaves":[{"name":"n","tokens":[1.5]}]}]}"#,
        r#"{"descriptors":[{"path":"a","leaves":[{"name":"n","tokens":[2147483648]}]}]}"#,
        r#"{"descriptors":[{"path":"a","leaves":[{"name":"n","tokens":["1"]}]}]}"#,
        r#"{"descriptors":{}}"#,
        r#"["m",[{"path":"a","leaves":[{"name":"n","tokens":[1]}]}]]"#,
        r#"{"descriptors":[["a",[{"name":"n","tokens":[1]}]]]}"#,
        r#"{"descriptors":[{"path":"a","leaves":[["n",[1]]]}]}"#,
        r#"{"modelId":"m"}"#,
        r#"{"descriptors":[{"path":"a","leaves":[{"name":"a\u0000b","tokens":[1]}]}]}"#,
        r#"{"descriptors":[{"path":"a","leaves":[{"name":"a\nb","tokens":[1]}]}]}"#,
        r#"{"descriptors":[{"path":"a","terminators":[],"leaves":[{"name":"n","tokens":[1]}]}]}"#,
        r#"{"descriptors":[{"path":"a","terminators":[0,2147483647],"leaves":[{"name":"n","tokens":[1]}]}]}"#,
        r#"{"descriptors":[{"path":"a","terminators":[-1],"leaves":[{"name":"n","tokens":[1]}]}]}"#,
        r#"{"descriptors":[{"path":"a","terminators":[2147483648],"leaves":[{"name":"n","tokens":[1]}]}]}"#,
        r#"{"descriptors":[{"path":"a","terminators":null,"leaves":[{"name":"n","tokens":[1]}]}]}"#,
        r#"{"descriptors":[{"path":"a","terminators":3,"leaves":[{"name":"n","tokens":[1]}]}]}"#,
        r#"[1]"#,
        "null",
    ];
    let long = [500, 501].map(|n| {
        let tokens = vec![7; n];
        format!(
            r#"{{"descriptors":[{{"path":"a","leaves":[{{"name":"n","tokens":{tokens:?}}}]}}]}}"#
        )
    });
    for case in cases.into_iter().chain(long.iter().map(String::as_str)) {
        let value: Value = serde_json::from_str(case).expect("the case is JSON");
        let by_schema = schema.fault(&value).is_none();
        let by_parser = Payload::parse(case.as_bytes(), None).is_ok();
        assert_eq!(by_schema, by_parser, "{case}");
    }
}

#[test]
fn only_the_parser_knows_that_something_must_be_allowed() {
    let schema = schema();
    let case = r#"{"descriptors":[{"path":"a","leaves":[{"name":"n","tokens":[]}]}]}"#;
    let value: Value = serde_json::from_str(case).expect("the case is JSON");
    assert!(schema.fault(&value).is_none());
    assert!(Payload::parse(case.as_bytes(), None).is_err());
}
