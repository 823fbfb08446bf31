//! The named cases of the join rule, and its cost limits.

use super::*;
use crate::graph::liveness::WaitingTokens;

/// Guarantees: JOIN-3.
#[test]
fn a_diamond_of_unequal_length_joins_once() {
    Named::new("s>a s>b1>b2>b3 a>j b3>j").check(|_, _| None, &[("j", &[2])]);
}

/// Guarantees: JOIN-4.
#[test]
fn an_agent_loop_waits_for_all_its_tools_in_each_round() {
    let graph = Named::new("s>agent>t1 agent>t2 agent>t3 t1>agent t2>agent t3>agent agent>end");
    let route = |node: &str, visit| match node {
        "agent" => Some(if visit < 4 { "t1 t2 t3" } else { "end" }),
        _ => None,
    };
    graph.check(route, &[("agent", &[1, 3, 3, 3]), ("end", &[1])]);
}

/// Guarantees: JOIN-6.
#[test]
fn a_loop_joins_with_a_branch_outside_of_it_when_it_ends() {
    let graph = Named::new("s>h s>z h>y>h h>x z>x");
    graph.check(|node, visit| (node == "h").then_some(if visit < 4 { "y" } else { "x" }), &[("x", &[2])]);
}

/// Guarantees: JOIN-5.
#[test]
fn chains_side_by_side_in_a_loop_do_not_wait_for_each_other() {
    let graph = Named::new("st>a1>a2>hub st>b1>b2>hub hub>st hub>end");
    assert!(!graph.topology.waits_for(graph.ix("a2"), false).contains(graph.ix("b1")));
    let route = |node: &str, visit| (node == "hub").then_some(if visit < 3 { "st" } else { "end" });
    graph.check(route, &[("hub", &[2, 2, 2])]);
}

/// Guarantees: JOIN-6.
#[test]
fn an_inner_loop_joins_with_the_other_branch_in_each_round_of_the_outer() {
    let graph = Named::new("o>h o>z h>y>h h>x z>x x>o x>end");
    let route = |node: &str, visit| match node {
        "h" => Some(if visit % 3 > 0 { "y" } else { "x" }),
        "x" => Some(if visit < 3 { "o" } else { "end" }),
        _ => None,
    };
    graph.check(route, &[("x", &[2, 2, 2])]);
}

/// Guarantees: JOIN-4.
#[test]
fn a_join_inside_an_agent_loop_and_its_head_each_wait_for_their_own() {
    let graph = Named::new("ag>t1 ag>p ag>q p>u q>u u>ag t1>ag ag>end");
    let route = |node: &str, visit| (node == "ag").then_some(if visit < 4 { "t1 p q" } else { "end" });
    graph.check(route, &[("u", &[2, 2, 2]), ("ag", &[1, 2, 2, 2])]);
}

/// Guarantees: JOIN-4.
#[test]
fn a_fan_out_of_any_width_returns_to_the_head_as_one_round() {
    let graph = Named::new("s>plan>work>plan plan>end");
    let (plan, work) = (graph.ix("plan"), graph.ix("work"));
    let mut live = graph.topology.liveness();
    for width in [7, 1, 100] {
        (0..width).for_each(|_| live.started(work));
        for left in (0..width).rev() {
            live.finished(work);
            live.arrived(plan, graph.topology.is_back(work, plan));
            assert_eq!(live.in_flight(work), left);
            assert_eq!(graph.topology.next_ready(&live), Some(plan).filter(|_| left == 0));
        }
        assert_eq!(live.take(plan), WaitingTokens { forward: 0, back: width });
    }
    assert!(live.is_idle());
}

/// Guarantees: JOIN-5.
#[test]
fn tokens_of_the_next_round_do_not_hold_up_the_loop() {
    let graph = Named::new("s>h>a>h h>b>c>h h>x s>x");
    let (h, b, c, x) = (graph.ix("h"), graph.ix("b"), graph.ix("c"), graph.ix("x"));
    let mut live = graph.topology.liveness();
    live.arrived(h, true);
    live.arrived(c, false);
    live.arrived(x, false);
    // The head waits for the end of its round, the member does not wait for the head, and nodes outside wait for both.
    assert_eq!(graph.topology.next_ready(&live), Some(c));
    assert!(!graph.topology.ready(h, true, &live));
    assert!(!graph.topology.ready(x, false, &live));
    live.arrived(h, false);
    // With a token of this round among them, the head goes first and the member waits for it.
    assert!(graph.topology.ready(h, false, &live));
    assert!(!graph.topology.ready(c, false, &live));
    live.used(h, false);
    assert!(!graph.topology.ready(h, live.waiting(h).all_back(), &live));
    live.take(c);
    live.started(b);
    assert!(!graph.topology.ready(h, true, &live));
    live.finished(b);
    assert_eq!(graph.topology.next_ready(&live), Some(h));
}

