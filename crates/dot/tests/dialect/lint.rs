//! Section 1.8: every rule finds its problem, with severity, location and remedy, and nothing else.
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use ferrata_dot::Pipeline;
use ferrata_dot::lint::{Diagnostic, LintRule, Linter, Severity, View};
use ferrata_dot::transform::Transforms;

fn pipeline(statements: &str) -> Pipeline {
    let source = format!("digraph G {{ {statements} }}");
    let mut pipeline =
        Pipeline::parse(source.as_bytes()).unwrap_or_else(|error| panic!("{}", error.report("test.dot")));
    Transforms::default().apply(&mut pipeline).unwrap();
    pipeline
}

/// A valid frame for the statements of a test: a start, an exit, and an edge to and from `a`.
const FRAME: &str =
    "start [shape=Mdiamond] exit [shape=Msquare] start -> a -> exit edge [label=\"\"] node [prompt=\"do\"] ";

/// The diagnostics of these statements in the frame.
fn found(statements: &str) -> Vec<Diagnostic> {
    Linter::default().lint(&pipeline(&format!("{FRAME}{statements}")))
}

/// The only diagnostic of these statements.
fn only(statements: &str) -> Diagnostic {
    let mut all = found(statements);
    assert_eq!(all.len(), 1, "{all:#?}");
    let one = all.remove(0);
    assert!(one.fix.as_ref().is_some_and(|fix| !fix.is_empty()), "{one}");
    one
}

fn check(statements: &str, rule: &str, severity: Severity, node: Option<&str>, edge: Option<(&str, &str)>) {
    let one = only(statements);
    assert_eq!((&*one.rule, one.severity), (rule, severity), "{one}");
    assert_eq!(one.node.as_deref(), node, "{one}");
    assert_eq!(one.edge.as_ref().map(|(from, to)| (&**from, &**to)), edge, "{one}");
    assert_ne!(one.span.end, 0, "{one} has no location");
}

/// Guarantees: LINT-2.
#[test]
fn nothing_is_found_in_a_good_pipeline() {
    assert_eq!(found("a"), []);
}

#[test]
fn start_node() {
    check("a start2 [shape=Mdiamond] start2 -> a", "start_node", Severity::Error, Some("start2"), None);
    let none = Linter::default().lint(&pipeline("a [prompt=x] exit a -> exit"));
    assert_eq!(none.len(), 1, "{none:?}");
    assert_eq!((&*none[0].rule, none[0].severity), ("start_node", Severity::Error));
}

#[test]
fn terminal_node() {
    check("a exit2 [shape=Msquare] a -> exit2", "terminal_node", Severity::Warning, Some("exit2"), None);
    let none = Linter::default().lint(&pipeline("start a [prompt=x] start -> a"));
    assert_eq!(none.len(), 1, "{none:?}");
    assert_eq!((&*none[0].rule, none[0].severity), ("terminal_node", Severity::Error));
}

/// Guarantees: LINT-4.
#[test]
fn reachability() {
    check("a orphan orphan -> exit", "reachability", Severity::Error, Some("orphan"), None);
    assert_eq!(found("a [retry_target=fix] fix -> a fix"), [], "a jump must count as a path");
    assert_eq!(found("a graph [retry_target=fix] fix -> a fix"), [], "a jump of the graph must count, too");
}

#[test]
fn edge_target_exists() {
    check(
        "a a -> implment implement a -> implement -> exit",
        "edge_target_exists",
        Severity::Error,
        None,
        Some(("a", "implment")),
    );
    let one = only("a a -> implment implement a -> implement -> exit");
    assert!(one.fix.unwrap().starts_with("did you mean `implement`?"));
    assert_eq!(
        found("a a -> nobody -> exit").iter().map(|one| &*one.rule).collect::<Vec<_>>(),
        ["declared_by_edge"]
    );
}

#[test]
fn start_no_incoming() {
    check("a a -> start", "start_no_incoming", Severity::Error, None, Some(("a", "start")));
}

