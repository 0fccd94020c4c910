//! Grammars like those that programs write.

use std::collections::BTreeSet;

use vendor_llama_cpp::TestVocabulary;
use vendor_llama_cpp::test_vocabulary::Kind;

use crate::pair::Vocabulary;
use crate::random::folder;
use crate::support::Rng;

pub const GRAMMARS: &[&str] = &[
    r#"root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws
string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"#,
    r#"root ::= "{" space name-kv "," space age-kv ( "," space email-kv )? "}" space
char ::= [^"\\\x7F\x00-\x1F] | [\\] (["\\bfnrt] | "u" [0-9a-fA-F]{4})
space ::= | " " | "\n"{1,2} [ \t]{0,20}
string ::= "\"" char{1,30} "\"" space
name-kv ::= "\"name\"" space ":" space string
age-kv ::= "\"age\"" space ":" space ("-"? ([0-9] | [1-9] [0-9]{0,15})) space
email-kv ::= "\"email\"" space ":" space string
"#,
    r#"root ::= (expr "=" ws term "\n")+
expr ::= term ([-+*/] term)*
term ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num ::= [0-9]+ ws
ws ::= [ \t\n]*
"#,
    "root ::= [ -\u{7F}\u{3041}-\u{3096}\u{30A1}-\u{30FA}\u{4E00}-\u{9FFF}]+ ([ \\t\\n] [\u{3041}-\u{3096}]+)*\n",
    "root ::= item+\nitem ::= \"- \" [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ \"\\n\"\n",
    r#"root ::= "Moses" | "Aaron" | "Miriam" | "Mose" | "the man" | "the people of the land""#,
    r#"root ::= [0-9]{4} "-" ("0" [1-9] | "1" [0-2]) "-" ([0-2] [0-9] | "3" [01]) ("T" [0-9]{2} ":" [0-9]{2})?"#,
    r#"root ::= "<tool>" (!<[7]>)* "</tool>""#,
    r#"root ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")+
move ::= (pawn | nonpawn | castle) [+#]?
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle ::= "O-O" "-O"?
"#,
    r#"root ::= (("a" | "b")* | ("a" "b"?)*) "c""#,
    r#"root ::= .{3,12} "." [^a-z]*"#,
];

/// Returns a vocabulary of letters, pairs of letters, some words, and parts of characters.
pub fn vocabulary(rng: &mut Rng) -> Vocabulary {
    let mut texts = BTreeSet::new();
    for byte in 1..=255_u8 {
        texts.insert(vec![byte]);
    }
    let mut words = Vec::new();
    for grammar in GRAMMARS {
        for word in grammar.split([' ', '\n', '|', '(', ')']) {
            words.push(word.trim_matches('"').to_owned());
        }
    }
    words.extend(
        [
            "あい",
            "日本語",
            "🙂",
            "\": \"",
            "\",",
            "\"}",
            "{\"",
            "é",
            "hello",
            " wor",
        ]
        .map(String::from),
    );
    for _ in 0..1500 {
        let mut text = rng_text(rng, &words);
        text.truncate(1 + rng.below(9));
        if !text.is_empty() {
            texts.insert(text);
        }
    }
    let mut tokens = vec![
        (b"</s>".to_vec(), Kind::Control),
        (b"<tool>".to_vec(), Kind::UserDefined),
    ];
    tokens.extend(
        texts
            .into_iter()
            .filter(|text| text != b"</s>")
            .filter(|text| text != b"<tool>")
            .map(|text| (text, Kind::Normal)),
    );
    let vocabulary = TestVocabulary { tokens, eos: 0 };
    let path = folder().join(format!(
        "grammar-{}-{}.gguf",
        std::process::id(),
        rng.next()
    ));
    let model = vocabulary.load(&path).expect("a vocabulary");
    std::fs::remove_file(&path).expect("it was written");
    Vocabulary::new(model)
}

fn rng_text(rng: &mut Rng, words: &[String]) -> Vec<u8> {
    let mut text = Vec::new();
    for _ in 0..1 + rng.below(2) {
        text.extend_from_slice(words[rng.below(words.len())].as_bytes());
        if rng.chance(0.3) {
            text.push(b' ');
        }
    }
    text
}
