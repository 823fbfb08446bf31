//! Builds the graph: its nodes with their policies, and its routes with their targets.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ferrata_core::graph::{Effect, Graph, GraphBuilder, Join, Route};
use ferrata_core::state::Context;
use ferrata_core::{Error, ErrorKind};

use super::abandonment::{self, BranchJoins, LeaveRule};
use super::branch::{BranchLimits, view};
use super::cycle::{in_loops, visits};
use super::plan::{EdgeFidelity, GoalGate, JumpAttribute, NextStep, NodeTargets, RouteInput};
use super::refuse::check_region;
use super::region::{FAN_IN, ForkRegion, ForkRegions, PARALLEL};
use super::settings::{
    effect, flag, invalid, max_replans, max_steps, max_visits, mirrored, retries_exit, retries_fail, retry,
    revision,
};
use super::stage::{NodeRole, RunBudget, SiblingLimit, StageNode};
use crate::condition::Condition;
use crate::handler::{Handler, MANAGER, RankHandler, Registry};
use crate::pipeline::{Attributes, Node, Pipeline};
use crate::select::EdgeCandidate;
use crate::value::Value;

/// The handler type of nodes that choose an edge by the outcome of the previous node.
const CONDITIONAL: &str = "conditional";

/// The handler types whose nodes only route. Summaries for tasks omit these nodes.
const ROUTING: [&str; 4] = ["start", "exit", CONDITIONAL, PARALLEL];

/// Default maximum number of nodes that run concurrently in the branches of a parallel node.
const MAX_PARALLEL: usize = 4;

/// Builds the graph of a pipeline in which lint has found no error.
pub(super) fn graph(pipeline: &Pipeline, registry: &Registry) -> Result<Graph<Context>, Error> {
    let (start, exits) = ends(pipeline)?;
    let shared = Arc::new(pipeline.clone());
    let mirror = Arc::new(mirrored(pipeline));
    let restarts = pipeline.edges().iter().any(|edge| flag(edge.attributes.get("loop_restart")));
    let types = resolve(pipeline, registry, start, &exits)?;
    let mut outgoing = vec![Vec::new(); pipeline.nodes().len()];
    for (at, edge) in pipeline.edges().iter().enumerate() {
        if let Some(from) = pipeline.position(&edge.from) {
            outgoing[from].push(at);
        }
    }
    let names: Vec<&str> = types.iter().map(|(name, _)| &**name).collect();
    let regions = ForkRegions::find(pipeline, &names, start, &exits)?;
    let in_loop = in_loops(pipeline);
    let limits = Arc::new(BranchLimits::default());
    let joins = Arc::new(BranchJoins::default());
    let rules = Arc::new(rules(pipeline, &regions));
    let budget = RunBudget::of(pipeline);
    let tells = types.iter().any(|(_, handler)| handler.is_task());
    let stall = pipeline.attributes.get("stall_timeout").and_then(Value::as_duration);
    let mut builder = max_steps(pipeline, Graph::<Context>::builder(pipeline.name()))?;
    let all = list_all_targets(pipeline, &outgoing, &types, &exits, &regions)?;
    for ((at, node), ways) in pipeline.nodes().iter().enumerate().zip(all) {
        let (name, handler) = &types[at];
        handler.check(node, pipeline)?;
        let region = regions.around(at);
        let ways = Arc::new(ways);
        let policy = retry(pipeline, node)?;
        let role = match at {
            at if at == start => NodeRole::Start { mirror: Arc::clone(&mirror), keep_input: restarts },
            at => match regions.meeting_at(at) {
                Some(region) => fan_in(pipeline, region),
                None => NodeRole::Work,
            },
        };
        let effect = effect(node, handler.effect())?;
        let stage = StageNode {
            handler: Arc::clone(handler),
            node: Arc::new(node.clone()),
            kind: Arc::from(&**name),
            pipeline: Arc::clone(&shared),
            ways: Arc::clone(&ways),
            attempts: policy.attempts(),
            again_on_fail: retries_fail(node, name) && effect != Effect::External,
            again_on_exit: handler.is_task() && retries_exit(node) && effect != Effect::External,
            external: effect == Effect::External,
            timeout: if handler.times_itself() {
                None
            } else {
                node.attributes.get("timeout").and_then(Value::as_duration)
            },
            stall: stall.filter(|_| !handler.times_itself()),
            role,
            rules: Arc::clone(&rules),
            joins: Arc::clone(&joins),
            told_of: tells && !ROUTING.contains(&&**name),
            limit: region.filter(|_| !handler.times_itself()).map(|region| SiblingLimit {
                most: max_parallel(&pipeline.nodes()[region.fork]),
                open: Arc::clone(&limits),
            }),
            visits: visits(pipeline, node).filter(|_| in_loop[at]),
            works: !ROUTING.contains(&&**name) && **name != *FAN_IN,
            budget: Arc::clone(&budget),
        };
        if region.is_some() {
            check_region(pipeline, at, &outgoing[at], effect == Effect::External)?;
        }
        if **name == *MANAGER
            && regions.all.iter().any(|around| may_be_abandoned(pipeline, &rules, around, at))
        {
            return Err(abandoned_manager_error(node));
        }
        builder = builder.add(node.id(), stage).effect(effect).retry(policy);
        if registry.stops_after(node.id()) {
            builder = builder.interrupt_after();
        }
        if region.is_some() && regions.meeting_at(at).is_none() {
            // If several branches lead to the same node, each of them runs the node once.
            builder = builder.join(Join::Any);
        }
        builder = builder.revision(revision(pipeline, node, name, &outgoing[at]));
        if let Some(most) = max_visits(pipeline, node)? {
            builder = builder.max_visits(most);
        }
        if let Some(most) = max_replans(pipeline)? {
            builder = builder.max_replans(most);
        }
        builder = route(builder, node.id(), ways, (&rules, &joins));
    }
    builder.entry(pipeline.nodes()[start].id()).build().map_err(|error| {
        invalid(format!("cannot build the graph of the pipeline: {error}")).with_source(error)
    })
}

