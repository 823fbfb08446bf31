//! Which edges fire.

use serde_json::json;

use super::*;
use crate::graph::Route;
use crate::id::{NodeName, Visit};

/// Names the targets that fire from node `a`, with their items.
fn fired(graph: &Graph<Context>, state: serde_json::Value) -> Result<Vec<String>, Error> {
    let (name, state) = (NodeName::new("a").unwrap(), Context::try_from(state).unwrap());
    let plan = graph.plan();
    let fired =
        graph.fire(plan.find("a").unwrap(), &state, &RouteContext::new(&name, Visit::new(1), None))?;
    let shown = fired.into_iter().map(|fired| {
        let to = &plan.node(plan.edge(fired.edge).to).name;
        fired.item.map_or_else(|| to.to_string(), |item| format!("{to}({item})"))
    });
    Ok(shown.collect())
}

#[test]
fn plain_edges_always_fire_and_failure_edges_never() {
    let graph =
        nodes("a b c d").entry("a").edge("a", ["b", "c"]).edge("a", "d").on_failure().build().unwrap();
    assert_eq!(fired(&graph, json!({})).unwrap(), ["b", "c"]);
    let (plan, a) = (graph.plan(), graph.plan().entry);
    let failed: Vec<_> = plan.outgoing(a, EdgeKind::OnFailure).map(|edge| plan.edge(edge).to).collect();
    assert_eq!(failed, [plan.find("d").unwrap()]);
}

#[test]
fn every_true_condition_fires_otherwise_if_none() {
    let graph = nodes("a b c d e")
        .entry("a")
        .edge("a", "e")
        .otherwise()
        .edge("a", "b")
        .when(|s| s.contains_key("b"))
        .edge("a", ["c", "d"])
        .when(|s| s.contains_key("cd"))
        .build()
        .unwrap();
    assert_eq!(fired(&graph, json!({"b": 1})).unwrap(), ["b"]);
    assert_eq!(fired(&graph, json!({"b": 1, "cd": 1})).unwrap(), ["b", "c", "d"]);
    assert_eq!(fired(&graph, json!({})).unwrap(), ["e"]);
}

#[test]
fn plain_and_routed_edges_are_not_conditions() {
    let graph = nodes("a b c d e")
        .entry("a")
        .edge("a", "b")
        .route("a", ["c"], |_, _| "c")
        .edge("a", "d")
        .otherwise()
        .edge("a", "e")
        .when(|_| false)
        .build()
        .unwrap();
    assert_eq!(fired(&graph, json!({})).unwrap(), ["b", "c", "d"]);
}

#[test]
fn nothing_that_fires_ends_the_branch() {
    let graph = nodes("a b").entry("a").edge("a", "b").when(|_| false).build().unwrap();
    assert!(fired(&graph, json!({})).unwrap().is_empty());
}

#[test]
fn routes_fire_in_declaration_order_items_in_theirs() {
    let graph = nodes("a b c d")
        .entry("a")
        .route("a", ["b", "c", "d"], |s, _| {
            let items: Vec<u32> = s.get("items").unwrap().unwrap_or_default();
            Route::all(["d", "b", "d"]).and(Route::each("c", items)).and("b")
        })
        .build()
        .unwrap();
    assert_eq!(fired(&graph, json!({"items": [3, 1, 2]})).unwrap(), ["b", "c(3)", "c(1)", "c(2)", "d"]);
    assert_eq!(fired(&graph, json!({})).unwrap(), ["b", "d"]);
}

#[test]
fn revisit_fires_edge_once_and_keeps_reasons() {
    let graph = nodes("a b c")
        .entry("a")
        .route("a", ["b", "c"], |_, _| {
            let both = Route::to("b").and(Route::revisit("b", "x")).and("b").and(Route::revisit("b", "y"));
            both.and(Route::each("b", [1])).and("c")
        })
        .build()
        .unwrap();
    let (name, plan) = (NodeName::new("a").unwrap(), graph.plan());
    let cx = RouteContext::new(&name, Visit::new(1), None);
    let fired = graph.fire(plan.entry, &Context::new(), &cx).unwrap();
    let shown: Vec<_> = fired
        .iter()
        .map(|fired| (fired.edge.as_usize(), fired.item.is_some(), fired.reason.as_deref()))
        .collect();
    assert_eq!(shown, [(0, false, Some("x; y")), (0, true, None), (1, false, None)]);
}

#[test]
fn route_to_undeclared_target_is_refused() {
    let graph = nodes("a bb cc dd")
        .entry("a")
        .edge("a", "dd")
        .route("a", ["bb", "cc"], |s, _| s.get::<String>("to").unwrap())
        .build()
        .unwrap();
    let message = |to: &str| fired(&graph, json!({ "to": to })).unwrap_err().to_string();
    assert_eq!(
        message("bbb"),
        "node a: the route chose `bbb`, which is not among its targets `bb`, `cc`; did you mean `bb`?"
    );
    assert_eq!(
        message("dd"),
        "node a: the route chose `dd`, which is not among its targets `bb`, `cc`; add it to the targets"
    );
}

#[test]
fn item_without_json_form_fails_activation() {
    let graph =
        nodes("a b").entry("a").route("a", ["b"], |_, _| Route::each("b", [f64::INFINITY])).build().unwrap();
    let error = fired(&graph, json!({})).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().starts_with("node a: item 0 for `b`: value: "), "{error}");
}
