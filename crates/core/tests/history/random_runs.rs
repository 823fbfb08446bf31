//! Random runs: graph, policy and events all come from a seed.

use std::sync::Arc;
use std::time::Duration;

use ferrata_core::ask::{Answer, Question, QuestionKind};
use ferrata_core::graph::{CheckpointFrequency, CheckpointPolicy, Effect, Graph, RetryPolicy, Route};
use ferrata_core::node::{NodeContext, NodeError, NodeResult};
use ferrata_core::record::{Record, Resolution, RunFacts, RunStatus};
use ferrata_core::runtime::{Outcome, RunHandle, Runtime};
use ferrata_core::state::{Context, Draft, Op, Patch, Reducer, Update};
use ferrata_core::store::{At, CheckpointStore, HeaderRange, MemoryStore, RunAppend};
use ferrata_core::{Clock as _, RunKey, SystemClock};
use ferrata_testing::SeqIds;

use super::chance::Chance;
use crate::support::bounds;

/// The action of a node, next to the note that it ran. It depends only on the node, the visit and the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Nothing,
    /// Fails in its first attempt.
    Stumbles,
    /// Always fails. Its edges are failure edges.
    Fails,
    Asks,
    Receives,
    Steps,
    Sleeps,
    /// Requests a checkpoint.
    Anchors,
    /// Writes enough that a base follows soon.
    Swells,
}

#[derive(Clone, Debug)]
struct Place {
    deed: Deed,
    effect: Effect,
    to: Vec<usize>,
}

/// A random run. The same seed always gives the same run.
#[derive(Clone, Debug)]
pub(crate) struct RandomRun {
    pub(crate) seed: u64,
    places: Vec<Place>,
    items: u32,
    back_to: usize,
    rounds: u32,
    /// Whether the run finally fails.
    doomed: bool,
    pub(crate) policy: CheckpointPolicy,
    /// Whether an operator edits, pauses and pins the run while it waits.
    meddled: bool,
}

/// The difference between a graph and the one that the run was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    /// The route at the end leads back once more.
    Route,
    /// The channel `log` is overwritten instead of appended to.
    Reducer,
    /// Another node runs next to the first.
    Frontier,
    /// The last node has another name.
    Gone,
    /// The state has the next version, in which the channel `log` is called `notes`.
    Version,
}

pub(crate) fn key(id: &str) -> RunKey {
    RunKey::try_from(id).unwrap()
}

impl RandomRun {
    pub(crate) fn of(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let count = 3 + chance.below(5);
        let mut places: Vec<Place> = (0..count)
            .map(|_| {
                let deed = *chance.pick(&[
                    Deed::Nothing,
                    Deed::Nothing,
                    Deed::Stumbles,
                    Deed::Fails,
                    Deed::Asks,
                    Deed::Receives,
                    Deed::Steps,
                    Deed::Sleeps,
                    Deed::Anchors,
                    Deed::Swells,
                ]);
                let calm = matches!(deed, Deed::Nothing | Deed::Stumbles | Deed::Fails | Deed::Swells);
                let effects = [Effect::Pure, Effect::Read, Effect::Write, Effect::External];
                let effect = *chance.pick(if calm { &effects } else { &effects[..3] });
                Place { deed, effect, to: Vec::new() }
            })
            .collect();
        for to in 1..count {
            // An earlier node leads to each node, and all branches join in the last one.
            let from = chance.below(to);
            places[from].to.push(to);
            let other = chance.below(to);
            if other != from && chance.one_in(3) {
                places[other].to.push(to);
            }
        }
        for place in &mut places[..count - 1] {
            if place.to.is_empty() {
                place.to.push(count - 1);
            }
        }
        let frequencies = [
            CheckpointFrequency::EveryNode,
            CheckpointFrequency::EveryNode,
            CheckpointFrequency::EveryNth(3.try_into().unwrap()),
            CheckpointFrequency::Interval(Duration::from_millis(2)),
            CheckpointFrequency::StatusChangeOnly,
        ];
        Self {
            seed,
            items: u32::try_from(chance.below(4)).unwrap(),
            back_to: chance.below(count),
            rounds: 1 + u32::try_from(chance.below(3)).unwrap(),
            doomed: chance.one_in(6),
            policy: CheckpointPolicy::default().with_frequency(*chance.pick(&frequencies)),
            meddled: chance.one_in(2),
            places,
        }
    }

    /// The same run with a record after every node.
    pub(crate) fn finely(mut self) -> Self {
        self.policy = CheckpointPolicy::default();
        self
    }

    pub(crate) fn graph(&self) -> Graph<Context> {
        self.changed(Change::None)
    }