/// Returns the outermost parallel node whose branches contain a node or meet at it.
pub(super) fn fork_around<'a>(
    pipeline: &'a Pipeline,
    registry: &Registry,
    node: usize,
) -> Result<Option<&'a str>, Error> {
    let regions = regions(pipeline, registry)?;
    let meets = |region: &&ForkRegion| region.fan_in == node && !region.implicit;
    let around = regions.all.iter().filter(|region| region.nodes.contains(&node) || meets(region));
    let outermost = around.max_by_key(|region| region.nodes.len());
    Ok(outermost.map(|region| pipeline.nodes()[region.fork].id()))
}

/// Finds the branches of all parallel nodes.
pub(super) fn regions(pipeline: &Pipeline, registry: &Registry) -> Result<ForkRegions, Error> {
    let (start, exits) = ends(pipeline)?;
    let types = resolve(pipeline, registry, start, &exits)?;
    let names: Vec<&str> = types.iter().map(|(name, _)| &**name).collect();
    ForkRegions::find(pipeline, &names, start, &exits)
}

/// Finds the start node and the exit nodes.
fn ends(pipeline: &Pipeline) -> Result<(usize, Vec<usize>), Error> {
    match (&*pipeline.starts(), pipeline.exits()) {
        ([start], exits) if !exits.is_empty() => Ok((*start, exits)),
        _ => Err(invalid(
            "the pipeline needs exactly one start and at least one exit; run `ferrata lint` for details",
        )),
    }
}

type Resolved = Vec<(String, Arc<dyn Handler>)>;

/// Finds the handler of each node. A node may be the start or an exit by its name alone.
fn resolve(
    pipeline: &Pipeline,
    registry: &Registry,
    start: usize,
    exits: &[usize],
) -> Result<Resolved, Error> {
    let mut resolved = Vec::with_capacity(pipeline.nodes().len());
    for (at, node) in pipeline.nodes().iter().enumerate() {
        let named = |kind: &str| {
            let mut node = Node::new(node.shared_id());
            node.attributes.set("type", Value::string(kind));
            registry.resolve(&node)
        };
        resolved.push(match at {
            at if at == start => named("start")?,
            at if exits.contains(&at) => named("exit")?,
            _ => match registry.resolve(node)? {
                // A prompt that is a default for all nodes does not ask for a ranking.
                (name, _)
                    if name == FAN_IN && node.attributes.is_own("prompt") && !registry.has_own(FAN_IN) =>
                {
                    let task = registry.resolve(&Node::new(node.shared_id()))?.1;
                    (name, Arc::new(RankHandler { task }) as Arc<dyn Handler>)
                }
                resolved => resolved,
            },
        });
    }
    Ok(resolved)
}

