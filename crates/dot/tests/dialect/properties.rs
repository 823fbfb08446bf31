//! Properties of the parser: it handles any input, in linear time, and parses its own output.
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::sync::Arc;

use ferrata_dot::lint::Linter;
use ferrata_dot::source::{Span, SpannedValue};
use ferrata_dot::syntax::{Attribute, EdgeStatement, NodeStatement, Statement, Subgraph};
use ferrata_dot::transform::Transforms;
use ferrata_dot::value::{Length, Unit, Value};
use ferrata_dot::{Document, ParseError, Pipeline};
use proptest::prelude::*;

/// Properties of every error, for any source.
fn sane(source: &[u8], error: &ParseError) {
    assert!(error.span().start <= source.len(), "{error:?}");
    assert!(!error.message().is_empty() && !error.message().contains('\n'), "{error:?}");
    assert!(error.labels().iter().all(|label| label.text.len() < 2000), "{error:?}");
    assert!(error.report("x").ends_with('\n'));
}

/// Parses, lints, transforms and prints the source as far as possible.
fn exercise(source: &[u8]) {
    match Document::parse(source) {
        Err(error) => sane(source, &error),
        Ok(document) => {
            let printed = document.to_string();
            assert_eq!(Document::parse(printed.as_bytes()).unwrap(), document, "{printed}");
            match Pipeline::parse(source) {
                Err(error) => sane(source, &error),
                Ok(mut pipeline) => {
                    let _ = Transforms::default().apply(&mut pipeline);
                    for found in Linter::default().lint(&pipeline) {
                        assert!(!found.report("x", source).is_empty());
                    }
                }
            }
        }
    }
}

fn placed<T>(value: T) -> SpannedValue<T> {
    SpannedValue::new(value, Span::default())
}

fn id() -> impl Strategy<Value = SpannedValue<Arc<str>>> {
    "[A-Za-z_][A-Za-z0-9_]{0,6}"
        .prop_filter("a word of the dialect", |id| {
            !["strict", "digraph", "graph", "subgraph", "node", "edge"].contains(&&**id)
        })
        .prop_map(|id| placed(Arc::from(id)))
}

fn value() -> impl Strategy<Value = Value> {
    let units = vec![Unit::Milliseconds, Unit::Seconds, Unit::Minutes, Unit::Hours, Unit::Days];
    prop_oneof![
        any::<String>().prop_map(Value::string),
        r#"["\\\n\t a/*<>]{0,8}"#.prop_map(Value::string),
        any::<i64>().prop_map(Value::Integer),
        any::<f64>().prop_filter("a number", |number| number.is_finite()).prop_map(Value::Float),
        any::<bool>().prop_map(Value::Boolean),
        (0..1_000_000_u64, prop::sample::select(units))
            .prop_map(|(count, unit)| Value::Duration(Length::new(count, unit).unwrap())),
        "[A-Za-z_][A-Za-z0-9_.:-]{0,8}"
            .prop_filter("not a word", |word| word != "true" && word != "false")
            .prop_map(|word| Value::Bare(Arc::from(word))),
    ]
}

fn attribute() -> impl Strategy<Value = Attribute> {
    ("[a-z_]{1,4}(\\.[a-z]{1,4}){0,2}", value())
        .prop_map(|(key, value)| Attribute { key: placed(Arc::from(key)), value: placed(value) })
}

fn statement() -> impl Strategy<Value = Statement> {
    let some = || prop::collection::vec(attribute(), 1..4);
    let any_number = || prop::collection::vec(attribute(), 0..4);
    let leaf = prop_oneof![
        some().prop_map(Statement::Graph),
        some().prop_map(Statement::NodeDefaults),
        some().prop_map(Statement::EdgeDefaults),
        attribute().prop_map(Statement::Set),
        (id(), any_number()).prop_map(|(id, attributes)| Statement::Node(NodeStatement { id, attributes })),
        (prop::collection::vec(id(), 2..5), any_number())
            .prop_map(|(path, attributes)| Statement::Edge(EdgeStatement { path, attributes })),
    ];
    leaf.prop_recursive(4, 24, 6, |inner| {
        (prop::option::of(id()), prop::collection::vec(inner, 0..6))
            .prop_map(|(name, statements)| Statement::Subgraph(Subgraph { name, statements }))
    })
}