/// Guarantees: JOIN-3.
#[test]
fn a_conditional_arm_that_is_not_taken_holds_nothing_up() {
    let graph = Named::new("s>a>j s>b>c>j b>end");
    graph.check(|node, _| (node == "b").then_some("end"), &[("j", &[1])]);
    graph.check(|node, _| (node == "b").then_some("c"), &[("j", &[2])]);
}

#[test]
fn a_node_that_leads_to_itself_is_a_loop() {
    let graph = Named::new("s>poll>poll s>z poll>x z>x");
    assert!(graph.topology.is_back(graph.ix("poll"), graph.ix("poll")));
    assert!(graph.topology.reach(graph.ix("poll")).contains(graph.ix("poll")));
    assert!(!graph.topology.reach(graph.ix("s")).contains(graph.ix("s")));
    let route = |node: &str, visit| (node == "poll").then_some(if visit < 5 { "poll" } else { "x" });
    graph.check(route, &[("poll", &[1, 1, 1, 1, 1]), ("x", &[2])]);
}

/// Guarantees: JOIN-7.
#[test]
fn siblings_stand_in_the_order_of_their_edges() {
    assert_eq!(Named::new("s>a>j s>b>j s>c>j").order(), "s a b c j");
    assert_eq!(
        Named::new("s>agent>t3>agent agent>t1>agent agent>t2>agent agent>end").order(),
        "s agent t3 t1 t2 end"
    );
    assert_eq!(Named::new("o>h>y>h o>z>x h>x>o x>end").order(), "o h y z x end");
}

/// Guarantees: JOIN-1.
#[test]
fn a_loop_entered_at_two_places_has_the_first_met_as_its_head() {
    let graph = Named::new("s>b>a>b s>a");
    assert!(graph.topology.is_back(graph.ix("a"), graph.ix("b")));
    assert!(!graph.topology.is_back(graph.ix("b"), graph.ix("a")));
}

#[test]
fn a_chain_is_run_without_computing_any_set() {
    let edges: Vec<(u32, u32)> = (0..999).map(|node| (node, node + 1)).collect();
    let topology = Topology::new(1000, ix(0), &edges);
    let mut live = topology.liveness();
    live.arrived(ix(0), false);
    for node in 0..1000 {
        assert_eq!(topology.next_ready(&live), Some(ix(node)));
        live.take(ix(node));
        live.started(ix(node));
        assert_eq!(topology.next_ready(&live), None);
        live.finished(ix(node));
        if node < 999 {
            live.arrived(ix(node + 1), false);
        }
    }
    assert!(live.is_idle());
    assert!(topology.forward.iter().chain(&topology.returning).all(|set| set.get().is_none()));
}

#[test]
fn ten_thousand_tokens_at_a_join_are_one_waiting_node() {
    let graph = Named::new("plan>work>join plan>slow>join");
    let (work, slow, join) = (graph.ix("work"), graph.ix("slow"), graph.ix("join"));
    let mut live = graph.topology.liveness();
    live.started(slow);
    for _ in 0..10_000 {
        live.started(work);
    }
    for _ in 0..10_000 {
        live.finished(work);
        live.arrived(join, false);
        assert_eq!(live.waiting_in_order().count(), 1);
        assert_eq!(graph.topology.next_ready(&live), None);
    }
    live.finished(slow);
    assert_eq!(graph.topology.next_ready(&live), Some(join));
    assert_eq!(live.take(join).count(), 10_000);
    assert!(live.is_idle());
}

#[test]
fn a_hundred_thousand_nodes_do_not_overflow_the_stack() {
    let chain = (0..99_999).map(|node| (node, node + 1));
    let with_one_loop: Vec<(u32, u32)> = chain.chain([(99_999, 0)]).collect();
    let topology = Topology::new(100_000, ix(0), &with_one_loop);
    assert_eq!(topology.position(ix(99_999)), 99_999);
    assert!(topology.is_back(ix(99_999), ix(0)));
    assert_eq!(topology.waits_for(ix(99_999), false).len(), 99_999);
    assert_eq!(topology.waits_for(ix(0), true).len(), 99_999);
    assert_eq!(topology.reach(ix(5)).len(), 100_000);
}

#[test]
fn loops_nested_a_thousand_deep_do_not_overflow_the_stack() {
    let edges: Vec<(u32, u32)> = (0..999).flat_map(|node| [(node, node + 1), (node + 1, node)]).collect();
    let topology = Topology::new(1000, ix(0), &edges);
    assert!((1..1000).all(|node| topology.is_back(ix(node), ix(node - 1))));
    assert_eq!(topology.waits_for(ix(999), false).len(), 999);
}
