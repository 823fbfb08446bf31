//! A run that is purged and started again after a read, or during a call. No call confuses the two generations of the run.

use std::sync::Arc;

use ferrata_store::{
    At, CheckpointStore, Error, ErrorKind, HeadRef, HeaderRange, Headers, Order, PruneCut, Record, RecordId,
    Removed, Result, RunAppend, RunHead, RunKey, RunQuery, Seq, is_news,
};

use super::conflict::is_a_conflict;
use super::readers::while_writing;
use crate::stage::{
    Log, Store, TestStage, append_one, appended, every_run, expect_refusal, facts, is_kept, is_kept_at_head,
    ok, overtaken, query,
};

/// The maximum number of polls of a call before the run is purged and started again.
const POLLS: usize = 24;

/// The length of the second generation: shorter than the first, equal, and longer.
const LENGTHS: [usize; 3] = [3, 11, 13];

/// Two generations of one run. The first exists, and the second does not exist yet.
struct TwoGenerations {
    old: Log,
    new: Log,
}

impl TwoGenerations {
    async fn start(stage: &TestStage, run: &str) -> Self {
        Self { old: stage.written(run, 11).await, new: stage.log(run).with_facts(facts("another", 3)) }
    }

    /// Purges the first generation, and starts the second with `count` records.
    fn begin_anew(&mut self, store: Store, count: usize) -> impl Future<Output = ()> + Send + 'static {
        let start = self.new.next(count);
        self.new.note_append(&start);
        async move {
            ok(store.purge(&start.run, None).await, "ending the first generation");
            appended(&*store, &start).await;
        }
    }
}

/// Makes a call on the first generation. Before the call ends, the run is purged and started again: after the first poll of the call, then after
/// the second, and so on. Passes each answer to `check`.
async fn overtake<T, F>(
    stage: &TestStage,
    tag: usize,
    call: impl Fn(Store, &Log) -> F,
    check: impl AsyncFn(&Store, TwoGenerations, Result<T>),
) where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let (store, other) = (stage.store(), stage.another().await);
    for polls in 0..stage.times(POLLS, POLLS / 2) {
        let mut generations = TwoGenerations::start(stage, &format!("r-{tag}-{polls}")).await;
        let call = call(Arc::clone(&store), &generations.old);
        let anew = generations.begin_anew(Arc::clone(&other), LENGTHS[polls % LENGTHS.len()]);
        let (answer, (), is_overtaken) = overtaken(polls, call, anew).await;
        check(&store, generations, answer).await;
        // Use each length at least once.
        if !is_overtaken && polls >= LENGTHS.len() {
            break;
        }
    }
}

/// A read of a run.
#[derive(Clone, Copy, Debug)]
enum ReadCall {
    Head,
    Load(At),
    Since(HeadRef),
    Headers(HeaderRange),
    /// A listing of runs of this workflow.
    Runs(&'static str),
}

/// The result of a read. It is empty for a missing run.
#[derive(Debug, PartialEq)]
enum RunView {
    Nothing,
    Head(Box<RunHead>),
    Records(Vec<Record>),
    Headers(Headers),
}

impl ReadCall {
    /// Returns the reads that start in the first generation and may end in the second.
    fn all_before(old: &Log) -> Vec<Self> {
        let known = |place: usize| old.records[place].header.head();
        vec![
            Self::Head,
            Self::Load(At::Latest),
            Self::Load(At::Seq(Seq::new(2))),
            Self::Load(At::Record(known(6).id)),
            Self::Since(known(1)),
            Self::Since(known(10)),
            Self::Headers(HeaderRange::oldest(2)),
            Self::Headers(HeaderRange::newest(1_000)),
            Self::Runs("review"),
            Self::Runs("another"),
        ]
    }

