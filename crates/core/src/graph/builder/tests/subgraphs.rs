//! The result of inlining subgraphs, and rejected subgraphs.

use super::*;
use crate::graph::Lens;

fn review() -> GraphBuilder<Context> {
    nodes("split lint facts").entry("split").edge("split", ["lint", "facts"])
}

fn names(graph: &Graph<Context>) -> Vec<&str> {
    graph.node_names().map(|name| name.as_str()).collect()
}

/// The edges as `a -> b`, conditional ones with their kind.
fn edges(graph: &Graph<Context>) -> Vec<String> {
    let plan = graph.plan();
    let show = |edge: &crate::graph::plan::EdgePlan| {
        let (from, to) = (&plan.node(edge.from).name, &plan.node(edge.to).name);
        match edge.kind {
            EdgeKind::Plain => format!("{from} -> {to}"),
            kind => format!("{from} -{kind}-> {to}"),
        }
    };
    plan.edges.iter().map(show).collect()
}

fn issues(builder: GraphBuilder<Context>) -> Vec<String> {
    builder.build().unwrap_err().issues().iter().map(ToString::to_string).collect()
}

/// Guarantees: COMPOSE-1.
#[test]
fn every_branch_leads_on_where_nothing_is_decided() {
    let graph = nodes("write")
        .subgraph("review", &review().build().unwrap(), Lens::whole())
        .node("publish", async |_cx, s| Ok(s))
        .entry("write")
        .edge("write", "review")
        .edge("review", "publish")
        .build()
        .unwrap();
    assert_eq!(names(&graph), ["write", "review/split", "review/lint", "review/facts", "publish"]);
    assert_eq!(
        edges(&graph),
        [
            "review/split -> review/lint",
            "review/split -> review/facts",
            "write -> review/split",
            "review/lint -> publish",
            "review/facts -> publish",
        ]
    );
}

/// If each end evaluated a condition, the results could differ; a count would count the ends of one subgraph separately.
///
/// Guarantees: COMPOSE-4.
#[test]
fn what_decides_or_counts_is_asked_once() {
    let base = || nodes("x y").subgraph("review", &review().build().unwrap(), Lens::whole()).entry("review");
    let gathered = [
        "review/split -> review/lint",
        "review/split -> review/facts",
        "review/lint -> review",
        "review/facts -> review",
    ];
    for (builder, out) in [
        (base().edge("review", "x").when(|_| true).edge("review", "y").otherwise(), "review -when-> x"),
        (base().route("review", ["x", "y"], |_s, _cx| "x"), "review -routed-> x"),
        (
            base().node("two", async |_cx, s| Ok(s)).join(Join::AtLeast(1)).edge("review", ["two", "x", "y"]),
            "review -> two",
        ),
        (
            base().node("any", async |_cx, s| Ok(s)).join(Join::Any).edge("review", ["any", "x", "y"]),
            "review -> any",
        ),
    ] {
        let graph = builder.build().unwrap();
        assert_eq!(edges(&graph)[..4], gathered, "{out}");
        assert_eq!(edges(&graph)[4], out);
        assert_eq!(names(&graph)[2..6], ["review/split", "review/lint", "review/facts", "review"]);
    }
    // With a single end for all branches, that end decides.
    let one = nodes("a b").entry("a").edge("a", "b").build().unwrap();
    let graph = nodes("x y")
        .subgraph("s", &one, Lens::whole())
        .entry("s")
        .route("s", ["x", "y"], |_s, _cx| "x")
        .build();
    assert_eq!(edges(&graph.unwrap()), ["s/a -> s/b", "s/b -routed-> x", "s/b -routed-> y"]);
}

/// A conditional end is still an end: its branch must not be lost in the subgraph.
///
/// Guarantees: COMPOSE-3.
#[test]
fn branch_with_conditional_inner_end_leaves_subgraph() {
    let agent = nodes("think tool")
        .entry("think")
        .route("think", ["tool"], |_s, _cx| Route::none())
        .edge("tool", "think")
        .when(|_| true)
        .build()
        .unwrap();
    let graph =
        nodes("out").subgraph("agent", &agent, Lens::whole()).entry("agent").edge("agent", "out").build();
    assert_eq!(
        edges(&graph.unwrap()),
        [
            "agent/think -routed-> agent/tool",
            "agent/tool -when-> agent/think",
            "agent/think -routed-> out",
            "agent/tool -otherwise-> out",
        ]
    );
}

/// Guarantees: COMPOSE-8.
#[test]
fn unhandled_inner_failures_leave_subgraph() {
    let inner = nodes("a b mend").entry("a").edge("a", "b").edge("a", "mend").on_failure().build().unwrap();
    let graph = nodes("repair")
        .subgraph("s", &inner, Lens::whole())
        .entry("s")
        .edge("s", "repair")
        .on_failure()
        .build()
        .unwrap();
    assert_eq!(
        edges(&graph),
        ["s/a -> s/b", "s/a -on_failure-> s/mend", "s/b -on_failure-> repair", "s/mend -on_failure-> repair"]
    );
}

