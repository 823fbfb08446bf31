//! A graph with subgraphs behaves like the same graph written flat, and writes the same log except for names.
//!
//! Random nested graphs are built twice: with `subgraph`, and flat, by separate rules in this module. The flat names contain a dot instead of each
//! slash of the paths. The records must be equal byte for byte.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;

use ferrata_core::graph::{Effect, Graph, GraphBuilder, Join, Lens, Route};
use ferrata_core::node::{NodeContext, NodeError, NodeResult};
use ferrata_core::record::RecordKind;
use ferrata_core::runtime::Runtime;
use ferrata_core::state::{Context, Reducer, Update};
use ferrata_core::store::{At, CheckpointStore, MemoryStore};
use ferrata_core::{RunKey, Seq};
use ferrata_testing::{ManualClock, SeqIds};

use crate::dice::Dice;

/// Number of random graphs.
const CASES: u64 = 120;

/// A random graph. Its first unit is the entry.
#[derive(Clone, Debug)]
struct Level {
    units: Vec<Unit>,
}

#[derive(Clone, Debug)]
struct Unit {
    what: What,
    out: Out,
    /// The unit that its failures lead to.
    caught: Option<usize>,
}

#[derive(Clone, Debug)]
enum What {
    Node {
        join: Join,
        fails: bool,
    },
    /// A subgraph, and whether its state is a prefix of the keys.
    Sub(Level, Part),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Whole,
    Made,
    Keys,
}

/// The exit of a unit. The choice depends on the length of the trace, `salt` and `modulus`.
#[derive(Clone, Debug)]
enum Out {
    Ends,
    Plain(Vec<usize>),
    When {
        salt: usize,
        to: Vec<usize>,
        otherwise: Vec<usize>,
    },
    /// A route to one of the targets, or to none if the index is out of range. A node as the first target gets items.
    Route {
        salt: usize,
        to: Vec<usize>,
        items: bool,
    },
}

fn name(at: usize) -> String {
    format!("u{at}")
}

fn draw(dice: &Dice, depth: u32) -> Level {
    let count = *dice.pick(&[2, 3, 4]);
    let later =
        |at: usize| (at + 1..count).filter(|&to| to == at + 1 || dice.below(2) == 0).collect::<Vec<_>>();
    let units = (0..count).map(|at| {
        let what = if depth > 0 && dice.below(2) == 0 {
            let part = *dice.pick(&[Part::Whole, Part::Made, Part::Keys]);
            What::Sub(draw(dice, depth - 1), part)
        } else {
            What::Node {
                join: if dice.below(8) == 0 { Join::Any } else { Join::All },
                fails: dice.below(12) == 0,
            }
        };
        let (salt, is_last) = (*dice.pick(&[0, 1, 2, 3, 4]), at + 1 == count);
        let back = || vec![*dice.pick(&(0..=at).collect::<Vec<_>>())];
        let out = match dice.below(6) {
            0 if at > 0 => Out::Route { salt, to: back(), items: false },
            _ if is_last => Out::Ends,
            1 => Out::When { salt, to: later(at), otherwise: Vec::new() },
            2 => Out::When { salt, to: vec![at + 1], otherwise: later(at) },
            3 => Out::Route { salt, to: later(at), items: dice.below(2) == 0 },
            _ => Out::Plain(later(at)),
        };
        let caught = (dice.below(4) == 0 && !is_last).then_some(at + 1);
        Unit { what, out, caught }
    });
    Level { units: units.collect() }
}

fn length(state: &Context, channel: &str) -> usize {
    state.get::<Vec<String>>(channel).unwrap().unwrap_or_default().len()
}

async fn work(cx: NodeContext, channel: Arc<str>, fails: bool) -> NodeResult<Context> {
    if fails {
        return Err(NodeError::new("drawn to fail"));
    }
    let said =
        |input: &ferrata_core::node::Input| format!("{}={:?}", input.from, input.output::<String>().ok());
    let mut from: Vec<String> = cx.inputs().iter().map(said).collect();
    // `strip` sorts the bypassed names, so the order of the inputs may differ, too.
    from.sort_unstable();
    let item = cx.item::<u32>().ok();
    let text = format!("{}@{} {item:?} {}", cx.node(), cx.visit(), from.join(","));
    Ok(Update::from(Context::update().append(&*channel, [text])).with_output(format!("of {}", cx.node())))
}