#[test]
fn exit_no_outgoing() {
    check("a exit -> a", "exit_no_outgoing", Severity::Error, None, Some(("exit", "a")));
}

#[test]
fn condition_syntax() {
    let statements = "a a -> exit [condition=\"outcome==success\"]";
    check(statements, "condition_syntax", Severity::Error, None, Some(("a", "exit")));
    let one = only(statements);
    let source = format!("digraph G {{ {FRAME}{statements} }}");
    assert_eq!(&source[one.span.start..], "==success\"] }".strip_prefix("").unwrap());
    assert_eq!(one.fix.as_deref(), Some("write `=`"));
}

#[test]
fn stylesheet_syntax() {
    let one = only("a model_stylesheet=\"* { llm_modle: x }\"");
    assert_eq!((&*one.rule, one.severity), ("stylesheet_syntax", Severity::Error));
    assert!(one.message.contains("llm_modle"), "{one}");
    assert_ne!(one.span.end, 0);
}

#[test]
fn type_known() {
    check("a [type=toool]", "type_known", Severity::Error, Some("a"), None);
    assert_eq!(only("a [type=toool]").fix.as_deref(), Some("did you mean `tool`?"));
    let own = Linter::default().with_type("toool");
    assert_eq!(own.lint(&pipeline(&format!("{FRAME} a [type=toool]"))), []);
}

/// Lint reports a condition on a key that nothing sets.
#[test]
fn condition_keys() {
    for key in [
        "context.internal.node_visit_count",
        "internal.x",
        "context.failure_class",
        "graph.none",
        "response.nobody",
    ] {
        let statements = format!("a a -> exit [condition=\"outcome=success && {key}=1\"]");
        check(&statements, "condition_keys", Severity::Warning, None, Some(("a", "exit")));
    }
    for key in [
        "context.tests_passed",
        "internal.restarts",
        "graph.goal",
        "response.a",
        "usage.cost",
        "tool.exit_code",
    ] {
        assert_eq!(found(&format!("goal=x a [prompt=do] a -> exit [condition=\"{key}=1\"]")), [], "{key}");
    }
}

/// Lint reports a variable of a command that nothing sets, because the shell would see an empty text.
#[test]
fn command_variables() {
    let told = |command: &str| {
        let tool =
            format!("a t [shape=parallelogram, env.COLOR=red, tool_command=\"{command}\"] a -> t -> exit");
        found(&tool).into_iter().map(|one| (one.rule.into_owned(), one.severity)).collect::<Vec<_>>()
    };
    let unused = [("unused_variables".to_owned(), Severity::Warning)];
    for command in
        ["rm -rf $target_dir/build", "echo \\\"${x}\\\"", "curl -H $GITHUB_TOKEN", "echo {{ other }}"]
    {
        assert_eq!(told(command), unused, "{command}");
    }
    let known =
        "x=1; echo $x $PATH $COLOR $FERRATA_NODE {{ inputs.y }} ${tool.output} '$z' ${z:-} $1 $? # $z";
    assert_eq!(told(known), []);
    let python =
        "a t [shape=parallelogram, language=python, tool_command=\"print({{ x }}, '$y')\"] a -> t -> exit";
    check(python, "unused_variables", Severity::Error, Some("t"), None);
}

#[test]
fn fidelity_valid() {
    check("a [fidelity=fulll]", "fidelity_valid", Severity::Warning, Some("a"), None);
    check(
        "a a -> exit [fidelity=\"summary:huge\"]",
        "fidelity_valid",
        Severity::Warning,
        None,
        Some(("a", "exit")),
    );
    assert_eq!(only("a default_fidelity=some").rule, "fidelity_valid");
    for mode in ["full", "truncate", "compact", "summary:low", "summary:medium", "summary:high"] {
        assert_eq!(found(&format!("a [fidelity={mode}]")), []);
    }
}

