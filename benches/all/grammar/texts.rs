//! The grammars whose walks are measured.

/// A grammar whose walks are measured.
pub struct Text {
    /// The name in the rows.
    pub name: &'static str,
    /// The grammar in GBNF, with the rule `root`.
    pub text: String,
    /// True if the built-in is measured as well, and not only its constructor. With an ambiguous
    /// grammar, one application takes it seconds.
    pub both: bool,
}

pub const JSON: &str = r#"root ::= object
value ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}" ws
array ::= "[" ws (value ("," ws value)*)? "]" ws
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}))* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"#;

/// The rules that JSON Schemas are converted to.
pub const SCHEMA: &str = r#"char ::= [^"\\\x7F\x00-\x1F] | [\\] (["\\bfnrt] | "u" [0-9a-fA-F]{4})
space ::= | " " | "\n"{1,2} [ \t]{0,20}
string ::= "\"" char* "\"" space
integer ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) space
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,16})? space
boolean ::= ("true" | "false") space
array ::= "[" space (string ("," space string)*)? "]" space
"#;

const DATES: &str = r#"root ::= (date "\n")+
date ::= [0-9]{4} "-" ("0" [1-9] | "1" [0-2]) "-" ([0-2] [0-9] | "3" [01])
"#;

const PROGRAM: &str = r#"root ::= (statement "\n")+
statement ::= ident " = " expr ";" | "return " expr ";" | "if (" expr ") { " statement " }"
expr ::= term (" " [-+*/<] " " term)*
term ::= ident | [0-9]+ | "(" expr ")" | ident "(" expr ")"
ident ::= [a-z] [a-z0-9_]*
"#;

const ARITHMETIC: &str = r#"root ::= (expr "=" ws term "\n")+
expr ::= term ([-+*/] term)*
term ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num ::= [0-9]+ ws
ws ::= [ \t\n]*
"#;

const CHESS: &str = r#"root ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")+
move ::= (pawn | nonpawn | castle) [+#]?
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle ::= "O-O" "-O"?
"#;

const JAPANESE: &str = r#"root ::= jp-char+ ([ \t\n] jp-char+)*
jp-char ::= hiragana | katakana | punctuation | cjk
hiragana ::= [ぁ-ゟ]
katakana ::= [ァ-ヿ]
punctuation ::= [、-〾]
cjk ::= [一-鿿]
"#;

const LINES: &str = r#"root ::= item+
item ::= "- " [^\r\n\x0b\x0c\x85\u2028\u2029]+ "\n"
"#;

const CALLS: &str = r#"root ::= call ("\n" call)*
call ::= "<call name=\"" name "\">" param* "</call>"
param ::= "<param name=\"" name "\">" value "</param>"
name ::= [a-z_]+
value ::= ([^<] | "<" [^/])*
"#;

const TOKENS: &str = r#"root ::= <[1000]> (!<[2000]>)* <[2000]> "\n" [a-z]+
"#;

const AMBIGUOUS: &str = r#"root ::= (a | b | c)* "."
a ::= [a-z]+ " "?
b ::= ([a-z]* " ")*
c ::= [a-z ]+
"#;

/// Returns the rules of an object with some required and some optional properties.
fn object(required: usize, optional: usize) -> String {
    let kinds = ["string", "integer", "number", "boolean", "array"];
    let rule = |i: usize| {
        let kind = kinds[i % kinds.len()];
        format!("p{i} ::= \"\\\"property_{i}\\\"\" space \":\" space {kind}\n")
    };
    let mut text = String::from(SCHEMA);
    for i in 0..required + optional {
        text += &rule(i);
    }
    let mut list: Vec<String> = (0..required).map(|i| format!("p{i}")).collect();
    list.extend((required..required + optional).map(|i| format!("(p{i} more)?")));
    match optional {
        0 => {
            text += &format!(
                "root ::= \"{{\" space {} \"}}\" space\n",
                list.join(" comma ")
            )
        }
        _ => text += &format!("root ::= \"{{\" space {} \"}}\" space\n", list.join(" ")),
    }
    text + "comma ::= \",\" space\nmore ::= (\",\" space)?\n"
}

fn names() -> String {
    let names: Vec<String> = (0..200)
        .map(|i| format!("\"name{} {i}\"", i * 7 % 200))
        .collect();
    format!("root ::= {}", names.join(" | "))
}

/// Returns all grammars.
pub fn all() -> Vec<Text> {
    let text = |name, text: &str| Text {
        name,
        text: text.into(),
        both: true,
    };
    vec![
        text("JSON", JSON),
        text("six properties", &object(6, 0)),
        text("thirty optional properties", &object(0, 30)),
        text("dates", DATES),
        text("program", PROGRAM),
        text("arithmetic", ARITHMETIC),
        text("chess", CHESS),
        text("Japanese", JAPANESE),
        text("lines", LINES),
        text("calls", CALLS),
        text("token elements", TOKENS),
        text("200 names", &names()),
        Text {
            both: false,
            ..text("ambiguous", AMBIGUOUS)
        },
    ]
}