    pub(crate) fn changed(&self, change: Change) -> Graph<Context> {
        let reducer = if change == Change::Reducer { Reducer::Last } else { Reducer::Append };
        let log = if change == Change::Version { "notes" } else { "log" };
        let mut builder = Graph::<Context>::builder("random_run")
            .channel(log, reducer)
            .channel("sums", Reducer::Merge)
            .node("split", async |_cx, _s| Ok(Update::none()))
            .effect(Effect::Pure)
            .node("each", async |cx, _s| {
                let item: u32 = cx.item()?;
                Ok(Context::update().merge("sums", [(format!("item/{item}~"), item)]))
            })
            .entry("split");
        if change == Change::Version {
            builder = builder.state_version(2).migrate(1, |channels| {
                if let Some(log) = channels.remove("log") {
                    channels.insert("notes".into(), log);
                }
                Ok(())
            });
        }
        let width = self.items;
        builder = match width {
            0 => builder.edge("split", "each").when(|_| false).edge("split", "n0"),
            _ => builder
                .route("split", ["each"], move |_s, _cx| Route::each("each", 0..width))
                .edge("each", "n0"),
        };
        if change == Change::Frontier {
            builder = builder.node("beside", async |_cx, _s| Ok(Update::none()));
            builder = builder.edge("n0", "beside");
            if self.places[0].deed == Deed::Fails {
                builder = builder.on_failure();
            }
        }
        let last = self.places.len() - 1;
        for (at, place) in self.places.iter().enumerate() {
            let deed = place.deed;
            builder = builder
                .node(name(at), move |cx: NodeContext, s: Draft<Context>| act(deed, log, cx, s))
                .effect(place.effect);
            if deed == Deed::Stumbles {
                let policy = RetryPolicy::none().with_attempts(2).with_delay(Duration::from_micros(100));
                builder = builder.retry(policy);
            }
        }
        for (at, place) in self.places.iter().enumerate().take(last) {
            for &to in &place.to {
                builder = builder.edge(name(at), name(to));
                if place.deed == Deed::Fails {
                    builder = builder.on_failure();
                }
            }
        }
        let end = if change == Change::Gone { "finish" } else { "end" };
        let rounds = self.rounds + u32::from(change == Change::Route);
        let back = name(self.back_to);
        let doomed = self.doomed;
        // The last node may fail, and then a failure edge follows. So the loop goes through a separate node.
        builder = builder.edge(name(last), "turn");
        if self.places[last].deed == Deed::Fails {
            builder = builder.on_failure();
        }
        builder
            .node("turn", async |cx, _s| Ok(Context::update().set("turns", cx.visit().get())))
            .route("turn", [back.clone(), end.to_owned()], move |s, _cx| match s.get::<u32>("turns") {
                Ok(Some(turns)) if turns >= rounds => Route::to(end),
                _ => Route::to(back.as_str()),
            })
            .node(end, move |_cx: NodeContext, _s: Draft<Context>| async move {
                if doomed { Err("doomed".into()) } else { Ok(Context::update().set("ended", true)) }
            })
            .build()
            .unwrap()
    }

    /// Creates a process.
    pub(crate) async fn process(&self, store: &MemoryStore, number: u64) -> Runtime {
        // Processes on one store need different ids.
        let ids = SeqIds::new((self.seed * 16 + number) % (1 << 26));
        Runtime::builder(store.clone()).ids(Arc::new(ids)).build().await.unwrap()
    }

    /// Runs it to its end. Returns the store with the run `r`.
    pub(crate) async fn live(&self) -> MemoryStore {
        let store = MemoryStore::new();
        let graph = self.graph();
        let (one, other) = (self.process(&store, 0).await, self.process(&store, 1).await);
        let request = one.start(&graph, self.input()).id("r").label("of", self.seed.to_string()).user("ann");
        let run = request.checkpoints(self.policy).await.unwrap();
        self.go_on(&[&one, &other], &graph, run, self.meddled).await;
        store
    }

    pub(crate) fn input(&self) -> Context {
        let mut input = Context::new();
        input.set("seed~/ü", self.seed).unwrap();
        input
    }

    /// Continues a run until it has ended, in one process after the other.
    pub(crate) async fn go_on(
        &self,
        processes: &[&Runtime],
        graph: &Graph<Context>,
        mut run: RunHandle<Context>,
        meddled: bool,
    ) -> Outcome<Context> {
        let mut chance = Chance::new(self.seed ^ 0xABCD);
        for turn in 0.. {
            assert!(turn < 1_000, "seed {}: the run does not end", self.seed);
            let runtime = processes[turn % processes.len()];
            let key = run.run().clone();
            match run.wait().await.unwrap() {
                Outcome::Interrupted(questions) => {
                    if meddled {
                        self.meddle(runtime, graph, &key, &mut chance).await;
                    }
                    for question in questions {
                        let answered = runtime.respond(&key, &question.id, answer(&question)).await;
                        answered.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
                    }
                }
                Outcome::AwaitingInput => runtime.send(&key, "hello").by("ann").await.unwrap(),
                Outcome::Paused { .. } => runtime.unpause(&key).await.unwrap(),
                Outcome::Sleeping { .. } | Outcome::Released => {}
                outcome => {
                    self.hold_bounds(runtime).await;
                    return outcome;
                }
            }
            run = runtime.resume(graph, key.run.as_str()).checkpoints(self.policy).await.unwrap();
        }
        unreachable!()
    }