fn route(
    builder: GraphBuilder<Context>,
    from: &str,
    ways: Arc<NodeTargets>,
    (rules, joins): (&Arc<HashMap<String, LeaveRule>>, &Arc<BranchJoins>),
) -> GraphBuilder<Context> {
    let targets = ways.followers();
    if targets.is_empty() {
        return builder;
    }
    let (rules, joins) = (Arc::clone(rules), Arc::clone(joins));
    builder.route(from, targets, move |context, cx| {
        // The output is missing if an operator marked the work as done.
        let sent = cx.output::<RouteInput>().ok().flatten().unwrap_or_else(RouteInput::success);
        if let (Some(start_id), Some(branch)) = (&sent.start_id, &sent.branch)
            && let Some((join, fork)) = abandonment::joins(branch).last()
            && rules.get(fork).is_some_and(|rule| rule.is_settled(context, join))
        {
            // The notification does not influence the route: each evaluation of the route derives the same decision from the context.
            joins.settle_join(start_id, join);
        }
        match ways.next(&sent, &view(context, sent.branch.as_deref())) {
            NextStep::Fork => {
                let context = view(context, sent.branch.as_deref());
                let begin =
                    |route: Route, (at, edge): (usize, &EdgeCandidate)| match ways.branches(at, &context) {
                        Some(items) => route.and(Route::each(&*edge.to, items)),
                        None => route.and(Route::to(&*edge.to)),
                    };
                ways.edges.iter().enumerate().fold(Route::none(), begin)
            }
            // A route that leaves or enters a branch leads through another node first.
            NextStep::Edge { to, replan: true, .. } if ways.waypoint_to(&to) == to => {
                Route::revisit(to, sent.replan_reason(cx.node().as_str()))
            }
            NextStep::Begin { first: to } | NextStep::Skip { to } => Route::to(to),
            NextStep::Edge { to, .. } | NextStep::Jump { to, .. } => Route::to(ways.waypoint_to(&to)),
            NextStep::End | NextStep::Stuck | NextStep::Fail | NextStep::Unmet { .. } => Route::none(),
        }
    })
}

/// Lists the targets of each node. For routes that leave or enter a branch, also lists the nodes through which they lead.
fn list_all_targets(
    pipeline: &Pipeline,
    outgoing: &[Vec<usize>],
    types: &Resolved,
    exits: &[usize],
    regions: &ForkRegions,
) -> Result<Vec<NodeTargets>, Error> {
    let id = |at: usize| pipeline.nodes()[at].id().to_owned();
    // Once the budget is spent, the run may go to this target from any node.
    let beyond = pipeline.attributes.text("budget_target");
    let mut all = Vec::with_capacity(outgoing.len());
    let mut entered: HashMap<usize, Vec<usize>> = HashMap::new();
    for (at, outgoing) in outgoing.iter().enumerate() {
        let region = regions.around(at);
        let mut ways = list_targets(pipeline, at, outgoing, types, (exits.contains(&at), region.is_some()))?;
        ways.home = region.map(|region| id(region.fan_in));
        ways.named.extend(regions.meeting_targets(at).iter().map(|&to| id(to)));
        ways.named.extend(pipeline.node(&beyond).map(|node| node.id().to_owned()));
        for target in ways.targets() {
            let Some(to) = pipeline.position(&target) else { continue };
            if regions.is_way_out(at, to) {
                ways.out.insert(target);
            } else if let Some(fork) = regions.entered_fork(at, to) {
                ways.through.insert(target, id(fork));
                entered.entry(fork).or_default().push(to);
            }
        }
        all.push(ways);
    }
    // The run enters an inner parallel node through the outer one.
    for region in &regions.all {
        let through = entered.values().flatten().copied();
        let ways = through.filter_map(|to| Some((id(to), id(regions.first_towards(region.fork, to)?))));
        all[region.fork].entries = ways.collect();
        all[region.fork].meets = Some(id(region.fan_in));
    }
    Ok(all)
}

/// Lists the possible targets of a node.
fn list_targets(
    pipeline: &Pipeline,
    at: usize,
    outgoing: &[usize],
    types: &Resolved,
    (exit, inside): (bool, bool),
) -> Result<NodeTargets, Error> {
    let node = &pipeline.nodes()[at];
    let mut ways = NodeTargets {
        edges: Vec::with_capacity(outgoing.len()),
        restarts: Vec::with_capacity(outgoing.len()),
        replans: Vec::with_capacity(outgoing.len()),
        carries: Vec::with_capacity(outgoing.len()),
        to_conditional: Vec::with_capacity(outgoing.len()),
        random: node.attributes.text("selection") == "random",
        signature_limit: signature_limit(pipeline),
        decides: types[at].0 == CONDITIONAL,
        forks: types[at].0 == PARALLEL,
        each: Vec::with_capacity(outgoing.len()),
        meets: None,
        home: None,
        out: HashSet::new(),
        through: HashMap::new(),
        entries: HashMap::new(),
        retry_target: if exit { None } else { own_target(pipeline, node) },
        named: named(pipeline, &node.attributes),
        gates: Vec::new(),
    };
    for edge in outgoing.iter().map(|at| &pipeline.edges()[*at]) {
        let to = pipeline.position(&edge.to);
        ways.edges.push(EdgeCandidate {
            to: edge.to.to_string(),
            label: edge.label().into_owned(),
            condition: Condition::parse(&edge.condition())?,
            weight: edge.weight(),
        });
        ways.replans.push(flag(edge.attributes.get("replan")));
        ways.restarts.push(flag(edge.attributes.get("loop_restart")));
        let text = |key: &str| edge.attributes.text(key).into_owned();
        let carries = EdgeFidelity { fidelity: text("fidelity"), thread_id: text("thread_id") };
        ways.each
            .push(Some(pipeline.for_each(edge).into_owned()).filter(|key| !key.is_empty() && ways.forks));
        ways.carries.push(Some(carries).filter(|carries| *carries != EdgeFidelity::default()));
        ways.to_conditional.push(to.is_some_and(|to| types[to].0 == CONDITIONAL));
    }
    if exit || ways.edges.is_empty() && !inside {
        ways.named.extend(named(pipeline, &pipeline.attributes));
        let gates = pipeline.nodes().iter().filter(|node| node.is_goal_gate());
        let graph = || {
            let named = |key: &str, why| existing(pipeline, &pipeline.attributes.text(key), why);
            named("retry_target", JumpAttribute::OfGraph)
                .or_else(|| named("fallback_retry_target", JumpAttribute::FallbackOfGraph))
        };
        ways.gates = gates
            .map(|gate| GoalGate {
                node: gate.id().to_owned(),
                target: own_target(pipeline, gate).or_else(graph),
            })
            .collect();
    }
    Ok(ways)
}

