//! Transforms in order: variables, the stylesheet with its specificity, and custom ones.
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use ferrata_core::{Error, ErrorKind};
use ferrata_dot::Pipeline;
use ferrata_dot::pipeline::{Edge, Node};
use ferrata_dot::transform::{Stylesheet, Transform, Transforms, Variables};
use ferrata_dot::value::Value;

fn read(statements: &str) -> Pipeline {
    Pipeline::parse(format!("digraph G {{ {statements} }}").as_bytes()).unwrap()
}

fn text(pipeline: &Pipeline, node: &str, key: &str) -> String {
    pipeline.node(node).unwrap().attributes.text(key).into_owned()
}

/// Applies a stylesheet to statements.
fn styled(sheet: &str, statements: &str) -> Pipeline {
    let mut pipeline = read(statements);
    Stylesheet::parse(sheet).unwrap_or_else(|error| panic!("{error}")).apply(&mut pipeline);
    pipeline
}

/// Guarantees: DOT-23.
#[test]
fn given_variables_are_replaced_in_prompts() {
    let mut pipeline = read(
        r#"node [prompt="do $goal"] a b [prompt="$goal$goal, $goals, 5$ ${goal} {{ goal }}"] c [label="$goal"]"#,
    );
    Variables::default().with("goal", "ship \"it\"").apply(&mut pipeline).unwrap();
    assert_eq!(text(&pipeline, "a", "prompt"), "do ship \"it\"", "also in a default");
    assert_eq!(text(&pipeline, "b", "prompt"), "ship \"it\"ship \"it\", $goals, 5$ ship \"it\" ship \"it\"");
    assert_eq!(text(&pipeline, "c", "label"), "$goal", "only prompts are expanded");
    // A missing value stays as it is, because the run may get another goal than the graph has.
    let mut pipeline = read(r#"goal=x a [prompt="$goal"]"#);
    Transforms::default().apply(&mut pipeline).unwrap();
    assert_eq!(text(&pipeline, "a", "prompt"), "$goal");
}

#[test]
fn what_is_put_in_is_not_expanded_again() {
    let mut pipeline = read(r#"a [prompt="$goal in $language and {{ inputs.language }}"]"#);
    let variables = Variables::default().with("language", "Rust").with("goal", "$language");
    variables.apply(&mut pipeline).unwrap();
    assert_eq!(text(&pipeline, "a", "prompt"), "$language in Rust and Rust");
}

#[test]
fn an_expansion_is_bounded() {
    let prompt = "$goal".repeat(100_000);
    let mut pipeline = read(&format!("a [prompt=\"{prompt}\"]"));
    let transforms = Transforms::none().then(Variables::default().with("goal", "g".repeat(100_000)));
    let error = transforms.apply(&mut pipeline).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(error.message().starts_with("transform `variables`: the prompt of `a` is too long"), "{error}");
}

/// Guarantees: DOT-23.
#[test]
fn specificity_is_all_shape_class_id() {
    let sheet = "#d { llm_model: id } .x { llm_model: class } box { llm_model: shape } * { llm_model: all }";
    let pipeline = styled(sheet, "a [shape=diamond] b c [class=x] d [class=x]");
    for (node, model) in [("a", "all"), ("b", "shape"), ("c", "class"), ("d", "id")] {
        assert_eq!(text(&pipeline, node, "llm_model"), model, "{node}");
    }
}

#[test]
fn later_rules_win_ties_property_by_property() {
    let sheet = ".x { llm_model: one; llm_provider: p } .y { llm_model: two }";
    let pipeline = styled(sheet, "a [class=\"y,x\"]");
    assert_eq!(text(&pipeline, "a", "llm_model"), "two");
    assert_eq!(text(&pipeline, "a", "llm_provider"), "p");
}

#[test]
fn explicit_attribute_overrides_stylesheet_scope_default_does_not() {
    let pipeline = styled(
        "#a { llm_model: sheet } #b { llm_model: sheet }",
        "node [llm_model=scope] a [llm_model=own] b c",
    );
    assert_eq!(text(&pipeline, "a", "llm_model"), "own");
    assert_eq!(text(&pipeline, "b", "llm_model"), "sheet");
    assert_eq!(text(&pipeline, "c", "llm_model"), "scope");
}

#[test]
fn classes_of_subgraphs_are_selected() {
    let pipeline = styled(".loop-a { reasoning_effort: low; }", "subgraph { label=\"Loop A\" a } b");
    assert_eq!(text(&pipeline, "a", "reasoning_effort"), "low");
    assert_eq!(text(&pipeline, "b", "reasoning_effort"), "");
}

#[test]
fn values_of_a_stylesheet_may_be_quoted() {
    let pipeline = styled("* { llm_model: \"a; b\"; llm_provider: x.y/z:1 }", "a");
    assert_eq!(text(&pipeline, "a", "llm_model"), "a; b");
    assert_eq!(text(&pipeline, "a", "llm_provider"), "x.y/z:1");
}

#[test]
fn a_wrong_stylesheet_names_the_place() {
    for (sheet, at, part) in [
        ("* { llm_modle: x }", 4, "the property `llm_modle` does not exist"),
        ("* { llm_model x }", 14, "expected `:`"),
        ("* { llm_model: x", 16, "expected `;` or `}`"),
        ("* { }", 4, "expected a property"),
        ("* llm_model: x", 2, "expected `{`"),
        ("{ }", 0, "expected a selector"),
        ("* { llm_model: ; }", 15, "expected a value"),
        ("* { llm_model: \"x }", 15, "a quote is not closed"),
    ] {
        let error = Stylesheet::parse(sheet).unwrap_err();
        assert_eq!(error.offset(), at, "{sheet}: {error}");
        assert!(error.message().contains(part), "{sheet}: {error}");
    }
}

/// Guarantees: DOT-23.
#[test]
fn own_transforms_run_in_order_after_builtin() {
    struct Audit;
    impl Transform for Audit {
        fn name(&self) -> &str {
            "audit"
        }
        fn apply(&self, pipeline: &mut Pipeline) -> Result<(), Error> {
            let seen = pipeline.node("a").unwrap().attributes.text("prompt").into_owned();
            let mut node = Node::new("audit");
            node.attributes.set("prompt", Value::string(format!("audit {seen}")));
            pipeline.add_node(node)?;
            pipeline.edges_mut().push(Edge::new("a", "audit"));
            Ok(())
        }
    }
    let transforms = Transforms::default().then(Variables::default().with("x", "y")).then(Audit);
    let mut pipeline = read("model_stylesheet=\"* { llm_model: m }\" a [prompt=\"$x\"]");
    transforms.apply(&mut pipeline).unwrap();
    assert_eq!(text(&pipeline, "audit", "prompt"), "audit y");
    assert_eq!(
        (text(&pipeline, "a", "llm_model"), text(&pipeline, "audit", "llm_model")),
        ("m".into(), String::new())
    );
    assert_eq!(pipeline.edges().len(), 1);
    let error = transforms.apply(&mut pipeline).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.message().starts_with("transform `audit`: the node `audit` already exists"), "{error}");
}

#[test]
fn added_node_has_valid_dialect_id() {
    let mut pipeline = read("a");
    for id in ["", "../x", "1a", "a b", "ä"] {
        assert_eq!(pipeline.add_node(Node::new(id)).unwrap_err().kind(), ErrorKind::Invalid, "{id}");
    }
    assert_eq!(pipeline.nodes().len(), 1);
}

/// Guarantees: DIALECT-1.
#[test]
fn stylesheet_accepts_foreign_names_and_comments() {
    let sheet = "/* all */ * { model: small; provider: someone /* who */; reasoning_effort: low } #a { llm_model: large }";
    let mut pipeline = Pipeline::parse(b"digraph G { a b }").unwrap();
    Stylesheet::parse(sheet).unwrap().apply(&mut pipeline);
    let text = |node: &str, key: &str| pipeline.node(node).unwrap().attributes.text(key).into_owned();
    assert_eq!((text("a", "llm_model"), text("b", "llm_model")), ("large".into(), "small".into()));
    assert_eq!(text("b", "llm_provider"), "someone");
    assert!(Stylesheet::parse("* { models: x }").is_err() && Stylesheet::parse("/* open").is_err());
}