fn node(
    builder: GraphBuilder<Context>,
    name: &str,
    channel: &str,
    join: Join,
    fails: bool,
) -> GraphBuilder<Context> {
    let channel: Arc<str> = channel.into();
    builder.node(name, move |cx, _s| work(cx, Arc::clone(&channel), fails)).join(join)
}

/// The choice of a route, with the names that the route uses for its targets.
fn choose(state: &Context, channel: &str, visit: u32, salt: usize, to: &[String], items: bool) -> Route {
    let at = (length(state, channel) + salt) % (to.len() + 1);
    match to.get(at) {
        Some(name) if items && at == 0 => Route::each(name, 0..(salt + visit as usize) % 3),
        Some(name) => Route::to(name),
        None => Route::none(),
    }
}

fn holds(state: &Context, channel: &str, salt: usize) -> bool {
    !(length(state, channel) + salt).is_multiple_of(2)
}

fn is_node(level: &Level, at: usize) -> bool {
    matches!(level.units[at].what, What::Node { .. })
}

/// Builds a level with subgraphs.
fn composed(level: &Level, top: bool) -> Result<Graph<Context>, ferrata_core::graph::GraphError> {
    let mut builder = Graph::<Context>::builder("drawn").channel("trace", Reducer::Append);
    let mut declared = std::collections::BTreeSet::from(["trace".to_owned()]);
    for (at, unit) in level.units.iter().enumerate() {
        builder = match &unit.what {
            What::Node { join, fails } => node(builder, &name(at), "trace", *join, *fails),
            What::Sub(inner, part) => {
                let lens = match part {
                    Part::Whole => Lens::whole(),
                    Part::Keys => Lens::keys(format!("{}:", name(at))),
                    Part::Made => Lens::new(
                        |s: &Context| s.iter().map(|(key, value)| (key, value.clone())).collect(),
                        |s: &mut Context, part: Context| {
                            for (key, value) in part.iter() {
                                s.set(key, value).unwrap();
                            }
                        },
                    ),
                };
                let inner = composed(inner, false)?;
                if *part == Part::Made {
                    // The surrounding graph declares the channels that such a lens writes.
                    for channel in
                        inner.schema().channels().iter().filter(|own| declared.insert(own.name.to_string()))
                    {
                        builder = builder.channel(&*channel.name, channel.reducer.clone());
                    }
                }
                builder.subgraph(name(at), &inner, lens)
            }
        };
    }
    for (at, unit) in level.units.iter().enumerate() {
        let names = |to: &[usize]| to.iter().map(|&at| name(at)).collect::<Vec<_>>();
        let from = name(at);
        builder = match unit.out.clone() {
            Out::Ends => builder,
            Out::Plain(to) => builder.edge(from, names(&to)),
            Out::When { salt, to, otherwise } => {
                let builder = builder.edge(&from, names(&to)).when(move |s| holds(s, "trace", salt));
                if otherwise.is_empty() { builder } else { builder.edge(from, names(&otherwise)).otherwise() }
            }
            Out::Route { salt, to, items } => {
                let (items, to) = (items && is_node(level, to[0]), names(&to));
                builder.route(from, to.clone(), move |s, cx| {
                    choose(s, "trace", cx.visit().get(), salt, &to, items)
                })
            }
        };
        if let Some(to) = unit.caught {
            builder = builder.edge(name(at), name(to)).on_failure();
        }
    }
    let builder = builder.entry(name(0));
    if top { builder.max_steps(40).build() } else { builder.build() }
}

/// A node of the flat graph.
struct FlatNode {
    name: String,
    channel: String,
    join: Join,
    fails: bool,
    gathers: bool,
    route: Option<FlatRoute>,
    /// The conditional edges of the node: if one fires, the branch continues.
    conditions: Vec<(String, usize)>,
}

#[derive(Clone)]
struct FlatRoute {
    channel: String,
    salt: usize,
    to: Vec<String>,
    items: bool,
    /// The targets if no other target is chosen.
    instead: Vec<String>,
}

enum FlatKind {
    Plain,
    When { channel: String, salt: usize },
    Otherwise,
    Routed,
    Failed,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Always,
    Otherwise,
    Unrouted,
}

