//! Every mistake with its exact message.

use super::*;
use crate::ask::Ask;
use crate::graph::Effect;

/// Checks that a graph has exactly these mistakes.
#[track_caller]
fn check(builder: GraphBuilder<Context>, expected: &[&str]) {
    let error = builder.build().unwrap_err();
    let found: Vec<String> = error.issues().iter().map(ToString::to_string).collect();
    assert_eq!(found, expected);
}

#[test]
fn no_nodes() {
    check(Graph::builder("g"), &["has no nodes; add at least one with `node` or `add`"]);
}

#[test]
fn no_entry() {
    check(nodes("a"), &["has no entry; set the first node of a run, as in `.entry(\"a\")`"]);
}

#[test]
fn two_entries() {
    check(
        nodes("a b").edge("a", "b").entry("a").entry("b"),
        &["has more than one entry, `a` and `b`; keep one"],
    );
}

#[test]
fn names_that_are_refused() {
    check(
        Graph::builder("my graph").node("a/b", async |_, s| Ok(s)).entry("a/b"),
        &[
            "workflow name \"my graph\" contains ' '; use 1 to 128 of A-Z a-z 0-9 . _ : - and do not start with a dot",
            "node `a/b`: contains '/', which separates a subgraph from its nodes; use another character",
        ],
    );
}

#[test]
fn nodes_that_wait_and_must_not_be_repeated() {
    let child = nodes("a").entry("a").build().unwrap();
    let waits = Graph::builder("g")
        .child(
            "child",
            &child,
            |_s: &Context, _cx| Ok(Context::new()),
            |_s: &mut Context, _child: Context| {},
        )
        .effect(Effect::External)
        .gate("gate", |_s: &Context| Ask::<bool>::new("Go on?"), |_s: &mut Context, _yes| {})
        .effect(Effect::External)
        .entry("child")
        .edge("child", "gate");
    let message = "is declared `External`, so it cannot wait, because a node that waits starts again; declare another effect, and move the \
        work that must not be repeated to another node";
    check(
        waits,
        &["child", "gate"].map(|name| format!("node `{name}`: {message}")).each_ref().map(String::as_str),
    );
}

#[test]
fn versions_and_revisions_that_are_refused() {
    let long = "x".repeat(257);
    check(
        nodes("a b")
            .revision("")
            .node("c", async |_, s| Ok(s))
            .revision("1\n")
            .version(long)
            .entry("a")
            .edge("a", ["b", "c"]),
        &[
            "has a version of 257 bytes; use at most 256",
            "node `b`: has an empty revision; add text, or leave it out",
            "node `c`: has a revision with the control character '\\n'; leave it out",
        ],
    );
}

#[test]
fn limits_of_zero() {
    check(
        nodes("a")
            .timeout(Duration::ZERO)
            .max_visits(0)
            .join(Join::AtLeast(0))
            .entry("a")
            .max_steps(0)
            .concurrency(0)
            .deadline(Duration::ZERO),
        &[
            "allows 0 steps; use at least 1, or `unlimited_steps`",
            "allows 0 concurrent activations; use at least 1, or leave `concurrency` out",
            "has a deadline of zero; use a longer one, or leave `deadline` out",
            "node `a`: has a timeout of zero; use a longer one, or leave `timeout` out",
            "node `a`: allows 0 visits; use at least 1, or leave `max_visits` out",
            "node `a`: joins at least 0 tokens; use at least 1, or `Join::Any` to run for each",
        ],
    );
}

#[test]
fn a_retry_policy_that_cannot_be() {
    check(
        nodes("a").retry(RetryPolicy::standard().with_attempts(0)).entry("a"),
        &["node `a`: retries with 0 attempts; use at least 1, the first attempt counts"],
    );
}

#[test]
fn a_node_added_twice() {
    check(
        nodes("a b b").entry("a").edge("a", "b"),
        &["node `b`: is added twice; give each node its own name"],
    );
}

#[test]
fn unknown_names_anywhere() {
    check(
        nodes("write review publish")
            .retry_target("wirte")
            .entry("writ")
            .fallback("nowhere")
            .edge("write", "reviw")
            .edge("reviw", "publish")
            .edge("x", "publish")
            .on_failure()
            .route("reveiw", ["write", "pubish"], |_, _| "write"),
        &[
            "the node `writ` does not exist; did you mean `write`?",
            "the node `nowhere` does not exist; add it with `node` or `add`",
            "node `publish`: as its retry target, the node `wirte` does not exist; did you mean `write`?",
            "edge `write` -> `reviw`: the node `reviw` does not exist; did you mean `review`?",
            "edge `reviw` -> `publish`: the node `reviw` does not exist; did you mean `review`?",
            "edge `x` -> `publish`: the node `x` does not exist; add it with `node` or `add`",
            "edge `reveiw` -> `write`: the node `reveiw` does not exist; did you mean `review`?",
            "edge `reveiw` -> `pubish`: the node `pubish` does not exist; did you mean `publish`?",
        ],
    );
}

