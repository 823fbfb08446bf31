//! Changes that affect a fingerprint, and changes that do not.

use super::*;

fn base() -> GraphBuilder<Context> {
    nodes("a b c d").entry("a").edge("a", ["b", "c"]).edge(["b", "c"], "d")
}

/// Returns the fingerprint of node `d` and that of the graph.
fn of(builder: GraphBuilder<Context>) -> (String, String) {
    let graph = builder.build().unwrap();
    (graph.node_fingerprint("d").unwrap().to_string(), graph.fingerprint().to_string())
}

#[test]
fn are_the_same_in_every_release() {
    // Stored runs depend on these values: a change strands every active run.
    assert_eq!(
        of(base()),
        ("97ccfc729d06aca9f4893e4d01b37e5e".into(), "029106413e2734cab46eb949e26d6297".into())
    );
}

#[test]
fn a_node_changes_with_what_it_means() {
    let (node, graph) = of(base());
    for (what, changed) in [
        ("effect", base().effect(Effect::Pure)),
        ("join", base().join(Join::Any)),
        ("count of a join", base().join(Join::AtLeast(1))),
        ("edge", base().edge("d", "a")),
        ("goal gate", base().goal_gate(|_| true)),
        ("revision", base().revision("2")),
    ] {
        let (changed_node, changed_graph) = of(changed);
        assert_ne!(changed_node, node, "{what}");
        assert_ne!(changed_graph, graph, "{what}");
    }
    let kinds =
        [of(base().edge("d", "a")).0, of(base().edge("d", "a").on_failure()).0, of(base().edge("d", "b")).0];
    assert_eq!(std::collections::BTreeSet::from(kinds).len(), 3);
}

#[test]
fn a_graph_changes_with_entry_version_and_channels() {
    let (node, graph) = of(base());
    for (what, changed) in [
        ("version", base().version("2")),
        ("channel", base().channel("notes", Reducer::Append)),
        ("another node", base().edge("a", "e").node("e", async |_, s| Ok(s))),
        ("entry", nodes("a b c d").entry("b").edge("a", ["b", "c"]).edge(["b", "c"], "d").fallback("a")),
    ] {
        let (changed_node, changed_graph) = of(changed);
        assert_eq!(changed_node, node, "{what}");
        assert_ne!(changed_graph, graph, "{what}");
    }
}

#[test]
fn fingerprint_ignores_limits_and_declaration_order() {
    let before = of(base());
    let second = Duration::from_secs(1);
    for (what, same) in [
        ("retry", base().retry(RetryPolicy::standard())),
        ("timeout", base().timeout(second)),
        ("visits", base().max_visits(2)),
        ("replans", base().max_replans(9).max_replans_total(9)),
        ("retry target", base().retry_target("a")),
        ("checkpoint", base().checkpoint(NodeCheckpoint::After)),
        ("limits", base().max_steps(9).deadline(second).concurrency(1).fallback("a")),
        ("order of nodes", nodes("d c b a").entry("a").edge("a", ["b", "c"]).edge(["b", "c"], "d")),
        ("order of edges", nodes("a b c d").edge(["c", "b"], "d").edge("a", ["c", "b"]).entry("a")),
    ] {
        assert_eq!(of(same), before, "{what}");
    }
}
