//! An attribute has an effect on its node, or is an error. Attributes of other dialects are accepted or reported.
#![cfg(unix)]

use std::fmt::Write as _;
use std::path::Path;

use crate::support::{pipeline, run_with};
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::Context;
use ferrata_core::store::MemoryStore;
use ferrata_dot::attribute::{ALIASES, ALL, AttributeOwner};
use ferrata_dot::compile::Compiler;
use ferrata_dot::handler::{Codergen, CommandBackend, Manager, Registry};
use ferrata_dot::lint::Severity;
use ferrata_dot::pipeline::SHAPES;
use ferrata_dot::transform::Transforms;

/// Returns the rules of a pipeline's errors, and whether it compiles.
fn errors(statements: &str) -> (Vec<String>, bool) {
    let pipeline =
        pipeline(&format!("digraph G {{ start [shape=Mdiamond] exit [shape=Msquare] {statements} }}"));
    let compiler = Compiler::default();
    let found = compiler.diagnose(&pipeline);
    let errors = found.iter().filter(|one| one.severity == Severity::Error);
    let errors: Vec<String> =
        errors.map(|one| format!("{} {}", one.rule, one.node.as_deref().unwrap_or("-"))).collect();
    (errors, compiler.compile(&pipeline).is_ok())
}

#[track_caller]
fn refused(statements: &str, error: &str) {
    let (errors, compiles) = errors(statements);
    assert_eq!((errors, compiles), (vec![error.to_owned()], false), "{statements}");
}

async fn run(statements: &str) -> crate::support::Ran {
    let registry = Registry::default().with("codergen", Codergen::new(CommandBackend::new("cat")));
    run_with(
        &format!("digraph G {{ start exit default_fidelity=full {statements} }}"),
        registry,
        Context::new(),
    )
    .await
}

/// A command on a node without `shape=parallelogram` is executed.
///
/// Guarantees: DOT-4.
#[tokio::test]
async fn command_makes_node_a_tool() {
    let ran = run("build [script=\"echo built; exit 3\"] start -> build -> exit").await;
    assert_eq!(ran.failure(), "the command ended with status 3: built");
    let ran = run("t [shape=box, tool_command=\"echo ran\"] start -> t -> exit").await;
    assert_eq!(ran.text("tool.output"), "ran\n");
    // A node's own prompt wins over a default command of its scope. Next to a node's own command, a prompt has no effect.
    let ran = run("node [tool_command=\"echo ran\"] a [prompt=\"ask\"] t start -> a -> t -> exit").await;
    assert_eq!((ran.text("response.a"), ran.text("tool.output")), ("ask".into(), "ran\n".into()));
    refused("t [prompt=\"unused\", tool_command=\"exit 9\"] start -> t -> exit", "attribute_acts t");
    refused("g [shape=hexagon, script=\"true\"] start -> g -> exit", "attribute_acts g");
}

/// A node of an unknown type is an error. It is neither simulated nor passed to the model.
///
/// Guarantees: DOT-4.
#[test]
fn unknown_type_is_refused() {
    for kind in ["subgraph", "sub_pipeline", "stack.observe", "mcp"] {
        refused(&format!("sub [type=\"{kind}\", label=\"Deploy\"] start -> sub -> exit"), "type_known sub");
    }
    refused("sub [handler=filesystem] start -> sub -> exit", "type_known sub");
    assert_eq!(errors("sub [handler=codergen, prompt=x] start -> sub -> exit"), (vec![], true));
}