/// Returns the jump targets in attributes that exist as nodes.
fn named(pipeline: &Pipeline, attributes: &Attributes) -> Vec<String> {
    let keys = ["retry_target", "fallback_retry_target"].iter();
    keys.filter_map(|key| pipeline.node(&attributes.text(key))).map(|node| node.id().to_owned()).collect()
}

/// Returns the jump target that the node itself sets.
fn own_target(pipeline: &Pipeline, node: &Node) -> Option<(String, JumpAttribute)> {
    let named = |key: &str, why| existing(pipeline, &node.attributes.text(key), why);
    named("retry_target", JumpAttribute::Own)
        .or_else(|| named("fallback_retry_target", JumpAttribute::Fallback))
}

/// Returns a jump target if its node exists. Lint has warned about targets that do not exist.
fn existing(pipeline: &Pipeline, target: &str, why: JumpAttribute) -> Option<(String, JumpAttribute)> {
    pipeline.node(target).map(|node| (node.id().to_owned(), why))
}

/// Returns the rules for abandoning branches, by parallel node. Parallel nodes that never abandon branches are omitted.
fn rules(pipeline: &Pipeline, regions: &ForkRegions) -> HashMap<String, LeaveRule> {
    let rule = |region: &ForkRegion| {
        let fork = &pipeline.nodes()[region.fork];
        let edges = pipeline.edges().iter().filter(|edge| *edge.from == *fork.id());
        let rule = LeaveRule::of(fork, edges.map(|edge| edge.to.to_string()).collect());
        rule.may_abandon().then(|| (fork.id().to_owned(), rule))
    };
    regions.all.iter().filter_map(rule).collect()
}

/// Returns whether a node is in a branch that may be abandoned.
fn may_be_abandoned(
    pipeline: &Pipeline,
    rules: &HashMap<String, LeaveRule>,
    region: &ForkRegion,
    node: usize,
) -> bool {
    region.nodes.contains(&node) && rules.contains_key(pipeline.nodes()[region.fork].id())
}

/// Returns the error for a manager in such a branch: abandoning the branch would leave its child without a manager.
fn abandoned_manager_error(node: &Node) -> Error {
    let message = format!(
        "node {}: a manager cannot run in a branch that the join may abandon; use `join_policy=wait_all` without `fail_fast`",
        node.id()
    );
    Error::new(ErrorKind::Unsupported, message).with_operation("dot.compile")
}

fn signature_limit(pipeline: &Pipeline) -> Option<u64> {
    let limit = pipeline.attributes.get("loop_restart_signature_limit").and_then(Value::as_integer)?;
    u64::try_from(limit).ok()
}

/// Returns the role of a node where branches meet, with the data that it needs about them.
fn fan_in(pipeline: &Pipeline, region: &ForkRegion) -> NodeRole {
    let fork = &pipeline.nodes()[region.fork];
    let edges = pipeline.edges().iter().filter(|edge| *edge.from == *fork.id());
    let order = edges.map(|edge| edge.to.to_string()).collect();
    NodeRole::FanIn { fork: Arc::new(fork.clone()), order, implicit: region.implicit }
}

fn max_parallel(fork: &Node) -> usize {
    let most = fork.attributes.get("max_parallel").and_then(Value::as_integer);
    most.and_then(|most| usize::try_from(most).ok()).unwrap_or(MAX_PARALLEL)
}