#[test]
fn retry_target_exists() {
    check("a [retry_target=nobody]", "retry_target_exists", Severity::Warning, Some("a"), None);
    check("a [fallback_retry_target=nobody]", "retry_target_exists", Severity::Warning, Some("a"), None);
    assert_eq!(only("a graph [retry_target=nobody]").rule, "retry_target_exists");
}

#[test]
fn goal_gate_has_retry() {
    check("a [goal_gate=true]", "goal_gate_has_retry", Severity::Warning, Some("a"), None);
    assert_eq!(found("a [goal_gate=true, retry_target=a]"), []);
    assert_eq!(found("a [goal_gate=true] graph [retry_target=a]"), []);
}

#[test]
fn prompt_on_llm_nodes() {
    check("a b [prompt=\"\"] a -> b -> exit", "prompt_on_llm_nodes", Severity::Warning, Some("b"), None);
    assert_eq!(found("a b [prompt=\"\", label=\"Work\"] a -> b -> exit"), []);
    assert_eq!(found("a b [prompt=\"\", shape=diamond] a -> b -> exit"), []);
}

#[test]
fn exit_reachable() {
    check("a b a -> b", "exit_reachable", Severity::Warning, Some("b"), None);
}

#[test]
fn unique_names() {
    check("a a [x=1]", "unique_names", Severity::Warning, Some("a"), None);
}

#[test]
fn unused_variables() {
    check("a [prompt=\"use $language\"]", "unused_variables", Severity::Warning, Some("a"), None);
    assert_eq!(found("a [prompt=\"costs $5 and $goal\"] goal=\"ship\""), []);
}

/// Lint reports template syntax, which the model would get literally.
#[test]
fn template_variables_and_statements() {
    check("a [prompt=\"use {{ language }}\"]", "unused_variables", Severity::Warning, Some("a"), None);
    check("a [prompt=\"use ${response.b}\"]", "unused_variables", Severity::Warning, Some("a"), None);
    check("a [prompt=\"\", label=\"Do $this\"]", "unused_variables", Severity::Warning, Some("a"), None);
    check("a [prompt=\"do $goal\"]", "unused_variables", Severity::Warning, Some("a"), None);
    let known = "a [prompt=\"{{ inputs.x }} ${response.a} $tool.output. $item.title $last_response ${{ github.ref }}\"]";
    assert_eq!(found(known), []);
    assert_eq!(
        found("a [prompt=\"to $target\"] params=\"target, other\""),
        [],
        "declared as in another dialect"
    );
    check("a [prompt=\"{% if x %}y{% endif %}\"]", "template_statements", Severity::Error, Some("a"), None);
}

#[test]
fn high_retry_count() {
    check("a [max_retries=6]", "high_retry_count", Severity::Info, Some("a"), None);
    assert_eq!(found("a [max_retries=5]"), []);
}

#[test]
fn attribute_type() {
    check("a [max_retries=\"many\"]", "attribute_type", Severity::Error, Some("a"), None);
    check("a [timeout=0]", "attribute_type", Severity::Error, Some("a"), None);
    check("a [effect=dangerous]", "attribute_type", Severity::Error, Some("a"), None);
    check("a [reasoning_effort=\"\"]", "attribute_type", Severity::Error, Some("a"), None);
    check("a [retry_policy=never]", "attribute_type", Severity::Error, Some("a"), None);
    check("a a -> exit [weight=heavy]", "attribute_type", Severity::Error, None, Some(("a", "exit")));
    assert_eq!(found("a [timeout=\"900s\", goal_gate=\"false\", max_retries=\"3\"]"), []);
}