/// Each attribute of the language has an effect on a node type, or is an error on it.
///
/// Guarantees: DOT-3.
#[test]
fn each_attribute_acts_or_is_an_error() {
    for (shape, kind) in SHAPES {
        for rule in ALL {
            let (is_of_nodes, acts) = (
                matches!(rule.owner, AttributeOwner::AnyNode | AttributeOwner::NodeOf(_)),
                ALL.iter().any(|other| other.name == rule.name && other.acts_on(kind)),
            );
            if !is_of_nodes && acts || ["shape", "type", "tool_command"].contains(&rule.name) {
                continue;
            }
            let name = rule.name.replace("NAME", "COLOR");
            let source = format!("digraph G {{ n [shape={shape}, {name}=x] }}");
            let found = ferrata_dot::lint::Linter::default().lint(&pipeline(&source));
            let idle =
                found.iter().any(|one| one.rule == "attribute_acts" && one.severity == Severity::Error);
            assert_eq!(idle, !acts, "{} on {kind}: {found:?}", rule.name);
        }
    }
    for (statements, error) in [
        ("d [shape=diamond, prompt=\"Done?\"] start -> d -> exit", "attribute_acts d"),
        ("a [prompt=x, condition=\"x=1\"] start -> a -> exit", "attribute_acts a"),
        ("a [prompt=x] start -> a -> exit [max_visits=3]", "attribute_acts -"),
        ("a [prompt=x] start -> a -> exit timeout=9s", "attribute_acts -"),
        ("a [prompt=x, model=m, llm_model=n] start -> a -> exit", "attribute_alias a"),
    ] {
        refused(statements, error);
    }
    // A default of a scope may apply to some of its nodes only.
    let all = "node [timeout=9s, llm_model=m, prompt=x] a d [shape=diamond] start -> a -> d -> exit";
    assert_eq!(errors(all), (vec![], true));
    let found = Compiler::default()
        .diagnose(&pipeline("digraph G { start exit node [duration=9s] a [prompt=x] start -> a -> exit }"));
    let told: Vec<_> = found.iter().map(|one| (&*one.rule, one.severity)).collect();
    assert_eq!(
        told,
        [("attribute_acts", Severity::Warning)],
        "a default without any effect must be reported"
    );
}

/// Attributes that change the behavior in another dialect are reported.
///
/// Guarantees: DIALECT-2.
#[test]
fn foreign_attribute_has_a_remedy() {
    for attribute in [
        "import=\"./other.fabro\"",
        "output_schema=\"{}\"",
        "backend=acp",
        "acp.command=\"x\"",
        "question_type=yes_no",
        "mcp_server=x",
    ] {
        let source = format!("digraph G {{ start exit a [prompt=x, {attribute}] start -> a -> exit }}");
        let found = Compiler::default().diagnose(&pipeline(&source));
        let [one] = &found[..] else { panic!("{attribute}: {found:?}") };
        assert_eq!((&*one.rule, one.severity), ("attribute_acts", Severity::Error), "{one}");
        assert!(one.fix.as_ref().is_some_and(|fix| fix.len() > 20), "{one}");
    }
    let free = "g [shape=hexagon, review_target=x, persona=y] a [prompt=x, max_tokens=9, allowed_tools=z] start -> g -> a -> exit";
    let found = Compiler::default().diagnose(&pipeline(&format!("digraph G {{ start exit {free} }}")));
    assert_eq!(found, [], "options for engines of other dialects must be accepted");
}

/// An attribute with the name of a stylesheet property sets the model of a node.
///
/// Guarantees: DIALECT-1.
#[tokio::test]
async fn model_of_node_acts() {
    let backend =
        CommandBackend::new("echo $FERRATA_LLM_MODEL/$FERRATA_LLM_PROVIDER/$FERRATA_REASONING_EFFORT");
    let registry = Registry::default().with("codergen", Codergen::new(backend));
    let text = "digraph G { start exit model_stylesheet=\"* { model: sheet; provider: s; reasoning_effort: max }\" \
                a [model=\"gpt-5.4\", provider=openai, reasoning_effort=xhigh] b start -> a -> b -> exit }";
    let ran = run_with(text, registry, Context::new()).await;
    assert_eq!(
        (ran.text("response.a"), ran.text("response.b")),
        ("gpt-5.4/openai/xhigh\n".into(), "sheet/s/max\n".into())
    );
}