    /// Checks the bounds of all runs of the store, which are idle or have ended.
    async fn hold_bounds(&self, runtime: &Runtime) {
        let label = format!("seed {}", self.seed);
        bounds::hold(&**runtime.store(), SystemClock::new().now(), &label).await;
    }

    async fn meddle(&self, runtime: &Runtime, graph: &Graph<Context>, key: &RunKey, chance: &mut Chance) {
        match chance.below(4) {
            0 => {
                let patch = Patch::from_ops(&[Op::Set("edited".into(), self.seed.into())]).unwrap();
                runtime.edit(key, patch).check_with(graph).by("bob").await.unwrap();
            }
            1 => {
                runtime.pause(key, "a look").await.unwrap();
                runtime.unpause(key).await.unwrap();
            }
            // A message that no node waits for yet.
            2 => runtime.send(key, "early").await.unwrap(),
            _ => {}
        }
    }
}

fn name(at: usize) -> String {
    format!("n{at}")
}

/// A valid answer.
pub(crate) fn answer(question: &Question) -> Answer {
    match question.kind {
        QuestionKind::Doubt => Resolution::Retry.into(),
        _ => Answer::accept(question.node.as_str().len()).unwrap(),
    }
}

async fn act(deed: Deed, log: &'static str, cx: NodeContext, _s: Draft<Context>) -> NodeResult<Context> {
    let (node, visit) = (cx.node().to_string(), cx.visit());
    let update = Context::update().append(log, [format!("{node}@{visit}")]);
    let of = |what: &str| format!("{what} {node}");
    let update = match deed {
        Deed::Nothing => update.set(of("at"), visit.get()),
        Deed::Stumbles if cx.attempt() < 2 => return Err(NodeError::new("not yet").not_done()),
        Deed::Stumbles => update,
        Deed::Fails => return Err(NodeError::new("by no means").not_done()),
        Deed::Asks => {
            let answer: u32 = cx.ask("q", "How much?").await?;
            update.set(of("answer"), answer)
        }
        Deed::Receives => {
            let _: String = cx.receive().await?;
            update
        }
        Deed::Steps => {
            let one: u32 = cx.step("one", async || Ok::<_, std::io::Error>(visit.get())).await?;
            let two: u32 = cx.step("two", async || Ok::<_, std::io::Error>(one + 1)).await?;
            update.set(of("steps"), two)
        }
        Deed::Sleeps => {
            cx.sleep(Duration::from_micros(200)).await?;
            update
        }
        Deed::Anchors => {
            cx.checkpoint().await?;
            update
        }
        Deed::Swells => update.set(of("big"), "x".repeat(9_000)),
    };
    Ok(Update::from(update).with_output(visit.get()).with_notes(of("was at")))
}

/// A state without the order of concurrent nodes.
pub(crate) fn settled(state: &Context) -> serde_json::Value {
    let mut state = serde_json::to_value(state).unwrap();
    for log in ["log", "notes"] {
        if let Some(log) = state.get_mut(log).and_then(serde_json::Value::as_array_mut) {
            log.sort_by_key(ToString::to_string);
        }
    }
    state
}

/// The end of a run without the effects of the order of concurrent nodes.
pub(crate) fn end(outcome: Outcome<Context>) -> (RunStatus, serde_json::Value) {
    match outcome {
        Outcome::Completed(state) => (RunStatus::Completed, settled(&state)),
        Outcome::Failed { state, .. } => (RunStatus::Failed, settled(&state)),
        outcome => panic!("the run has not ended: {outcome:?}"),
    }
}

/// Reads every retained record of a run through the public API.
pub(crate) async fn records(store: &dyn CheckpointStore, run: &RunKey) -> Vec<Record> {
    let headers = store.headers(run, HeaderRange::oldest(1_000)).await.unwrap().items;
    let mut records = Vec::new();
    for header in headers {
        let found = store.load(run, At::Seq(header.seq)).await.unwrap().unwrap();
        records.push(found.last().unwrap().clone());
    }
    records
}

/// A copy of a log from which the tests create stores.
pub(crate) struct Log {
    run: RunKey,
    facts: RunFacts,
    pub(crate) records: Vec<Record>,
}

impl Log {
    pub(crate) async fn of(store: &dyn CheckpointStore, run: &RunKey) -> Self {
        let facts = store.head(run).await.unwrap().unwrap().facts;
        Self { run: run.clone(), facts, records: records(store, run).await }
    }

    /// Creates a store with the records up to `seq`: the run as it was then.
    pub(crate) async fn as_of(&self, seq: u64) -> MemoryStore {
        let store = MemoryStore::new();
        let records = self.records[..=usize::try_from(seq).unwrap()].to_vec();
        let append =
            RunAppend { run: self.run.clone(), expected: None, records, facts: Some(self.facts.clone()) };
        store.append(vec![append]).await.pop().unwrap().unwrap();
        store
    }
}

pub(crate) async fn last(store: &dyn CheckpointStore, run: &RunKey) -> u64 {
    store.head(run).await.unwrap().unwrap().seq.get()
}