/// Lint reports each of these mistakes. Otherwise the pipeline stops in the middle, does not ask, or ignores an attribute.
///
/// Guarantees: LINT-4.
#[test]
fn names_that_mean_nothing_are_told() {
    let condition = "a a -> exit [condition=\"outcome=sucess\"]";
    check(condition, "outcome_known", Severity::Warning, None, Some(("a", "exit")));
    assert_eq!(only(condition).fix.as_deref(), Some("did you mean `success`?"));
    let fabro = "a a -> exit [condition=\"outcome=succeeded\"]";
    check(fabro, "outcome_known", Severity::Info, None, Some(("a", "exit")));
    assert_eq!(only(fabro).fix.as_deref(), Some("write `success`"));
    assert_eq!(found("a a -> exit [condition=\"outcome=success || outcome!=skipped\"]"), []);
    for (list, near) in [
        ("promt=x", "prompt"),
        ("goalgate=true", "goal_gate"),
        ("max_retry=1", "max_retries"),
        ("maxretries=1", "max_retries"),
        ("tool_comand=x", "tool_command"),
    ] {
        check(&format!("a [{list}]"), "attribute_known", Severity::Warning, Some("a"), None);
        assert_eq!(only(&format!("a [{list}]")).fix, Some(format!("did you mean `{near}`?")));
    }
    check("a a -> exit [wieght=2]", "attribute_known", Severity::Warning, None, Some(("a", "exit")));
    assert_eq!(only("a goall=x").rule, "attribute_known");
    assert_eq!(
        found("a [color=red, style=bold, mine=x, fillcolor=x, penwidth=2, owner=me] rankdir=LR fontname=x"),
        []
    );
    check("a [shape=ellipse]", "shape_known", Severity::Warning, Some("a"), None);
    assert_eq!(only("a [shape=hexagn]").fix.as_deref(), Some("did you mean `hexagon`?"));
    assert_eq!(found("a [shape=ellipse, type=codergen]"), []);
    let gate = "a [shape=hexagon] b a -> b [condition=\"outcome=success\"] b -> exit";
    let gate = Linter::default().lint(&pipeline(&format!("start exit node [prompt=x] start -> a {gate}")));
    assert_eq!(gate.iter().map(|one| &*one.rule).collect::<Vec<_>>(), ["gate_asks"]);
}

/// Guarantees: LINT-4.
#[test]
fn lint_reports_node_without_edge_after_success() {
    let rules = |edges: &str| -> Vec<String> {
        let source = format!("start exit node [prompt=x] a b start -> a b -> exit {edges}");
        Linter::default().lint(&pipeline(&source)).into_iter().map(|one| one.rule.into_owned()).collect()
    };
    let none = "a -> b [condition=\"outcome=fail\"] a -> exit [condition=\"outcome=skipped\"]";
    assert_eq!(rules(none), ["way_on"]);
    assert_eq!(rules("a -> b [condition=\"outcome=fail\"] a -> exit [condition=\"outcome!=fail\"]"), [""; 0]);
    assert_eq!(
        rules("a -> b [condition=\"outcome=fail\"] a -> exit [condition=\"x=1\"]"),
        [""; 0],
        "nobody knows"
    );
    assert_eq!(rules("a -> b [condition=\"outcome=fail\"] a -> exit"), [""; 0]);
}