/// `for_each` on a fork starts a branch for each item.
///
/// Guarantees: DIALECT-1.
#[tokio::test]
async fn fork_begins_branch_for_each_item() {
    let items = "printf '{\\\"outcome\\\":\\\"success\\\",\\\"context_updates\\\":{\\\"list\\\":[{\\\"n\\\":1},{\\\"n\\\":2},{\\\"n\\\":3}]}}' > $FERRATA_STAGE_DIR/status.json";
    let folder = tempfile::tempdir().unwrap();
    let registry = Registry::default()
        .with("tool", ferrata_dot::handler::Tool::default().with_run_directory(folder.path()))
        .with("codergen", Codergen::new(CommandBackend::new("cat")));
    let text = format!(
        "digraph G {{ start exit default_fidelity=full items [script=\"{items}\"] fan [shape=component, for_each=\"context.list\"] \
         one [prompt=\"Do {{{{ item.n }}}}\"] in [shape=tripleoctagon] start -> items -> fan -> one -> in -> exit }}"
    );
    let ran = run_with(&text, registry, Context::new()).await;
    let results = ran.context().get_value("parallel.results").unwrap().as_array().unwrap().clone();
    let told: Vec<&str> = results.iter().filter_map(|one| one["context"]["response.one"].as_str()).collect();
    assert_eq!(told, ["Do 1", "Do 2", "Do 3"]);
}

/// `class="a b"` sets two classes, and a Python command is not run by the shell.
///
/// Guarantees: DIALECT-1.
#[tokio::test]
async fn classes_and_languages_are_taken() {
    let pipeline = pipeline(
        "digraph G { model_stylesheet=\".fast { model: m1 } .review { provider: p }\" a [class=\"fast review, fast\"] }",
    );
    let node = pipeline.node("a").unwrap();
    assert_eq!(node.classes(), ["fast", "review"]);
    assert_eq!((&*node.attributes.text("llm_model"), &*node.attributes.text("llm_provider")), ("m1", "p"));
    let ran = run("c [shape=parallelogram, script=\"import os; print(1 + 1, os.environ['FERRATA_NODE'])\", language=python] start -> c -> exit").await;
    assert_eq!(ran.text("tool.output"), "2 c\n");
    refused("c [script=\"1\", language=ruby] start -> c -> exit", "attribute_type c");
}

/// Guarantees: DIALECT-1.
#[tokio::test]
async fn prompt_file_is_read() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("plan.md"), "Plan it").unwrap();
    let read = |attributes: &str| {
        let source = format!("digraph G {{ start exit a [{attributes}] start -> a -> exit }}");
        let mut pipeline = ferrata_dot::Pipeline::parse(source.as_bytes()).unwrap();
        Transforms::in_directory(Some(folder.path().to_owned())).apply(&mut pipeline).map(|()| pipeline)
    };
    assert_eq!(
        read("prompt_file=\"plan.md\"").unwrap().node("a").unwrap().attributes.text("prompt"),
        "Plan it"
    );
    let both = read("prompt_file=\"plan.md\", prompt=x").unwrap_err();
    assert!(both.message().contains("`prompt` and `prompt_file` are both set"), "{both}");
}

/// A gate with a prompt asks the prompt, not its id.
///
/// Guarantees: DOT-14.
#[tokio::test]
async fn gate_asks_its_prompt_and_shows_answers() {
    let asked = async |statements: &str| {
        let source = format!("digraph G {{ start exit {statements} }}");
        let registry = Registry::default()
            .with("codergen", Codergen::new(CommandBackend::new("cat > /dev/null; echo the plan")));
        let graph = Compiler::new(registry).compile(&pipeline(&source)).unwrap();
        let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
        let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
        let Outcome::Interrupted(questions) = run.wait().await.unwrap() else { panic!("the gate must ask") };
        questions[0].read::<serde_json::Value>().unwrap()
    };
    let question =
        asked("plan g [shape=hexagon, prompt=\"Is {{ response.plan }} fine?\"] start -> plan -> g -> exit")
            .await;
    assert_eq!(
        (&question["text"], &question["title"]),
        (&"Is the plan\n fine?".into(), &serde_json::Value::Null)
    );
    assert_eq!(question["shown"], "`plan` answered:\nthe plan\n");
    let question = asked("g [shape=hexagon, prompt=\"Fine?\", label=\"Review\"] start -> g -> exit").await;
    assert_eq!((&question["text"], &question["title"]), (&"Fine?".into(), &"Review".into()));
    // A default prompt for all nodes applies to tasks only.
    let question = asked("node [prompt=x] t [script=\"echo 3 tests\"] g [shape=hexagon, label=\"Ship?\"] start -> t -> g -> exit").await;
    assert_eq!(
        (&question["text"], &question["shown"]),
        (&"Ship?".into(), &"the last command printed:\n3 tests\n".into())
    );
}