#[derive(Default)]
struct Flat {
    nodes: Vec<FlatNode>,
    edges: Vec<(String, String, FlatKind)>,
}

/// The result of a level: the ends of its branches, and its nodes without a failure edge of their own.
struct Done {
    exits: Vec<(String, How)>,
    uncaught: Vec<String>,
}

fn entry(level: &Level, path: &str) -> String {
    match &level.units[0].what {
        What::Node { .. } => format!("{path}{}", name(0)),
        What::Sub(inner, _) => entry(inner, &format!("{path}{}.", name(0))),
    }
}

fn join_of(level: &Level, at: usize) -> Join {
    match &level.units[at].what {
        What::Node { join, .. } => *join,
        What::Sub(inner, _) => join_of(inner, 0),
    }
}

impl Flat {
    fn node(&mut self, name: &str) -> &mut FlatNode {
        self.nodes.iter_mut().find(|node| node.name == name).unwrap()
    }

    fn edge(&mut self, from: &str, to: &str, kind: FlatKind) {
        self.edges.push((from.to_owned(), to.to_owned(), kind));
    }

    /// Connects the ends of a part to nodes.
    fn lead(&mut self, exits: &[(String, How)], to: &[String]) {
        for (exit, how) in exits {
            match how {
                How::Always => to.iter().for_each(|to| self.edge(exit, to, FlatKind::Plain)),
                How::Otherwise => to.iter().for_each(|to| self.edge(exit, to, FlatKind::Otherwise)),
                How::Unrouted => {
                    for to in to {
                        let there = self.edges.iter().any(|(from, old, kind)| {
                            from == exit && old == to && matches!(kind, FlatKind::Routed)
                        });
                        if !there {
                            self.edge(exit, to, FlatKind::Routed);
                        }
                    }
                    self.node(exit).route.as_mut().unwrap().instead = to.to_vec();
                }
            }
        }
    }