#[test]
fn one_bad_edge_in_list_is_one_mistake() {
    check(
        nodes("start a b c").entry("start").edge("strat", ["a", "b", "c"]),
        &["edge `strat` -> `a`: the node `strat` does not exist; did you mean `start`?"],
    );
}

#[test]
fn successors_of_unknown_node_are_not_blamed() {
    check(
        nodes("a b").entry("a").edge("a", "middle").edge("middle", "b"),
        &[
            "edge `a` -> `middle`: the node `middle` does not exist; add it with `node` or `add`",
            "edge `middle` -> `b`: the node `middle` does not exist; add it with `node` or `add`",
        ],
    );
}

#[test]
fn edges_declared_twice() {
    check(nodes("a b").entry("a").edge("a", ["b", "b"]), &["edge `a` -> `b`: is declared twice; remove one"]);
    check(
        nodes("a b").entry("a").edge("a", "b").when(|_| true).edge("a", "b").when(|_| false),
        &["edge `a` -> `b`: is declared twice with `when`; join the two predicates with `||`"],
    );
    check(
        nodes("a b").entry("a").edge("a", "b").on_failure().edge("a", "b").on_failure(),
        &["edge `a` -> `b`: is declared twice with `on_failure`; remove one"],
    );
    check(
        nodes("a b").entry("a").route("a", ["b", "b"], |_, _| "b"),
        &["edge `a` -> `b`: is declared twice as a target of a route; name it once"],
    );
    assert!(nodes("a b").entry("a").edge("a", "b").edge("a", "b").on_failure().build().is_ok());
}

#[test]
fn an_edge_without_an_end() {
    let none: [&str; 0] = [];
    check(
        nodes("a").entry("a").edge(none, "a").edge("a", none).when(|_| true),
        &["an edge leads from no node; name at least one", "an edge leads to no node; name at least one"],
    );
}

#[test]
fn unreachable_nodes() {
    check(
        nodes("a b c d").entry("a").edge("a", "b").edge("c", ["b", "d"]),
        &[
            "node `c`: cannot be reached from the entry `a`; add an edge that leads to it, or remove it",
            "node `d`: cannot be reached from the entry `a`; add an edge that leads to it, or remove it",
        ],
    );
    check(
        nodes("a b").retry_target("b").entry("a"),
        &["node `b`: cannot be reached from the entry `a`; add an edge that leads to it, or remove it"],
    );
}

#[test]
fn jumps_and_routes_reach_nodes() {
    let graph = nodes("a").retry_target("b").node("b", async |_, s| Ok(s)).entry("a").build();
    assert!(graph.is_ok());
    assert!(nodes("a b").entry("a").fallback("b").build().is_ok());
    assert!(nodes("a b").entry("a").route("a", ["b"], |_, _| "b").build().is_ok());
}

#[test]
fn modifiers_with_nothing_to_modify() {
    check(
        Graph::builder("g")
            .effect(Effect::Pure)
            .retry(RetryPolicy::none())
            .timeout(Duration::from_secs(1))
            .join(Join::Any)
            .max_visits(1)
            .goal_gate(|_| true)
            .retry_target("a")
            .checkpoint(NodeCheckpoint::None)
            .revision("1")
            .when(|_| true)
            .node("a", async |_, s| Ok(s))
            .otherwise()
            .entry("a"),
        &[
            "`effect` has no node to modify; call it after `node` or `add`",
            "`retry` has no node to modify; call it after `node` or `add`",
            "`timeout` has no node to modify; call it after `node` or `add`",
            "`join` has no node to modify; call it after `node` or `add`",
            "`max_visits` has no node to modify; call it after `node` or `add`",
            "`goal_gate` has no node to modify; call it after `node` or `add`",
            "`retry_target` has no node to modify; call it after `node` or `add`",
            "`checkpoint` has no node to modify; call it after `node` or `add`",
            "`revision` has no node to modify; call it after `node` or `add`",
            "`when` has no edge to modify; call it right after `edge`",
            "`otherwise` has no edge to modify; call it right after `edge`",
        ],
    );
}

#[test]
fn a_modifier_of_edges_after_a_route() {
    check(
        nodes("a b").entry("a").edge("a", "b").route("a", ["b"], |_, _| "b").on_failure(),
        &["`on_failure` has no edge to modify; call it right after `edge`"],
    );
}

#[test]
fn an_edge_of_two_kinds() {
    check(
        nodes("a b").entry("a").edge("a", "b").when(|_| true).otherwise(),
        &["edge `a` -> `b`: calls `otherwise` after `when`; an edge has one kind, so declare another edge"],
    );
}

