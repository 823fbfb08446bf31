//! Section 1.1 of the dialect, rule by rule: accepted input, rejected input, and error messages.
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::time::Duration;

use ferrata_dot::value::Value;
use ferrata_dot::{Document, ParseError, ParseErrorKind as Kind, Pipeline};

/// Parses statements within a graph.
fn read(statements: &str) -> Pipeline {
    let source = format!("digraph G {{ {statements} }}");
    Pipeline::parse(source.as_bytes()).unwrap_or_else(|error| panic!("{}", error.report("test.dot")))
}

fn refuse(source: &str) -> ParseError {
    Pipeline::parse(source.as_bytes()).expect_err(source)
}

/// The error of statements within a graph.
fn refuse_in(statements: &str) -> ParseError {
    refuse(&format!("digraph G {{ {statements} }}"))
}

fn value(pipeline: &Pipeline, node: &str, key: &str) -> Value {
    pipeline.node(node).unwrap().attributes.get(key).unwrap().clone()
}

/// Guarantees: DOT-2.
#[test]
fn one_digraph_per_file() {
    assert_eq!(read("a").name(), "G");
    assert_eq!(refuse("digraph A { } digraph B { }").kind(), Kind::SecondGraph);
    assert_eq!(refuse("").kind(), Kind::NotAGraph);
    assert_eq!(refuse("hello").kind(), Kind::NotAGraph);
    assert_eq!(refuse("digraph { }").kind(), Kind::Unexpected, "the graph needs a name");
    assert_eq!(refuse("digraph \"\" { }").kind(), Kind::Unexpected);
}

#[test]
fn strict_is_rejected() {
    let error = refuse("strict digraph G { }");
    assert_eq!(error.kind(), Kind::Strict);
    assert!(error.suggestion().unwrap().contains("remove `strict`"), "{error}");
}

#[test]
fn undirected_graphs_and_edges_are_rejected() {
    assert_eq!(refuse("graph G { }").kind(), Kind::Undirected);
    let error = refuse_in("a -- b");
    assert_eq!((error.kind(), error.suggestion()), (Kind::Undirected, Some("write `->`")));
}

#[test]
fn html_labels_are_rejected() {
    assert_eq!(refuse_in("a [label=<b>]").kind(), Kind::HtmlLabel);
}

#[test]
fn line_and_block_comments_are_stripped() {
    let pipeline = read("// one -> two\n a /* b -> c */ -> d // e\n a; d /* * / ** */");
    assert_eq!(pipeline.edges().len(), 1);
    assert_eq!(pipeline.nodes().len(), 2);
    assert_eq!(value(&read("a [x = \"// no /* comment */\"]"), "a", "x").text(), "// no /* comment */");
    assert_eq!(refuse_in("/* a").kind(), Kind::Unclosed);
}

#[test]
fn semicolons_are_optional() {
    let with = read("graph [goal=\"g\"]; a [x=1]; b; a -> b; subgraph { c; };");
    let without = read("graph [goal=\"g\"] a [x=1] b a -> b subgraph { c }");
    assert_eq!(with.nodes().len(), 3);
    assert_eq!(with.edges().len(), without.edges().len());
    assert_eq!(with.goal(), without.goal());
}

/// The rule and line of each tolerated construct.
fn tolerated(source: &str) -> Vec<(&'static str, usize)> {
    let pipeline = Pipeline::parse(source.as_bytes()).unwrap_or_else(|error| panic!("{source}: {error}"));
    pipeline.tolerated().iter().map(|one| (one.rule, one.span.start)).collect()
}

/// Guarantees: DIALECT-1.
#[test]
fn missing_commas_are_read_with_a_warning() {
    for (list, rules) in [
        ("x=1 y=\"two\"\n z=3", &["missing_comma", "missing_comma"][..]),
        ("x=1; y=two, z=3;", &["missing_comma", "missing_comma"]),
        ("x=1, y=two, z=3,", &["trailing_comma"]),
        ("x=1, y=two, z=3", &[]),
    ] {
        let source = format!("digraph G {{ a [{list}] }}");
        let pipeline = read(&format!("a [{list}]"));
        assert_eq!(
            (value(&pipeline, "a", "y").text(), value(&pipeline, "a", "z").text()),
            ("two".into(), "3".into())
        );
        assert_eq!(tolerated(&source).iter().map(|(rule, _)| *rule).collect::<Vec<_>>(), rules, "{source}");
    }
    assert_eq!(tolerated("digraph G { a [x=1 y=2] }"), [("missing_comma", 19)]);
    for wrong in ["a [,x=1]", "a [x=1,,y=2]", "a [x=1 y]", "a [x=1 2]"] {
        assert_eq!(refuse_in(wrong).kind(), Kind::Unexpected, "{wrong}");
    }
}