    fn level(&mut self, level: &Level, path: &str, channel: &str) -> Done {
        let mut parts: Vec<Option<Done>> = Vec::new();
        let mut sources: Vec<Option<String>> = Vec::new();
        let mut ways_all: Vec<bool> = Vec::new();
        for (at, unit) in level.units.iter().enumerate() {
            let own = format!("{path}{}", name(at));
            let What::Sub(inner, part) = &unit.what else {
                let What::Node { join, fails } = unit.what else { unreachable!() };
                self.add(&own, channel, join, fails, false);
                parts.push(None);
                sources.push(Some(own));
                ways_all.push(false);
                continue;
            };
            let below = if *part == Part::Keys { format!("{}:", name(at)) } else { String::new() };
            // The prefixes of nested parts are concatenated.
            let prefix = channel.strip_suffix("trace").unwrap();
            let done = self.level(inner, &format!("{own}."), &format!("{prefix}{below}trace"));
            let sole = match &done.exits[..] {
                [(exit, How::Always)] => {
                    let routed =
                        self.edges.iter().any(|(_, to, kind)| to == exit && matches!(kind, FlatKind::Routed));
                    let once = self.node(exit).join == Join::All && !routed;
                    once.then(|| exit.clone())
                }
                _ => None,
            };
            let all = match &unit.out {
                Out::Plain(to) => to.iter().all(|&to| join_of(level, to) == Join::All),
                _ => false,
            };
            let source = match (&unit.out, sole) {
                (_, Some(exit)) => Some(exit),
                (Out::Ends, None) => None,
                (_, None) if all => None,
                (_, None) => {
                    self.add(&own, channel, Join::All, false, true);
                    self.lead(&done.exits, std::slice::from_ref(&own));
                    Some(own)
                }
            };
            ways_all.push(all && source.is_none());
            sources.push(source);
            parts.push(Some(done));
        }
        let mut exits = Vec::new();
        let mut uncaught: Vec<String> = Vec::new();
        for (at, unit) in level.units.iter().enumerate() {
            let enter = |to: &usize| match &level.units[*to].what {
                What::Node { .. } => format!("{path}{}", name(*to)),
                What::Sub(inner, _) => entry(inner, &format!("{path}{}.", name(*to))),
            };
            let names = |to: &[usize]| to.iter().map(enter).collect::<Vec<_>>();
            let source = sources[at].clone();
            match (&unit.out, &source) {
                (Out::Ends, Some(node)) => exits.push((node.clone(), How::Always)),
                (Out::Ends, None) => exits.extend(parts[at].as_ref().unwrap().exits.iter().cloned()),
                (Out::Plain(to), None) => {
                    let ends = parts[at].as_ref().unwrap().exits.clone();
                    self.lead(&ends, &names(to));
                }
                (Out::Plain(to), Some(node)) => {
                    names(to).iter().for_each(|to| self.edge(node, to, FlatKind::Plain))
                }
                (Out::When { salt, to, otherwise }, Some(node)) => {
                    for to in names(to) {
                        self.edge(node, &to, FlatKind::When { channel: channel.to_owned(), salt: *salt });
                        self.node(node).conditions.push((channel.to_owned(), *salt));
                    }
                    names(otherwise).iter().for_each(|to| self.edge(node, to, FlatKind::Otherwise));
                    if otherwise.is_empty() {
                        exits.push((node.clone(), How::Otherwise));
                    }
                }
                (Out::Route { salt, to, items }, Some(node)) => {
                    names(to).iter().for_each(|to| self.edge(node, to, FlatKind::Routed));
                    let items = *items && is_node(level, to[0]);
                    let route = FlatRoute {
                        channel: channel.to_owned(),
                        salt: *salt,
                        to: names(to),
                        items,
                        instead: Vec::new(),
                    };
                    self.node(node).route = Some(route);
                    exits.push((node.clone(), How::Unrouted));
                }
                (Out::When { .. } | Out::Route { .. }, None) => unreachable!("failures must be collected"),
            }
            let fallible = match &parts[at] {
                Some(part) => {
                    let mut own = part.uncaught.clone();
                    own.extend(source.filter(|node| *node == format!("{path}{}", name(at))));
                    own
                }
                None => vec![source.unwrap()],
            };
            match unit.caught {
                Some(to) => fallible.iter().for_each(|node| self.edge(node, &enter(&to), FlatKind::Failed)),
                None => uncaught.extend(fallible),
            }
        }
        // Sort by the order of the nodes, whichever unit they belong to.
        let place = |name: &String| self.nodes.iter().position(|node| node.name == *name);
        uncaught.sort_by_key(place);
        exits.sort_by_key(|(name, _)| place(name));
        Done { exits, uncaught }
    }

    fn add(&mut self, name: &str, channel: &str, join: Join, fails: bool, gathers: bool) {
        let (name, channel) = (name.to_owned(), channel.to_owned());
        self.nodes.push(FlatNode {
            name,
            channel,
            join,
            fails,
            gathers,
            route: None,
            conditions: Vec::new(),
        });
    }

    fn build(self, first: &str) -> Result<Graph<Context>, ferrata_core::graph::GraphError> {
        let mut builder = Graph::<Context>::builder("drawn").max_steps(40).entry(first);
        let channels: std::collections::BTreeSet<&String> =
            self.nodes.iter().map(|node| &node.channel).collect();
        for channel in channels {
            builder = builder.channel(channel, Reducer::Append);
        }
        for flat in &self.nodes {
            builder = if flat.gathers {
                let gather = async |cx: NodeContext, _s| match cx.inputs() {
                    [one] => Ok(one.output::<String>().map_or_else(
                        |_| Update::<Context>::none(),
                        |output| Update::none().with_output(output),
                    )),
                    _ => Ok(Update::none()),
                };
                builder.node(&flat.name, gather).effect(Effect::Pure)
            } else {
                node(builder, &flat.name, &flat.channel, flat.join, flat.fails)
            };
        }
        let mut routed = std::collections::BTreeSet::new();
        for (from, to, kind) in &self.edges {
            builder = match kind {
                FlatKind::Plain => builder.edge(from, to),
                FlatKind::When { channel, salt } => {
                    let (channel, salt) = (channel.clone(), *salt);
                    builder.edge(from, to).when(move |s| holds(s, &channel, salt))
                }
                FlatKind::Otherwise => builder.edge(from, to).otherwise(),
                FlatKind::Failed => builder.edge(from, to).on_failure(),
                FlatKind::Routed if !routed.insert(from.clone()) => builder,
                FlatKind::Routed => {
                    let of = |(source, to, kind): &(String, String, FlatKind)| {
                        (source == from && matches!(kind, FlatKind::Routed)).then(|| to.clone())
                    };
                    let targets: Vec<String> = self.edges.iter().filter_map(of).collect();
                    let node = self.nodes.iter().find(|node| node.name == *from).unwrap();
                    let (route, conditions) = (node.route.clone().unwrap(), node.conditions.clone());
                    builder.route(from, targets, move |s, cx| {
                        let FlatRoute { channel, salt, to, items, instead } = &route;
                        let visit = cx.visit().get();
                        let at = (length(s, channel) + salt) % (to.len() + 1);
                        let none = at == to.len()
                            || (*items && at == 0 && (*salt + visit as usize).is_multiple_of(3));
                        if none && !conditions.iter().any(|(channel, salt)| holds(s, channel, *salt)) {
                            return Route::all(instead.clone());
                        }
                        choose(s, channel, visit, *salt, to, *items)
                    })
                }
            };
        }
        builder.build()
    }
}