/// The node's own graph provides the first retry target. Enclosing graphs follow, from the inside out.
///
/// Guarantees: COMPOSE-8.
#[test]
fn retry_targets_run_from_inner_to_outer_graph() {
    let inner =
        nodes("a").retry_target("b").node("b", async |_cx, s| Ok(s)).entry("a").edge("a", "b").fallback("a");
    let middle = nodes("m").subgraph("in", &inner.build().unwrap(), Lens::whole());
    let middle = middle
        .node("n", async |_cx, s| Ok(s))
        .entry("m")
        .edge("m", "in")
        .edge("in", "n")
        .on_failure()
        .fallback("n");
    let outer =
        nodes("o").subgraph("mid", &middle.build().unwrap(), Lens::whole()).entry("o").edge("o", "mid");
    let graph = outer.fallback("mid").build().unwrap();
    let plan = graph.plan();
    let node = plan.node(plan.find("mid/in/a").unwrap());
    let returns: Vec<_> = node.returns.iter().map(|&at| plan.node(at).name.as_str()).collect();
    assert_eq!(returns, ["mid/in/b", "mid/in/a", "mid/n"]);
    assert_eq!(node.returns_first, 2, "the failure is taken before the middle graph goes back");
    assert_eq!(plan.node(plan.retry_target.unwrap()).name.as_str(), "mid/m");
}

#[test]
fn subgraph_name_works_wherever_node_name_does() {
    let one = || nodes("only").entry("only").build().unwrap();
    let graph = nodes("a")
        .retry_target("s")
        .subgraph("s", &one(), Lens::whole())
        .subgraph("t", &one(), Lens::whole())
        .entry("s")
        .edge("s", ["t", "a"])
        .edge("t", "s")
        .fallback("t")
        .build()
        .unwrap();
    assert_eq!(edges(&graph), ["s/only -> t/only", "s/only -> a", "t/only -> s/only"]);
    let plan = graph.plan();
    assert_eq!(plan.node(plan.entry).name.as_str(), "s/only");
    assert_eq!(plan.node(plan.retry_target.unwrap()).name.as_str(), "t/only");
}

/// Guarantees: COMPOSE-11.
#[test]
fn subgraph_change_changes_graph_fingerprint() {
    let with = |part: GraphBuilder<Context>| {
        let part =
            nodes("m").subgraph("in", &part.build().unwrap(), Lens::whole()).entry("m").edge("m", "in");
        let whole =
            nodes("o").subgraph("mid", &part.build().unwrap(), Lens::whole()).entry("o").edge("o", "mid");
        let graph = whole.build().unwrap();
        (graph.node_fingerprint("mid/in/facts").unwrap(), graph.fingerprint())
    };
    let (node, graph) = with(review());
    assert_eq!(with(review()), (node, graph));
    for (what, part) in [
        ("revision", review().node("more", async |_cx, s| Ok(s)).edge("facts", "more")),
        ("edge", review().edge("facts", "lint")),
    ] {
        let (changed_node, changed_graph) = with(part);
        assert_ne!(changed_node, node, "{what}");
        assert_ne!(changed_graph, graph, "{what}");
    }
    let (same, changed) = with(review().version("2"));
    assert_eq!(same, node, "the version is no part of a node");
    assert_ne!(changed, graph, "the version of a part is part of the whole");
    // Under other names, it equals the flat graph.
    let flat = nodes("a b").entry("a").edge("a", "b").build().unwrap();
    let part = nodes("b").entry("b").build().unwrap();
    let composed = nodes("a").subgraph("s", &part, Lens::whole()).entry("a").edge("a", "s").build().unwrap();
    assert_eq!(composed.plan().nodes.len(), flat.plan().nodes.len());
    assert_ne!(composed.fingerprint(), flat.fingerprint(), "names are part of the fingerprint");
}