/// Guarantees: DOT-2.
#[test]
fn ids_are_bare_identifiers() {
    assert!(read("_a1").node("_a1").is_some());
    assert_eq!(refuse_in("\"a\" = 1").kind(), Kind::NotInDialect);
    assert_eq!(refuse_in("\"\"").kind(), Kind::Unexpected);
    assert_eq!(refuse_in("1a").kind(), Kind::Unexpected);
    assert_eq!(refuse_in("../x").kind(), Kind::Unexpected);
    assert!(refuse_in("my-node -> b").suggestion().unwrap().contains("`_`"));
    for keyword in ["node", "edge", "graph", "digraph", "strict"] {
        assert_eq!(refuse_in(&format!("a -> {keyword}")).kind(), Kind::Unexpected, "{keyword}");
        assert_eq!(refuse_in(keyword).kind(), Kind::Unexpected, "{keyword}");
    }
    assert!(read("a -> subgraphs -> nodes; subgraphs; nodes").node("nodes").is_some());
}

/// Quoted names and empty lists are accepted, as in Graphviz and in several dialects.
///
/// Guarantees: DIALECT-1.
#[test]
fn message_about_names_with_line_breaks_is_one_line() {
    let source = "digraph p { \"a //b\" -> \"a\n//b\" }";
    let error = Pipeline::parse(source.as_bytes()).unwrap_err();
    assert!(error.message().contains(r"`a //b` and `a\n//b` are both read as"), "{}", error.message());
    assert!(!error.message().contains('\n'), "{}", error.message());
}