/// Removes the fingerprints, because they depend on the names.
fn strip(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(map) => {
            ["print", "graph"].iter().for_each(|key| drop(map.remove(*key)));
            map.values_mut().for_each(strip);
            // A flat graph lists the targets of one route together, and a graph with subgraphs lists them by part.
            if let Some(serde_json::Value::Array(names)) = map.get_mut("bypassed") {
                names.sort_by_key(ToString::to_string);
            }
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

/// The records of a run with the names of the flat graph, without the fingerprints.
async fn log(graph: &Graph<Context>) -> Vec<(RecordKind, usize, String)> {
    let clock = Arc::new(ManualClock::default());
    let store = MemoryStore::with_clock(Arc::clone(&clock) as _);
    let runtime =
        Runtime::builder(store.clone()).clock(clock).ids(Arc::new(SeqIds::new(1))).build().await.unwrap();
    let run = runtime.start(graph, Context::new()).id("r").await.unwrap();
    run.wait().await.unwrap();
    let verified = runtime.verify(graph, &RunKey::try_from("r").unwrap()).await.unwrap();
    assert!(verified.divergence.is_none(), "{:?}", verified.divergence);
    let key = RunKey::try_from("r").unwrap();
    let mut records = store.load(&key, At::Latest).await.unwrap().unwrap();
    while let Some(first) = records.first().map(|first| first.header.seq.get()).filter(|&first| first > 0) {
        let mut before = store.load(&key, At::Seq(Seq::new(first - 1))).await.unwrap().unwrap();
        before.append(&mut records);
        records = before;
    }
    let show = |record: &ferrata_core::record::Record| {
        let text = std::str::from_utf8(&record.body).unwrap().replace('/', ".");
        let mut body: serde_json::Value = serde_json::from_str(&text).unwrap();
        strip(&mut body);
        (record.header.kind, record.body.len(), body.to_string())
    };
    records.iter().map(show).collect()
}

/// Guarantees: COMPOSE-1.
#[tokio::test]
async fn subgraph_log_equals_flat_graph_log() {
    let (mut ran, mut nested, mut gathered, mut long) = (0, 0, 0, 0);
    for seed in 0..CASES {
        let level = draw(&Dice::new(seed), 2);
        let Ok(graph) = composed(&level, true) else { continue };
        let mut flat = Flat::default();
        flat.level(&level, "", "trace");
        gathered += u32::from(flat.nodes.iter().any(|node| node.gathers));
        let flat =
            flat.build(&entry(&level, "")).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{level:#?}"));
        let (composed, flat) = (log(&graph).await, log(&flat).await);
        for (at, (composed, flat)) in composed.iter().zip(&flat).enumerate() {
            assert_eq!(composed, flat, "seed {seed}, record {at}: {level:?}");
        }
        assert_eq!(composed.len(), flat.len(), "seed {seed}: {level:?}");
        ran += 1;
        nested += u32::from(graph.node_names().any(|name| name.as_str().matches('/').count() == 2));
        long += u32::from(composed.len() > 8);
    }
    // Check that the random graphs are interesting enough.
    assert!(ran > 80 && nested > 50 && gathered > 40 && long > 30, "{ran} {nested} {gathered} {long}");
}