const TOKENS: [&str; 36] = [
    "digraph",
    "strict",
    "graph",
    "subgraph",
    "node",
    "edge",
    "{",
    "}",
    "[",
    "]",
    "=",
    "->",
    "--",
    ",",
    ";",
    ".",
    ":",
    "\"",
    "\\",
    "/*",
    "*/",
    "//",
    "\n",
    " ",
    "a",
    "b",
    "label",
    "condition",
    "1",
    "-2.5",
    "15m",
    "true",
    "<b>",
    "\u{E4}",
    "$goal",
    "x.y",
];

proptest! {
    #[test]
    fn printing_and_reading_again_is_the_identity(statements in prop::collection::vec(statement(), 0..12)) {
        let document = Document { name: placed(Arc::from("G")), statements };
        let printed = document.to_string();
        let again = Document::parse(printed.as_bytes());
        prop_assert_eq!(again.as_ref(), Ok(&document), "{}", printed);
        prop_assert_eq!(again.unwrap().to_string(), printed);
    }

    #[test]
    fn any_bytes_get_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        exercise(&bytes);
        exercise(&[b"digraph G { a [x=\"", &*bytes, b"\"] }"].concat());
        exercise(&[b"digraph G { ", &*bytes, b" }"].concat());
    }

    #[test]
    fn any_tokens_get_an_answer(tokens in prop::collection::vec(prop::sample::select(TOKENS.to_vec()), 0..60)) {
        exercise(tokens.concat().as_bytes());
        exercise(format!("digraph G {{ {} }}", tokens.join(" ")).as_bytes());
    }

    #[test]
    fn a_cut_or_changed_pipeline_gets_an_answer(cut in 0..2000_usize, byte: u8) {
        let source = include_bytes!("../corpus/everything.dot");
        let cut = cut.min(source.len() - 1);
        exercise(&source[..cut]);
        let mut changed = source.to_vec();
        changed[cut] = byte;
        exercise(&changed);
    }
}

#[test]
fn the_corpus_gets_answers() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        exercise(&std::fs::read(entry.unwrap().path()).unwrap());
        seen += 1;
    }
    assert!(seen >= 10, "{seen} files");
}

#[test]
fn ten_megabytes_of_garbage_get_an_answer() {
    let size = 10 << 20;
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed.to_be_bytes()[0]
    })
    .take(size)
    .collect();
    exercise(&noise);
    exercise(&[b"digraph G { a [x=\"", &*noise].concat());
    for filler in
        ["{", "[", "\"", "/", "/*", "a", "a ", "a->", "subgraph{", "a[x=1]", "\\", "\n", "(", "-", "1"]
    {
        let body = filler.repeat(size / filler.len());
        let error = Document::parse(body.as_bytes()).unwrap_err();
        sane(body.as_bytes(), &error);
        let inside = format!("digraph G {{ {body}");
        sane(inside.as_bytes(), &Document::parse(inside.as_bytes()).unwrap_err());
    }
}

#[test]
fn small_file_cannot_expand_to_large_graph() {
    // Repeated defaults, chains and prompts: each is parsed or refused, in time proportional to its size.
    let attributes: Vec<String> = (0..200).map(|at| format!("k{at}=1")).collect();
    let block = attributes.join(",");
    let scopes = format!("digraph G {{ node [{block}] {} }}", "subgraph{node[x=1]a b c}".repeat(100_000));
    assert!(Pipeline::parse(scopes.as_bytes()).is_err());
    let chain = format!("digraph G {{ a{} [{block}] }}", "->a".repeat(300_000));
    assert_eq!(Pipeline::parse(chain.as_bytes()).unwrap().edges().len(), 300_000);
    let nodes: String = (0..100_000).map(|at| format!("n{at} ")).collect();
    let defaults = format!("digraph G {{ node [{block}] {nodes} }}");
    assert_eq!(Pipeline::parse(defaults.as_bytes()).unwrap().nodes().len(), 100_000);
}

/// Guarantees: LINT-6.
#[test]
fn a_hundred_thousand_nodes_are_read_and_linted() {
    use std::fmt::Write as _;
    let mut source = String::from("digraph G { node [prompt=x] start exit start -> n0 n99999 -> exit\n");
    for at in 0..100_000 {
        writeln!(source, "n{at} [label=\"Node {at}\", timeout=15m]").unwrap();
        if at > 0 {
            writeln!(source, "n{} -> n{at} [condition=\"outcome=success\"]", at - 1).unwrap();
        }
    }
    source += "}";
    let pipeline = Pipeline::parse(source.as_bytes()).unwrap();
    assert_eq!((pipeline.nodes().len(), pipeline.edges().len()), (100_002, 100_001));
    assert_eq!(Linter::default().lint(&pipeline), []);
}