#[test]
fn quoted_names_are_ids() {
    let source = "digraph \"My-Pipeline\" { \"my node\" [prompt=x, retry_target=\"step 2\"] \"2\" [] \"step 2\" [label=L] \
                  subgraph \"c 1\" { \"node\" } \"my node\" -> \"step 2\" -> plain plain \"plain\" -> \"my node\" }";
    let pipeline = Pipeline::parse(source.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(pipeline.name(), "My_Pipeline");
    let ids: Vec<&str> = pipeline.nodes().iter().map(|node| node.id()).collect();
    assert_eq!(ids, ["my_node", "_2", "step_2", "node_", "plain"]);
    let label = |id: &str| pipeline.node(id).unwrap().label().into_owned();
    assert_eq!(
        [label("my_node"), label("step 2"), label("plain")],
        ["my node", "L", "plain"],
        "by either name"
    );
    assert_eq!(pipeline.edges()[1].to.as_ref(), "plain");
    let rules: std::collections::BTreeSet<_> = tolerated(source).into_iter().map(|(rule, _)| rule).collect();
    assert_eq!(rules.into_iter().collect::<Vec<_>>(), ["empty_list", "quoted_id"]);
    // The printed text parses as the same document.
    let document = ferrata_dot::Document::parse(source.as_bytes()).unwrap();
    assert_eq!(ferrata_dot::Document::parse(document.to_string().as_bytes()).unwrap(), document);
    for two in ["\"a b\" \"a-b\"", "\"a b\" a_b", "a_b \"a b\""] {
        assert!(refuse_in(two).message().contains("are both read as `a_b`"), "{two}");
    }
}

#[test]
fn keys_may_be_dotted() {
    let pipeline =
        read("a [human.default_choice=\"yes\", manager.poll_interval=45s] stack.child_dotfile=\"x.dot\"");
    assert_eq!(value(&pipeline, "a", "human.default_choice").text(), "yes");
    assert_eq!(pipeline.attributes.text("stack.child_dotfile"), "x.dot");
    assert_eq!(refuse_in("a [b.=1]").kind(), Kind::Unexpected);
    assert_eq!(refuse_in("a [.b=1]").kind(), Kind::Unexpected);
}

#[test]
fn strings_have_four_escapes() {
    let pipeline = read(
        r#"a [x="q \" n \n t \t b \\", y="two
lines, and ünïcode"]"#,
    );
    assert_eq!(value(&pipeline, "a", "x"), Value::string("q \" n \n t \t b \\"));
    assert_eq!(value(&pipeline, "a", "y"), Value::string("two\nlines, and ünïcode"));
    assert_eq!(refuse_in("a [x=\"b]").kind(), Kind::Unclosed);
}

/// Guarantees: DIALECT-1.
#[test]
fn unknown_escapes_keep_their_backslash_with_a_warning() {
    let pipeline = read(r#"a [x="grep -E 'a\|b' \d+ \é \$HOME"]"#);
    assert_eq!(value(&pipeline, "a", "x"), Value::string(r"grep -E 'a\|b' \d+ \é \$HOME"));
    assert_eq!(tolerated(r#"digraph G { a [x="\d"] }"#), [("unknown_escape", 18)]);
    assert_eq!(refuse_in("a [x=\"b\\").kind(), Kind::Unclosed);
    // The printed text equals the source.
    let document = Document::parse(br#"digraph G { a [x="\d\\"] }"#).unwrap();
    assert_eq!(Document::parse(document.to_string().as_bytes()).unwrap(), document);
}

#[test]
fn strings_are_utf_8() {
    let error = Document::parse(b"digraph G { a [x=\"ab\xFFc\"] }").unwrap_err();
    assert_eq!((error.kind(), error.span().start), (Kind::NotText, 20));
    assert!(Document::parse(b"digraph G { a // \xFF\n }").is_ok(), "comments are removed before parsing");
}

#[test]
fn integers_floats_and_booleans() {
    let pipeline = read("a [i=-42, f=-2.75, h=.5, t=true, n=false]");
    assert_eq!(value(&pipeline, "a", "i"), Value::Integer(-42));
    assert_eq!(value(&pipeline, "a", "f"), Value::Float(-2.75));
    assert_eq!(value(&pipeline, "a", "h"), Value::Float(0.5));
    assert_eq!(value(&pipeline, "a", "t"), Value::Boolean(true));
    assert_eq!(value(&pipeline, "a", "n"), Value::Boolean(false));
    for wrong in ["1.", "1.2.3", "1e5", "12abc", "-", "99999999999999999999", "3weeks", "--1"] {
        assert_eq!(refuse_in(&format!("a [x={wrong}]")).kind(), Kind::BadNumber, "{wrong}");
    }
    assert_eq!(refuse_in(&format!("a [x={}.0]", "9".repeat(400))).kind(), Kind::BadNumber);
}

/// Guarantees: DOT-2.
#[test]
fn durations_have_five_units() {
    for (text, milliseconds) in
        [("250ms", 250), ("900s", 900_000), ("15m", 900_000), ("2h", 7_200_000), ("1d", 86_400_000)]
    {
        let pipeline = read(&format!("a [x={text}, y=\"{text}\"]"));
        let expected = Some(Duration::from_millis(milliseconds));
        assert_eq!(value(&pipeline, "a", "x").as_duration(), expected);
        assert_eq!(
            value(&pipeline, "a", "y").as_duration(),
            expected,
            "in quotes, as the specification writes"
        );
        assert_eq!(value(&pipeline, "a", "x").to_string(), text);
    }
    assert_eq!(refuse_in("a [x=-5s]").kind(), Kind::BadNumber);
    assert_eq!(refuse_in("a [x=99999999999999999d]").kind(), Kind::BadNumber);
}

#[test]
fn bare_values_are_words() {
    let pipeline = read("rankdir=LR a [fidelity=summary:high, llm_model=gpt-5.2]");
    assert_eq!(pipeline.attributes.get("rankdir"), Some(&Value::Bare("LR".into())));
    assert_eq!(value(&pipeline, "a", "fidelity").text(), "summary:high");
    assert_eq!(value(&pipeline, "a", "llm_model").text(), "gpt-5.2");
}

#[test]
fn defaults_apply_to_later_declarations_in_the_scope() {
    let pipeline = read(
        "before node [timeout=1s, shape=diamond] a b [timeout=2s]
         subgraph { node [timeout=3s] c } d
         before -> a; edge [weight=7] a -> b; b -> c [weight=8] subgraph { edge [weight=9] c -> d } d -> a",
    );
    assert!(pipeline.node("before").unwrap().attributes.get("timeout").is_none());
    for (node, timeout) in [("a", "1s"), ("b", "2s"), ("c", "3s"), ("d", "1s")] {
        assert_eq!(value(&pipeline, node, "timeout").text(), timeout, "{node}");
    }
    assert_eq!(pipeline.node("c").unwrap().shape(), "diamond", "a subgraph inherits the defaults around it");
    let weights: Vec<i64> = pipeline.edges().iter().map(ferrata_dot::pipeline::Edge::weight).collect();
    assert_eq!(weights, [0, 7, 8, 9, 7]);
}

#[test]
fn top_level_keys_and_blocks_set_graph_attributes() {
    let pipeline = read("goal=\"one\" graph [goal=\"two\", label=\"L\"] default_max_retries=3");
    assert_eq!(pipeline.goal(), "two");
    assert_eq!(pipeline.attributes.text("label"), "L");
    assert_eq!(pipeline.attributes.get("default_max_retries").unwrap().as_integer(), Some(3));
}

#[test]
fn subgraphs_are_flattened() {
    let pipeline = read(
        "subgraph cluster_a { graph [goal=\"inner\"] label=\"A\" a subgraph { b } a -> b } goal=\"outer\"",
    );
    assert_eq!(pipeline.nodes().iter().map(|node| node.id()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(pipeline.edges().len(), 1);
    assert_eq!(pipeline.goal(), "outer", "a subgraph's attributes are not attributes of the graph");
    assert!(pipeline.attributes.get("label").is_none());
}

#[test]
fn subgraphs_derive_a_class_from_their_label() {
    let pipeline = read(
        "subgraph { label=\"Loop A\" a [class=\"code, critical\"] subgraph { b graph [label=\"It's #2!\"] } }
         subgraph { label=\"!!!\" c } subgraph { a label=\"Again\" }",
    );
    assert_eq!(pipeline.node("a").unwrap().classes(), ["code", "critical", "loop-a", "again"]);
    assert_eq!(pipeline.node("b").unwrap().classes(), ["loop-a", "its-2"]);
    assert!(pipeline.node("c").unwrap().classes().is_empty());
}

#[test]
fn chains_put_their_attributes_on_every_edge() {
    let pipeline = read("a -> b -> c [label=\"next\", weight=2]");
    let edges: Vec<_> = pipeline.edges().iter().map(|e| (&*e.from, &*e.to, e.label(), e.weight())).collect();
    assert_eq!(edges, [("a", "b", "next".into(), 2), ("b", "c", "next".into(), 2)]);
}

/// Guarantees: DIALECT-1.
#[test]
fn undeclared_edge_nodes_are_declared_with_warning() {
    let pipeline = read(
        "node [timeout=1s] subgraph { label=\"In\" node [timeout=2s] a -> ship } node [timeout=3s] ship -> b -> a a",
    );
    let ids: Vec<&str> = pipeline.nodes().iter().map(|node| node.id()).collect();
    assert_eq!(ids, ["a", "ship", "b"]);
    // As in Graphviz, a node has the defaults and the class of the place where it is first named.
    assert_eq!(value(&pipeline, "ship", "timeout").text(), "2s");
    assert_eq!(pipeline.node("ship").unwrap().classes(), ["in"]);
    assert_eq!(value(&pipeline, "b", "timeout").text(), "3s");
    assert_eq!(value(&pipeline, "a", "timeout").text(), "3s", "a declaration counts wherever it is");
    assert_eq!(tolerated("digraph G { a -> b -> a a }"), [("declared_by_edge", 17)]);
    // These names only look like spelling mistakes.
    assert!(read("implement a implement -> implment -> a").node("implment").is_none());
    assert!(read("step_1 step_1 -> step_2 -> step_1").node("step_2").is_some());
    // A node without successors or without predecessors is not reported as a spelling mistake of another node.
    assert!(
        read("test a -> tset a").node("tset").is_none() && read("nobody -> a a").node("nobody").is_none()
    );
    assert!(read("start -> a -> exit a").node("exit").is_some());
}

#[test]
fn a_later_declaration_replaces_what_it_says_anew() {
    let pipeline = read("node [x=1, y=1] a [y=2, z=2] node [x=5] a [z=3]");
    for (key, expected) in [("x", 1), ("y", 2), ("z", 3)] {
        assert_eq!(value(&pipeline, "a", key), Value::Integer(expected), "{key}");
    }
    assert_eq!(value(&read("a [x=1, x=2]"), "a", "x"), Value::Integer(2));
}

/// Guarantees: DOT-4.
#[test]
fn shapes_stand_for_types() {
    let known = |_: &str| true;
    for (shape, handler) in ferrata_dot::pipeline::SHAPES {
        let pipeline = read(&format!("a [shape={shape}]"));
        assert_eq!(pipeline.node("a").unwrap().handler_type(known), handler);
    }
    assert_eq!(read("a").node("a").unwrap().handler_type(known), "codergen", "box must be the default shape");
    assert_eq!(read("a [shape=egg]").node("a").unwrap().handler_type(known), "codergen");
}

/// Guarantees: DOT-4.
#[test]
fn an_explicit_type_wins_if_it_is_known() {
    let pipeline = read("a [shape=diamond, type=tool]");
    assert_eq!(pipeline.node("a").unwrap().handler_type(|name| name == "tool"), "tool");
    assert_eq!(pipeline.node("a").unwrap().handler_type(|_| false), "conditional");
}

/// Guarantees: DOT-4.
#[test]
fn start_and_exit_match_by_shape_then_id() {
    let ids = |pipeline: &Pipeline, found: Vec<usize>| -> Vec<String> {
        found.into_iter().map(|at| pipeline.nodes()[at].id().to_owned()).collect()
    };
    let shaped = read("begin [shape=Mdiamond] start end done [shape=Msquare]");
    assert_eq!(ids(&shaped, shaped.starts()), ["begin"]);
    assert_eq!(ids(&shaped, shaped.exits()), ["done"]);
    let named = read("Start a exit");
    assert_eq!(ids(&named, named.starts()), ["Start"]);
    assert_eq!(ids(&named, named.exits()), ["exit"]);
    let typed = read("a [type=start] b [type=exit]");
    assert_eq!(ids(&typed, typed.starts()), ["a"]);
    assert_eq!(ids(&typed, typed.exits()), ["b"]);
}

/// Guarantees: DOT-4.
#[test]
fn defaults_of_attributes() {
    let pipeline = read("a a -> b");
    let (node, edge) = (pipeline.node("a").unwrap(), &pipeline.edges()[0]);
    assert_eq!((node.label(), node.shape(), node.is_goal_gate()), ("a".into(), "box".into(), false));
    assert_eq!((edge.label(), edge.condition(), edge.weight()), ("".into(), "".into(), 0));
    assert_eq!(pipeline.goal(), "");
}

/// Guarantees: DIALECT-2, DOT-2.
#[test]
fn unsupported_dot_syntax_is_named() {
    for statement in ["a:port", "a -> {b c}", "{a b}", "a -> subgraph x { b }", "subgraph { a } -> b"] {
        let error = refuse_in(statement);
        assert_eq!(error.kind(), Kind::NotInDialect, "{statement}: {error}");
        assert!(error.suggestion().is_some(), "{statement}");
    }
}

#[test]
fn an_unclosed_brace_names_both_places() {
    let error = refuse("digraph G {\n subgraph x {\n a\n}\n");
    assert_eq!(error.kind(), Kind::Unclosed);
    assert_eq!(error.labels().len(), 2);
    assert_eq!(error.labels()[1].position.to_string(), "line 1, column 11");
    assert_eq!(refuse("digraph G { a [x=1").kind(), Kind::Unclosed);
}

#[test]
fn a_report_shows_the_place() {
    let report = refuse("digraph G {\n    a [x=1 +y=2]\n}").report("p.dot");
    let expected = "error: expected `,` or `]`, found `+`\n \
                    --> p.dot:2:12\n  |\n2 |     a [x=1 +y=2]\n  |            ^ `,` or `]` belongs here\n";
    assert_eq!(report, expected);
}

/// Guarantees: DOT-2.
#[test]
fn bounds_are_refused_with_a_name() {
    let nested = format!("{}{}", "subgraph { ".repeat(40), "}".repeat(40));
    assert_eq!(refuse_in(&nested).kind(), Kind::TooLarge);
    let deep = format!("{}{}", "subgraph { ".repeat(32), "}".repeat(32));
    assert!(read(&deep).nodes().is_empty());
    let many: Vec<String> = (0..300).map(|at| format!("k{at}=1")).collect();
    assert_eq!(refuse_in(&format!("a [{}]", many.join(","))).kind(), Kind::TooLarge);
    assert_eq!(refuse_in(&many.join(" ")).kind(), Kind::TooLarge);
    assert_eq!(refuse_in(&format!("a [x=\"{}\"]", "x".repeat(1 << 21))).kind(), Kind::TooLarge);
    let bombs = "node [k=1] subgraph { node [l=1] a }".repeat(2);
    assert!(!read(&bombs).nodes().is_empty());
}

#[test]
fn errors_are_the_library_s_own() {
    let error = ferrata_core::Error::from(refuse("strict digraph G { }"));
    assert_eq!(error.kind(), ferrata_core::ErrorKind::Invalid);
    assert_eq!(
        error.to_string(),
        "dot.parse: line 1, column 1: `strict` is not part of the dialect; remove `strict`: two edges between the same \
         nodes are two edges"
    );
}