#[test]
fn otherwise_without_when() {
    check(
        nodes("a b c").entry("a").edge("a", "b").otherwise().edge("b", "c").when(|_| true),
        &[
            "edge `a` -> `b`: is an `otherwise`, but no `when` edge leaves `a`; add one, or remove `otherwise`",
        ],
    );
}

#[test]
fn routes_that_cannot_be() {
    let none: [&str; 0] = [];
    check(
        nodes("a b").entry("a").route("a", ["b"], |_, _| "b").route("a", none, |_, _| "b").route(
            "bb",
            none,
            |_, _| "b",
        ),
        &[
            "node `a`: has two routes; merge them into one function",
            "node `a`: has a route without targets; name every node that it may choose",
            "node `bb`: has a route without targets; name every node that it may choose",
            "node `bb`: has a route, but the node `bb` does not exist; did you mean `b`?",
        ],
    );
}

/// Guarantees: JOIN-9.
#[test]
fn more_tokens_than_can_ever_come() {
    let diamond = || nodes("a b c d").entry("a").edge("a", ["b", "c"]).edge(["b", "c"], "d");
    check(
        diamond().join(Join::AtLeast(3)),
        &["node `d`: joins at least 3 tokens, but can receive only 2 tokens; use at most 2"],
    );
    check(
        nodes("a").join(Join::AtLeast(2)).entry("a"),
        &["node `a`: joins at least 2 tokens, but can receive only 1 token; use at most 1"],
    );
    assert!(diamond().join(Join::AtLeast(2)).build().is_ok());
    // A node that may run more than once may send more than one token.
    let many = || diamond().join(Join::AtLeast(9));
    assert!(many().route("a", ["b"], |_, _| "b").build().is_ok());
    assert!(many().node("e", async |_, s| Ok(s)).edge("b", "e").edge("e", "b").build().is_ok());
    assert!(many().fallback("a").build().is_ok());
    assert!(
        many().node("e", async |_, s| Ok(s)).join(Join::Any).edge("a", "e").edge("e", "d").build().is_ok()
    );
}

/// Guarantees: JOIN-9.
#[test]
fn a_count_at_the_head_of_a_loop() {
    let looped = |at_head: Join| {
        let agent = Graph::builder("g").node("agent", async |_, s| Ok(s)).join(at_head);
        agent.node("tool", async |_, s| Ok(s)).entry("agent").edge("agent", "tool").edge("tool", "agent")
    };
    check(
        looped(Join::AtLeast(1)),
        &[
            "node `agent`: joins at least 1 token, but is the head of a loop, where rounds would mix; join the branches in another node \
             that leads to it",
        ],
    );
    assert!(looped(Join::All).join(Join::AtLeast(1)).build().is_ok());
}

#[test]
fn channels_that_cannot_be() {
    let custom = Reducer::Custom { with: "crate::longest".into() };
    check(
        nodes("a").entry("a").channel("x", Reducer::Sum).channel("x", Reducer::Max).channel("y", custom),
        &[
            "channel `x`: is declared twice; remove one",
            "channel `y`: a context cannot call the reducer `custom:crate::longest`; choose another, or use a struct with \
             `#[derive(State)]`",
        ],
    );
}

#[test]
fn a_name_that_is_the_librarys_own() {
    let builder = Graph::<Context>::builder("ferrata:elsewhere").node("a", async |_cx, s| Ok(s)).entry("a");
    check(builder, &["has a name that begins with `ferrata:`, which is reserved; use another name"]);
}

#[test]
fn all_at_once_as_one_error() {
    let error = nodes("write review publish review")
        .max_visits(0)
        .edge("write", "reveiw")
        .edge("review", "publish")
        .otherwise()
        .concurrency(0)
        .build()
        .unwrap_err();
    let text = "graph `g` has 6 mistakes:\n- allows 0 concurrent activations; use at least 1, or leave `concurrency` out\n- has no entry; set the first node of a run, as in `.entry(\"write\")`\n- node `review`: is added twice; give each node its own name\n- node `review`: allows 0 visits; use at least 1, or leave `max_visits` out\n- edge `write` -> `reveiw`: the node `reveiw` does not exist; did you mean `review`?\n- edge `review` -> `publish`: is an `otherwise`, but no `when` edge leaves `review`; add one, or remove `otherwise`";
    assert_eq!(error.to_string(), text);
    assert_eq!(error.issues()[2].node_name(), Some("review"));
    assert_eq!(error.issues()[4].edge_ends(), Some(("write", "reveiw")));
    let error = Error::from(error);
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Invalid, Some("graph.build")));
    assert!(error.to_string().starts_with("graph.build: graph `g` has 6 mistakes:\n- allows 0"));
}