    async fn read(self, store: Store, run: RunKey) -> Result<RunView> {
        let records = |found: Option<Vec<Record>>| found.map_or(RunView::Nothing, RunView::Records);
        let head =
            |found: Option<RunHead>| found.map_or(RunView::Nothing, |head| RunView::Head(Box::new(head)));
        let seen = match self {
            Self::Head => store.head(&run).await.map(head),
            Self::Load(at) => store.load(&run, at).await.map(records),
            Self::Since(known) => store.load_since(&run, known).await.map(records),
            Self::Headers(range) => store.headers(&run, range).await.map(RunView::Headers),
            Self::Runs(workflow) => {
                let query = query(|query| query.workflow = Some(facts(workflow, 0).workflow));
                let all = every_run(&*store, &query, Order::OldestFirst, 50).await;
                Ok(head(all.into_iter().find(|found| found.run == run)))
            }
        };
        match seen {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(RunView::Nothing),
            seen => seen,
        }
    }
}

/// A reader of a run that starts again sees only one generation, or no run.
pub(crate) async fn a_look_sees_one_generation_or_none(stage: TestStage) {
    let (store, other) = (stage.store(), stage.another().await);
    let looks = ReadCall::all_before(&stage.written("looks", 11).await).len();
    for place in 0..looks {
        for polls in 0..stage.times(POLLS, POLLS / 2) {
            let length = LENGTHS[polls % LENGTHS.len()];
            let mut generations = TwoGenerations::start(&stage, &format!("r-{place}-{polls}")).await;
            let (look, run) = (ReadCall::all_before(&generations.old)[place], generations.old.key.clone());
            let before =
                ok(look.read(Arc::clone(&other), run.clone()).await, "looking at the first generation");
            let all = RunView::Records(generations.old.loaded(10));
            let call = look.read(Arc::clone(&store), run.clone());
            let anew = generations.begin_anew(Arc::clone(&other), length);
            let (seen, (), is_overtaken) = overtaken(polls, call, anew).await;
            let seen = ok(seen, &format!("{look:?} while the run begins anew"));
            let after = ok(look.read(Arc::clone(&store), run).await, "looking at the second generation");
            let is_all = matches!(look, ReadCall::Since(_)) && seen == all;
            assert!(
                is_all || [&RunView::Nothing, &before, &after].contains(&&seen),
                "{look:?} sees one generation or none, and saw {seen:#?}, of {before:#?} and {after:#?}"
            );
            is_kept_at_head(&*store, &generations.new).await;
            if !is_overtaken && polls >= LENGTHS.len() {
                break;
            }
        }
    }
}

/// While a run is purged and started again repeatedly, many readers each see only one generation at a time, or no run.
pub(crate) async fn readers_see_one_generation_at_a_time(stage: TestStage) {
    let stores = super::concurrency::instances(&stage, 3).await;
    let mut generations = Vec::new();
    for n in 0..stage.times(30, 10) {
        let mut generation = stage.log("r-1").with_facts(facts("review", n as i64));
        let start = generation.next(LENGTHS[n % LENGTHS.len()]);
        generation.note_append(&start);
        generations.push((generation, start));
    }
    let (writer, starts) =
        (stage.store(), generations.iter().map(|(_, start)| start.clone()).collect::<Vec<_>>());
    let write = async move {
        for start in starts {
            appended(&*writer, &start).await;
            tokio::task::yield_now().await;
            ok(
                writer.purge(&start.run, start.records.last().map(|last| last.header.head())).await,
                "purging",
            );
        }
    };
    let generations: Arc<Vec<Log>> =
        Arc::new(generations.into_iter().map(|(generation, _)| generation).collect());
    while_writing(&stores, write, move |store| {
        let generations = Arc::clone(&generations);
        async move {
            let run = &generations[0].key;
            let of = |id: RecordId| {
                let generation = generations
                    .iter()
                    .find(|generation| generation.records.iter().any(|record| record.header.id == id));
                generation.expect("only what was written is read")
            };
            let head = ok(store.head(run).await, "reading the head");
            if let Some(head) = &head {
                assert_eq!(*head, of(head.head().id).run_head(), "the head of one generation");
            }
            if let Some(loaded) = ok(store.load(run, At::Latest).await, "loading") {
                let generation = of(loaded[0].header.id);
                assert_eq!(
                    loaded,
                    generation.loaded(generation.records.len() as u64 - 1),
                    "one generation is loaded"
                );
            }
            if let Some(known) = head.map(|head| head.head()) {
                let since = ok(store.load_since(run, known).await, "loading what came since");
                let since = since.unwrap_or_default();
                if !is_news(known, &since) {
                    let generation = of(since[0].header.id);
                    assert_eq!(
                        since,
                        generation.loaded(generation.records.len() as u64 - 1),
                        "one generation is loaded"
                    );
                }
            }
            match store.headers(run, HeaderRange::newest(1_000)).await {
                Ok(answer) => {
                    let generation = of(answer.items[0].id);
                    assert_eq!(answer.items, generation.headers(), "the headers of one generation");
                    assert_eq!(
                        (answer.first, Some(answer.last)),
                        (Seq::new(0), generation.head().map(|h| h.seq))
                    );
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "it is there or not: {error:?}"),
            }
            for head in every_run(&*store, &RunQuery::default(), Order::OldestFirst, 10).await {
                assert_eq!(head, of(head.head().id).run_head(), "the head of one generation is listed");
            }
        }
    })
    .await;
}

/// The knowledge of an instance about the first generation has no effect on the second.
pub(crate) async fn what_was_seen_of_one_generation_changes_nothing_in_the_next(stage: TestStage) {
    let (store, other) = (stage.store(), stage.another().await);
    for length in LENGTHS {
        let mut generations = TwoGenerations::start(&stage, &format!("r-{length}")).await;
        is_kept(&*store, &generations.old).await;
        let first = ok(store.headers(&generations.old.key, HeaderRange::oldest(2)).await, "listing headers");
        generations.begin_anew(Arc::clone(&other), length).await;
        let TwoGenerations { old, mut new } = generations;
        let (run, head) = (&old.key, new.head());

        let next = HeaderRange::oldest(2).after(&first).expect("eleven records are more than two");
        let rest = ok(store.headers(run, next).await, "the rest of the headers");
        assert_eq!(rest.items, new.headers()[2..length.min(4)], "of the generation that there is");
        for record in &old.records {
            let known = record.header.head();
            let since = ok(store.load_since(run, known).await, "loading what came since");
            assert_eq!(
                since,
                Some(new.loaded(length as u64 - 1)),
                "after a record of the first generation: all"
            );
            let loaded = store.load(run, At::Record(known.id)).await;
            expect_refusal(loaded, &[ErrorKind::NotFound], "loading a record of the first generation");
        }
        is_a_conflict(&*store, &old.next(2), head, "an append to the first generation").await;
        for record in &old.records {
            let purged = store.purge(run, Some(record.header.head())).await;
            let error = expect_refusal(purged, &[ErrorKind::Conflict], "a purge of the first generation");
            assert_eq!(error.actual_head(), Some(head), "it is told the head there is: {error:?}");
            let cut = PruneCut { at: record.header.seq, base: Some(old.as_base(record.header.seq.get())) };
            let kinds = [ErrorKind::Invalid, ErrorKind::NotFound];
            expect_refusal(store.prune(run, cut).await, &kinds, "a prune of the first generation");
        }
        if let Some(resealing) = store.resealing() {
            let replaced = ok(resealing.reseal(run, &old.records).await, "putting in other envelopes");
            assert_eq!(replaced, 0, "records of the first generation");
        }
        is_kept(&*store, &new).await;
        new.write(&*store, 2).await;
        is_kept(&*other, &new).await;
    }
}

/// Checks that exactly the second generation exists, and that it can continue.
async fn is_whole(store: &Store, generations: &mut TwoGenerations) {
    is_kept_at_head(&**store, &generations.new).await;
    generations.new.write(&**store, 2).await;
    is_kept(&**store, &generations.new).await;
}

/// If a run is purged and started again during an append, the append writes nothing to the new generation. A repeat of that append writes nothing
/// either.
pub(crate) async fn an_append_spares_the_next_generation(stage: TestStage) {
    let appends: [fn(&Log) -> RunAppend; 2] = [
        |old| old.next(2),
        |old| RunAppend {
            expected: Some(old.records[8].header.head()),
            records: old.records[9..].to_vec(),
            ..old.next(1)
        },
    ];
    for (n, append) in appends.into_iter().enumerate() {
        let call = move |store: Store, old: &Log| {
            let append = append(old);
            async move { append_one(&*store, &append).await }
        };
        overtake(&stage, n, call, async |store, mut generations, answer| {
            if let Err(error) = answer {
                assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
                let there = [None, generations.old.head(), generations.new.head()].map(Some);
                assert!(there.contains(&Error::actual_head(&error)), "a head that there was: {error:?}");
            }
            is_whole(store, &mut generations).await;
        })
        .await;
    }
}

/// A purge that expects a head of the first generation removes nothing of the second.
pub(crate) async fn a_purge_that_expects_a_head_spares_the_next_generation(stage: TestStage) {
    let call = |store: Store, old: &Log| {
        let (run, head) = (old.key.clone(), old.head());
        async move { store.purge(&run, head).await }
    };
    overtake(&stage, 0, call, async |store, mut generations, answer: Result<Removed>| {
        if let Err(error) = answer {
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
        }
        is_whole(store, &mut generations).await;
    })
    .await;
}

/// A purge without an expected head removes the second generation completely or not at all.
pub(crate) async fn a_purge_takes_the_next_generation_whole_or_spares_it(stage: TestStage) {
    let call = |store: Store, old: &Log| {
        let run = old.key.clone();
        async move { store.purge(&run, None).await }
    };
    overtake(&stage, 0, call, async |store, mut generations, answer: Result<Removed>| {
        ok(answer, "purging a run that begins anew");
        if ok(store.head(&generations.new.key).await, "reading the head").is_none() {
            generations.new.records.clear();
            is_kept(&**store, &generations.new).await;
        }
        is_whole(store, &mut generations).await;
    })
    .await;
}

/// A prune during which the run starts again leaves the second generation unchanged. If the second generation has a base at the cut, the prune may
/// prune it there.
pub(crate) async fn a_prune_spares_the_next_generation(stage: TestStage) {
    for (n, (at, with_base)) in [(6, true), (8, true), (8, false)].into_iter().enumerate() {
        let call = move |store: Store, old: &Log| {
            let base = with_base.then(|| old.as_base(at));
            let (run, cut) = (old.key.clone(), PruneCut { at: Seq::new(at), base });
            async move { store.prune(&run, cut).await }
        };
        overtake(&stage, n, call, async |store, mut generations, answer: Result<Removed>| {
            if let Err(error) = answer {
                let kinds = [ErrorKind::NotFound, ErrorKind::Invalid];
                assert!(kinds.contains(&error.kind()), "{error:?}");
            }
            let head = ok(store.head(&generations.new.key).await, "reading the head")
                .expect("the second generation");
            if !with_base && head.first > Seq::new(0) {
                generations.new.note_pruned(at, None);
            }
            is_whole(store, &mut generations).await;
        })
        .await;
    }
}

/// A reseal never writes records of the first generation into the second.
pub(crate) async fn resealing_spares_the_next_generation(stage: TestStage) {
    if stage.store().resealing().is_none() {
        return;
    }
    let call = |store: Store, old: &Log| {
        let old = old.clone();
        let anew = |record: &Record| {
            let body = [record.body.as_ref(), b" "].concat();
            Record::seal(record.header.clone(), body.into()).expect("the bodies of tests are small")
        };
        let records: Vec<Record> = old.records.iter().map(anew).collect();
        async move {
            let resealing = store.resealing().expect("the same for the generation of the instance");
            resealing.reseal(&old.key, &records).await
        }
    };
    overtake(&stage, 0, call, async |store, mut generations, answer: Result<u64>| {
        if let Err(error) = answer {
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}");
        }
        is_whole(store, &mut generations).await;
    })
    .await;
}