/// The node types that the language page calls tasks.
const TASKS: [&str; 4] = ["codergen", "prompt", "parallel.fan_in", "stack.manager_loop"];

/// Shortens a description of values for a table column.
fn short_values(values: &str) -> String {
    let [count, integer, amount] = ["a whole number of at least", "a whole number", "a number of at least"];
    let short =
        values.replace(count, "integer from").replace(integer, "integer").replace(amount, "number from");
    short.replace("a duration as `30s` or `15m`", "duration").replace("one of ", "")
}

/// The language page contains this table row by row. The test prints the table if it differs.
///
/// Guarantees: DOT-3.
#[test]
fn page_has_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/dot.md");
    let page = std::fs::read_to_string(path).unwrap();
    let kinds: Vec<&str> = SHAPES.iter().map(|(_, kind)| *kind).collect();
    let mut tables = String::new();
    for (title, is_of) in
        [("graph", AttributeOwner::Graph), ("node", AttributeOwner::AnyNode), ("edge", AttributeOwner::Edge)]
    {
        let is_node = is_of == AttributeOwner::AnyNode;
        let types = if is_node { " types |" } else { "" };
        writeln!(
            tables,
            "| {title} |{types} value | default | effect |\n|---|{}---|---|---|",
            if is_node { "---|" } else { "" }
        )
        .unwrap();
        for rule in ALL {
            let types = match rule.owner {
                owner if owner == is_of && !is_node => String::new(),
                AttributeOwner::AnyNode if is_node => " all |".to_owned(),
                AttributeOwner::NodeOf(of) if is_node && of.len() > kinds.len() * 2 / 3 => {
                    let others =
                        kinds.iter().filter(|kind| !of.contains(kind)).map(|kind| format!("`{kind}`"));
                    format!(" all but {} |", others.collect::<Vec<_>>().join(", "))
                }
                AttributeOwner::NodeOf(of) if is_node => {
                    let is_of_tasks = TASKS.iter().all(|kind| of.contains(kind));
                    let others = of.iter().filter(|kind| !is_of_tasks || !TASKS.contains(kind));
                    let others = others.map(|kind| format!("`{kind}`"));
                    let tasks = is_of_tasks.then(|| "tasks".to_owned());
                    format!(" {} |", tasks.into_iter().chain(others).collect::<Vec<_>>().join(", "))
                }
                _ => continue,
            };
            let aliases: Vec<String> = ALIASES
                .iter()
                .filter(|(_, name)| *name == rule.name)
                .map(|(alias, _)| format!("`{alias}`"))
                .collect();
            let aliases =
                if aliases.is_empty() { String::new() } else { format!(", {}", aliases.join(", ")) };
            writeln!(
                tables,
                "| `{}`{aliases} |{types} {} | {} | {} |",
                rule.name,
                short_values(&rule.values()),
                rule.default,
                rule.effect
            )
            .unwrap();
        }
        tables.push('\n');
    }
    assert!(
        page.contains(tables.trim_end()),
        "docs/reference/dot.md lacks this table, or differs from it:\n\n{tables}"
    );
}

/// A child with the attribute name of another dialect is found, and can be steered.
#[test]
fn child_has_two_names() {
    let manager = Manager::new(Registry::default());
    let compiler = Compiler::new(Registry::default().with("stack.manager_loop", manager));
    let source =
        "digraph G { start exit m [shape=house, stack.child_workflow=\"none.dot\"] start -> m -> exit }";
    let found = compiler.diagnose(&pipeline(source));
    assert!(found.iter().any(|one| one.message.contains("cannot read the child `none.dot`")), "{found:?}");
}