/// Guarantees: DIALECT-1.
#[test]
fn what_other_dialects_write_is_told_and_taken() {
    check("a [timeout=600]", "duration_unit", Severity::Info, Some("a"), None);
    check("a [timeout=\"300\"]", "duration_unit", Severity::Info, Some("a"), None);
    assert_eq!(only("a [timeout=600]").fix.as_deref(), Some("write `600s`"));
    check("a a -> exit [weight=2.0]", "number_form", Severity::Info, None, Some(("a", "exit")));
    let sheet = only("a model_stylesheet=\"* { model: x }\"");
    assert_eq!((&*sheet.rule, sheet.severity), ("stylesheet_names", Severity::Info));
    check(
        "a [goal_gate=\"the tests pass\", retry_target=a]",
        "goal_gate_text",
        Severity::Warning,
        Some("a"),
        None,
    );
    assert_eq!(only("a model_stylesheet=\"* { temperature: 0.7 }\"").rule, "stylesheet_names");
    assert_eq!(only("a [x=1 y=2]").rule, "missing_comma");
    assert_eq!(only(r#"a [x="\d"]"#).rule, "unknown_escape");
    check(
        "a d [shape=diamond, max_retries=2] a -> d -> exit",
        "attribute_acts",
        Severity::Error,
        Some("d"),
        None,
    );
    check(
        "a m [shape=house, max_retries=2] a -> m -> exit",
        "retries_act",
        Severity::Warning,
        Some("m"),
        None,
    );
    let gate = "a g [shape=hexagon, human.default_choice=exit] a -> g -> exit";
    check(gate, "attribute_alone", Severity::Warning, Some("g"), None);
    check("a [retry_on=fail]", "attribute_alone", Severity::Warning, Some("a"), None);
    for retries in ["max_retries=1", "retry_policy=linear"] {
        assert_eq!(found(&format!("a [retry_on=fail, {retries}]")), []);
    }
    assert_eq!(found("default_max_retries=1 a [retry_on=fail]"), []);
}

/// Lint reports every mistake that `run` refuses.
///
/// Guarantees: DIALECT-1.
#[test]
fn lint_checks_budget_number_and_target() {
    let of = |graph: &str| {
        let pipeline = pipeline(&format!("graph [{graph}] start exit a [prompt=x] start -> a -> exit"));
        let found = ferrata_dot::compile::Compiler::default().diagnose(&pipeline);
        found.iter().map(|one| one.rule.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(
        of("max_cost=2.5, max_total_tokens=1000, max_time=15m, budget_target=a"),
        Vec::<String>::new()
    );
    assert_eq!(of("max_cost_cents=250"), Vec::<String>::new());
    assert_eq!(of("max_cost=\"2.5\", max_cost_cents=250"), ["attribute_alias"]);
    assert_eq!(of("max_budget_usd=2, max_cost_usd=3"), ["attribute_alias", "attribute_alias"]);
    assert_eq!(of("max_cost=much"), ["attribute_type"]);
    assert_eq!(of("max_total_tokens=-1"), ["attribute_type"]);
    assert_eq!(of("budget_target=nowhere, max_cost=1"), ["retry_target_exists"]);
    assert_eq!(of("max_costs=1"), ["attribute_known"]);
}

/// Guarantees: LINT-3.
#[test]
fn lint_reports_compile_errors() {
    use ferrata_dot::compile::Compiler;
    use ferrata_dot::handler::{Manager, Registry};
    let manager = Manager::new(Registry::default());
    let compiler = Compiler::new(Registry::default().with("stack.manager_loop", manager));
    for (statements, node, part) in [
        (
            "t [shape=parallelogram] u [shape=parallelogram] start -> t -> u -> exit",
            "t u",
            "the tool has no command",
        ),
        ("h [shape=house] start -> h -> exit", "h", "the manager has no child"),
        (
            "h [shape=house, stack.child_dotfile=\"no.dot\"] start -> h -> exit",
            "h",
            "cannot read the child `no.dot`",
        ),
        (
            "p [shape=component] a b exit [shape=Msquare] other [shape=Msquare] start -> p p -> a -> exit p -> b -> other",
            "p",
            "lead to different exits",
        ),
        ("w [shape=insulator] start -> w -> exit", "w", "the wait has no duration"),
    ] {
        let pipeline = pipeline(&format!("start exit node [prompt=x] {statements}"));
        let found = compiler.diagnose(&pipeline);
        let errors: Vec<&Diagnostic> = found.iter().filter(|one| one.severity == Severity::Error).collect();
        let nodes: Vec<&str> = errors.iter().filter_map(|one| one.node.as_deref()).collect();
        assert_eq!(nodes.join(" "), node, "{statements}: {found:?}");
        assert!(errors.iter().all(|one| one.rule == "runs" && one.message.contains(part)), "{found:?}");
        assert!(errors.iter().all(|one| one.span.end > 0 && one.fix.is_some()), "{found:?}");
        assert!(compiler.compile(&pipeline).is_err(), "{statements}");
    }
    assert_eq!(compiler.diagnose(&pipeline("start exit a [prompt=x] start -> a -> exit")), []);
}

/// Guarantees: LINT-1.
#[test]
fn lint_errors_come_first_and_block_run() {
    let linter = Linter::default();
    let bad = pipeline(&format!("{FRAME} a [max_retries=9, goal_gate=true] exit -> a"));
    let error = linter.check(&bad).unwrap_err();
    let severities: Vec<_> = error.diagnostics().iter().map(|found| found.severity).collect();
    assert_eq!(severities, [Severity::Error, Severity::Warning, Severity::Info]);
    let error = ferrata_core::Error::from(error);
    assert_eq!(error.kind(), ferrata_core::ErrorKind::Invalid);
    assert!(error.to_string().starts_with("dot.lint: error[exit_no_outgoing]: edge exit -> a: "), "{error}");
    assert_eq!(linter.check(&pipeline(&format!("{FRAME} a [max_retries=9]"))).unwrap().len(), 1);
}

/// Guarantees: LINT-5.
#[test]
fn custom_rules_follow_the_built_in_ones() {
    struct NoLabels;
    impl LintRule for NoLabels {
        fn check(&self, view: &View<'_>, found: &mut Vec<Diagnostic>) {
            assert!(found.iter().any(|one| one.rule == "high_retry_count"), "built-in rules must come first");
            let labelled = view.nodes().filter(|(_, node)| node.attributes.is_own("label"));
            found.extend(labelled.map(|(_, node)| {
                Diagnostic::new("no_labels", Severity::Warning, "has a label").at_node(node).fix("remove it")
            }));
        }
    }
    let linter = Linter::default().with_rule(NoLabels);
    let found = linter.lint(&pipeline(&format!("{FRAME} a [label=A, max_retries=7]")));
    assert_eq!(found.iter().map(|one| &*one.rule).collect::<Vec<_>>(), ["no_labels", "high_retry_count"]);
}

#[test]
fn a_report_shows_the_place() {
    let source = b"digraph G {\n  start\n  exit\n  start -> exit\n  a [prompt=x]\n  a -> exit\n}";
    let found = Linter::default().lint(&Pipeline::parse(source).unwrap());
    assert_eq!(
        found[0].report("p.dot", source),
        "error[reachability]: `a` cannot be reached from the start\n --> p.dot:5:3\n  |\n5 |   a [prompt=x]\n  |   ^\n\
         help: add an edge to the node, or remove the node\n"
    );
}

/// Lint warns of branches without a fan-in.
#[test]
fn lint_reports_unusual_open_branches() {
    use ferrata_dot::compile::Compiler;
    let found = |statements: &str| {
        let pipeline = pipeline(&format!("start exit node [prompt=x] {statements}"));
        let found = Compiler::default().diagnose(&pipeline);
        assert!(found.iter().all(|one| one.severity == Severity::Warning && one.fix.is_some()), "{found:?}");
        let told = |one: &Diagnostic| format!("{} {}", one.rule, one.node.as_deref().unwrap_or("-"));
        found.iter().map(told).collect::<Vec<_>>()
    };
    let meet = "p [shape=component] a b both start -> p p -> a -> both p -> b -> both both -> exit";
    assert_eq!(found(meet), ["branches_meet p"]);
    let ends = "p [shape=component] a b start -> p p -> a -> exit p -> b -> exit";
    assert_eq!(found(ends), ["branches_meet p"]);
    let join =
        "p [shape=component] f [shape=tripleoctagon] a b start -> p p -> a -> f p -> b -> f f -> c c -> exit";
    assert_eq!(found(&format!("{join} c")), Vec::<String>::new());
    assert_eq!(found(&format!("c {join} a -> p [condition=\"outcome=fail\"]")), ["leaves_branch a"]);
    assert_eq!(found(&format!("c {join} c -> a [condition=\"outcome=fail\"]")), ["enters_branch c"]);
}