#[test]
fn mistakes_name_the_path() {
    let part = || review().build().unwrap();
    let base =
        || nodes("write").subgraph("review", &part(), Lens::whole()).entry("write").edge("write", "review");
    assert_eq!(
        issues(base().edge("reviw", "write")),
        ["edge `reviw` -> `write`: the node `reviw` does not exist; did you mean `review`?"]
    );
    assert_eq!(
        issues(base().subgraph("review", &part(), Lens::whole())),
        ["node `review`: is added twice; give each node its own name"]
    );
    assert_eq!(
        issues(base().subgraph("again", &part(), Lens::whole()).retry(RetryPolicy::none())),
        [
            "node `again`: is a subgraph, which `retry` does not modify; set it on the nodes of its graph",
            "node `again`: cannot be reached from the entry `write`; add an edge that leads to it, or remove it"
        ]
    );
    assert_eq!(
        issues(base().edge("review/lint", "write")),
        [
            "edge `review/lint` -> `write`: the node `review/lint` does not exist; name the subgraph `review`, because only its own graph \
             can name its nodes",
        ]
    );
    assert_eq!(
        issues(base().node("review/x", async |_cx, s| Ok(s)).edge("write", "review/x")),
        ["node `review/x`: contains '/', which separates a subgraph from its nodes; use another character"]
    );
    let long = "n".repeat(125);
    let deep = nodes(&long).entry(&*long).build().unwrap();
    assert_eq!(
        issues(nodes("a").subgraph("sub", &deep, Lens::whole()).entry("a").edge("a", "sub")),
        [format!(
            "node `sub/{long}`: node name \"sub/{}…\" has 129 bytes; use 1 to 128 of A-Z a-z 0-9 . _ : - and do not start \
             with a dot",
            "n".repeat(36)
        )]
    );
}

/// Guarantees: COMPOSE-10.
#[test]
fn what_a_part_cannot_keep_is_refused() {
    let with = |part: GraphBuilder<Context>| {
        issues(nodes("a").subgraph("s", &part.build().unwrap(), Lens::whole()).entry("a").edge("a", "s"))
    };
    for (part, what) in [
        (review().deadline(Duration::from_secs(1)), "deadline"),
        (review().concurrency(2), "concurrency"),
        (review().max_steps(7), "max_steps"),
        (review().unlimited_steps(), "unlimited_steps"),
        (review().max_replans_total(1), "max_replans_total"),
    ] {
        assert_eq!(
            with(part),
            [format!(
                "node `s`: its graph sets `{what}`, which applies to a whole run; set it on this graph, or run the subgraph as a child"
            )]
        );
    }
    assert_eq!(
        with(review().migrate(1, |_| Ok(()))),
        [
            "node `s`: its graph migrates its state, which is part of the state of this graph; migrate the channels of this graph"
        ]
    );
}

#[test]
fn the_keys_of_a_part_bring_their_reducers() {
    let part = review().channel("notes", Reducer::Append).build().unwrap();
    let base = || nodes("a").subgraph("s", &part, Lens::keys("s.")).subgraph("t", &part, Lens::keys("t."));
    let graph = base().entry("a").edge("a", ["s", "t"]).build().unwrap();
    assert_eq!(graph.schema().reducer("s.notes"), &Reducer::Append);
    assert_eq!(graph.schema().reducer("t.notes"), &Reducer::Append);
    let other = review().channel("notes", Reducer::Union).build().unwrap();
    let twice = base().subgraph("u", &other, Lens::keys("t.")).entry("a").edge("a", ["s", "t", "u"]);
    assert_eq!(
        issues(twice),
        [
            "node `u`: its channel `t.notes` has the reducer `union`, and `append` in this graph; give both the same reducer, or its lens \
             another prefix"
        ]
    );
    let whole = nodes("a")
        .subgraph("s", &part, Lens::whole())
        .channel("notes", Reducer::Append)
        .entry("a")
        .edge("a", "s");
    assert_eq!(whole.build().unwrap().schema().reducer("notes"), &Reducer::Append);
}

/// Regression: a change by one subgraph silently removed keys of the other.
///
/// Guarantees: COMPOSE-10.
#[test]
fn overlapping_key_prefixes_are_refused() {
    let part = || nodes("work").entry("work").build().unwrap();
    let uses = |prefixes: &[&str]| {
        let mut graph = nodes("begin").entry("begin");
        for (at, prefix) in prefixes.iter().enumerate() {
            graph = graph
                .subgraph(format!("s{at}"), &part(), Lens::keys(*prefix))
                .edge("begin", format!("s{at}"));
        }
        graph
    };
    // Adjacent prefixes, and subgraphs that share one part deliberately.
    uses(&["a.", "b.", "a", "ab"]).build().unwrap_err();
    uses(&["a.", "b.", "a-b.", "a.", "b."]).build().unwrap();
    assert_eq!(
        issues(uses(&["a.b.", "c.", "a.", "a.b.c.", "a.b."])),
        [
            "node `s0`: its keys `a.b.` overlap with the keys `a.` of the subgraph `s2`; choose prefixes such that neither begins with the \
             other",
            "node `s4`: its keys `a.b.` overlap with the keys `a.` of the subgraph `s2`; choose prefixes such that neither begins with the \
             other",
            "node `s3`: its keys `a.b.c.` overlap with the keys `a.b.` of the subgraph `s4`; choose prefixes such that neither begins with \
             the other",
        ]
    );
    assert_eq!(issues(uses(&["", "x"])).len(), 1);
    // Next to the whole state, the part is intended.
    let whole = uses(&["a."]).subgraph("whole", &part(), Lens::whole()).edge("begin", "whole");
    whole.build().unwrap();
}
