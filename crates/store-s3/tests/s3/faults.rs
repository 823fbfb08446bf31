//! A fault at every request of every write: the reported result is true, and the repeated call completes.

use std::future::Future;
use std::time::Duration;

use ferrata_store::{
    At, CheckpointStore as _, Error, ErrorKind, HeaderRange, PruneCut, Record, Removed, RunStatus, Seq,
};
use ferrata_store_s3::S3Store;

use crate::author::{append_to, is_kept, log_of, next_in, written};
use crate::memory::{Asked, Fault, Memory};
use crate::raw::Raw;
use ferrata_testing::Log;

/// A server with a store that has read it, and another store that is unused.
struct Scene {
    memory: Memory,
    store: S3Store,
}

impl Scene {
    async fn new() -> Self {
        let memory = Memory::start().await;
        let store = Raw::on(&memory).store();
        Self { memory, store }
    }

    fn another(&self) -> S3Store {
        Raw::on(&self.memory).store()
    }

    /// Injects a fault at the request with this number from now on, or at all requests from it on.
    fn fault_at(&self, number: u64, fault: &Fault, is_once: bool) {
        let (from, fault) = (self.memory.requests() + number, fault.clone());
        self.memory.plan(move |asked| {
            let is_hit = if is_once { asked.number == from } else { asked.number >= from };
            is_hit.then(|| fault.clone())
        });
    }
}

/// The faults of a request.
fn faults() -> Vec<Fault> {
    vec![
        Fault::Refuse(500, "InternalError"),
        Fault::Refuse(503, "SlowDown"),
        Fault::Refuse(400, "RequestTimeout"),
        Fault::HangUp,
        Fault::LoseReply,
        Fault::DoneBut(500, "InternalError"),
        Fault::DoneBut(504, "GatewayTimeout"),
    ]
}

/// The faults of a server that is down, or goes down during a reply.
fn ends() -> Vec<Fault> {
    vec![Fault::Refuse(503, "SlowDown"), Fault::HangUp, Fault::LoseReply]
}

/// Counts the requests of a call without a fault.
async fn count<T, F: Future<Output = T>>(scene: &Scene, call: impl FnOnce() -> F) -> u64 {
    let before = scene.memory.requests();
    call().await;
    scene.memory.requests() - before
}

/// Number of concurrent cases. Each has its own server and clients.
const CASES: usize = 8;

/// Returns every third fault, by turns, so that neighboring requests and rounds together cover all. With `FERRATA_FAULTS=all`, returns all.
fn in_turn(faults: &[Fault], turn: usize) -> Vec<Fault> {
    if std::env::var_os("FERRATA_FAULTS").is_some_and(|which| which == "all") {
        return faults.to_vec();
    }
    faults.iter().skip(turn % 3).step_by(3).cloned().collect()
}

/// Runs a case for each request of a call and each fault of this round. `case` gets the number and the fault.
async fn at_each<F>(requests: u64, round: usize, faults: Vec<Fault>, case: impl Fn(u64, Fault) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut cases = tokio::task::JoinSet::new();
    let ended = |done: Option<Result<(), tokio::task::JoinError>>| {
        if let Some(Err(failed)) = done {
            std::panic::resume_unwind(failed.into_panic());
        }
    };
    for (turn, number) in (round..).zip(0..requests) {
        for fault in in_turn(&faults, turn) {
            if cases.len() >= CASES {
                ended(cases.join_next().await);
            }
            cases.spawn(case(number, fault));
        }
    }
    while !cases.is_empty() {
        ended(cases.join_next().await);
    }
}

/// The appends: by a store that knows the head or does not, that start a run, or that change its status.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Start,
    Known,
    Unknown,
    OtherStatus,
    /// The same by a store that read the head so long ago that it reads it again after its write.
    AfterANap,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Start, Self::Known, Self::Unknown, Self::OtherStatus, Self::AfterANap];

    /// Prepares a scene. Returns the log before the append, the append, and the store that makes it.
    async fn prepare(self) -> (Scene, Log, ferrata_store::RunAppend, S3Store) {
        let scene = Scene::new().await;
        let author = match self {
            Self::Start => log_of("r", 1),
            _ => written(&scene.store, "r", &[1, 2]).await,
        };
        let is_end = matches!(self, Self::OtherStatus | Self::AfterANap);
        let status = if is_end { RunStatus::Completed } else { RunStatus::InProgress };
        if matches!(self, Self::AfterANap) {
            scene.memory.advance(Duration::from_secs(11 * 60));
        }
        let append = next_in(&author, 2, status);
        let store = match self {
            Self::Unknown => scene.another(),
            _ => scene.store.clone(),
        };
        (scene, author, append, store)
    }
}

/// Compares the result of an append with the stored log, and checks that a repetition completes it.
async fn is_true(
    scene: &Scene,
    mut author: Log,
    append: &ferrata_store::RunAppend,
    said: Result<ferrata_store::HeadRef, Error>,
    what: &str,
) {
    let fresh = scene.another();
    let head = fresh.head(&author.key).await.unwrap().map(|head| head.head());
    let last = append.records.last().map(|record| record.header.head());
    match said {
        Ok(said) => assert_eq!((Some(said), head), (last, last), "{what}: it was acknowledged"),
        Err(error) => match error.kind() {
            ErrorKind::Unavailable => {
                assert_eq!(head, author.head(), "{what}: nothing was written: {error:?}")
            }
            ErrorKind::Indeterminate => {
                assert!(
                    head == author.head() || head == last,
                    "{what}: an append must be complete or absent"
                );
            }
            _ => panic!("{what}: the error must not blame the caller: {error:?}"),
        },
    }
    append_to(&fresh, append).await.unwrap_or_else(|e| panic!("{what}: the repetition: {e:?}"));
    author.note_append(append);
    is_kept(&author, &fresh, what).await;
    let append = author.next(1);
    append_to(&scene.store, &append).await.unwrap_or_else(|e| panic!("{what}: the next append: {e:?}"));
    author.note_append(&append);
    is_kept(&author, &scene.store, what).await;
}

/// After one fault at one request, the store recovers by itself, and writes nothing twice.
///
/// Guarantees: S3-1.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_fault_during_append_is_overcome() {
    for (round, kind) in Kind::ALL.into_iter().enumerate() {
        let (scene, _, append, store) = kind.prepare().await;
        let requests = count(&scene, || append_to(&store, &append)).await;
        at_each(requests, round, faults(), |number, fault| async move {
            let what = format!("{kind:?}, {fault:?} at request {number}");
            let (scene, author, append, store) = kind.prepare().await;
            scene.fault_at(number, &fault, true);
            let said = append_to(&store, &append).await;
            scene.memory.no_plan();
            assert!(said.is_ok(), "{what}: the store must recover from one fault: {said:?}");
            is_true(&scene, author, &append, said, &what).await;
        })
        .await;
    }
}

/// If a server fails from some request on, the store returns an error with the correct outcome.
///
/// Guarantees: S3-1.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn server_outage_during_append_yields_true_results() {
    for (round, kind) in Kind::ALL.into_iter().enumerate() {
        let (scene, _, append, store) = kind.prepare().await;
        let requests = count(&scene, || append_to(&store, &append)).await;
        at_each(requests, round, ends(), |number, fault| async move {
            let what = format!("{kind:?}, {fault:?} from request {number} on");
            let (scene, author, append, store) = kind.prepare().await;
            scene.fault_at(number, &fault, false);
            let said = append_to(&store, &append).await;
            scene.memory.no_plan();
            is_true(&scene, author, &append, said, &what).await;
        })
        .await;
    }
}

/// Status 409 of a conditional write says nothing about the key, so the store reads the log and repeats the write.
///
/// Guarantees: S3-1.
#[tokio::test]
async fn an_undecided_write_is_made_again() {
    for done in [Fault::Refuse(409, "ConditionalRequestConflict"), Fault::DoneBut(409, "OperationAborted")] {
        let scene = Scene::new().await;
        let mut author = written(&scene.store, "r", &[1]).await;
        let mut left = 2;
        let fault = done.clone();
        scene.memory.plan(move |asked| {
            (asked.is_conditional && left > 0).then(|| {
                left -= 1;
                fault.clone()
            })
        });
        author.write(&scene.store, 2).await;
        scene.memory.no_plan();
        is_kept(&author, &scene.another(), &format!("{done:?}")).await;
    }
}

/// Status 412 means that the key exists. The store's own write may have created it, if a proxy repeated the request.
///
/// Guarantees: S3-2.
#[tokio::test]
async fn our_own_success_is_no_conflict() {
    let scene = Scene::new().await;
    let mut author = written(&scene.store, "r", &[1]).await;
    scene.memory.plan(|asked| asked.is_conditional.then_some(Fault::DoneBut(412, "PreconditionFailed")));
    author.write(&scene.store, 1).await;
    let start = log_of("new", 2);
    append_to(&scene.store, &start.next(3)).await.unwrap();
    scene.memory.no_plan();
    is_kept(&author, &scene.store, "after 412 for a write that was done").await;
}

/// Two listings hours later, after all stale entries are removed, still contain the run.
async fn is_listed_for_good(scene: &Scene, author: &Log, what: &str) {
    for _ in 0..2 {
        scene.memory.advance(Duration::from_secs(60 * 60));
        is_kept(author, &scene.another(), what).await;
    }
}

/// Executes the next conditional write, and loses its reply.
fn lose_first_reply(scene: &Scene) {
    let mut is_first = true;
    scene.memory.plan(move |asked| {
        (asked.is_conditional && std::mem::take(&mut is_first)).then_some(Fault::LoseReply)
    });
}

/// The reply of an append that ends a run is lost, and another writer continues before the store checks.
///
/// Guarantees: S3-2.
#[tokio::test]
async fn lost_append_reply_is_settled_after_later_append() {
    let scene = Scene::new().await;
    let mut author = written(&scene.store, "r", &[1, 2]).await;
    let end = next_in(&author, 1, RunStatus::Completed);
    lose_first_reply(&scene);
    let look = scene.memory.hold_next(|asked| asked.path.contains("list-type"));
    let meanwhile = async {
        look.arrived().await;
        author.note_append(&end);
        let signal = next_in(&author, 1, RunStatus::Completed);
        append_to(&scene.another(), &signal).await.unwrap();
        author.note_append(&signal);
        look.open();
    };
    let (said, ()) = tokio::join!(append_to(&scene.store, &end), meanwhile);
    scene.memory.no_plan();
    assert_eq!(said.unwrap(), end.records[0].header.head(), "the record must be in the log");
    is_listed_for_good(&scene, &author, "after a lost answer").await;
}

/// An append that ends a run is dropped after it was written, and another writer continues. Then the caller repeats it.
///
/// Guarantees: S3-2.
#[tokio::test]
async fn repeated_dropped_append_is_settled_after_later_append() {
    let scene = Scene::new().await;
    let mut author = written(&scene.store, "r", &[1, 2]).await;
    let end = next_in(&author, 1, RunStatus::Completed);
    scene.memory.plan(|asked| asked.is_conditional.then_some(Fault::LoseReply));
    let look = scene.memory.hold_next(|asked| asked.path.contains("list-type"));
    tokio::select! {
        biased;
        _ = append_to(&scene.store, &end) => panic!("its read must be delayed"),
        () = look.arrived() => {}
    }
    scene.memory.no_plan();
    author.note_append(&end);
    let signal = next_in(&author, 1, RunStatus::Completed);
    append_to(&scene.another(), &signal).await.unwrap();
    author.note_append(&signal);
    assert_eq!(append_to(&scene.store, &end).await.unwrap(), end.records[0].header.head());
    is_listed_for_good(&scene, &author, "after the same append again").await;
}

/// The reply of an append is lost, another writer continues, and its records are pruned. So the outcome stays unknown.
///
/// Guarantees: S3-3.
#[tokio::test]
async fn pruned_append_with_lost_reply_is_indeterminate() {
    let scene = Scene::new().await;
    let mut author = written(&scene.store, "r", &[1, 2]).await;
    let append = author.next(1);
    lose_first_reply(&scene);
    let look = scene.memory.hold_next(|asked| asked.path.contains("list-type"));
    let meanwhile = async {
        look.arrived().await;
        author.note_append(&append);
        let other = scene.another();
        author.write(&other, 1).await;
        let base = Some(author.as_base(4));
        other.prune(&author.key, PruneCut { at: Seq::new(4), base: base.clone() }).await.unwrap();
        author.note_pruned(4, base);
        look.open();
    };
    let (said, ()) = tokio::join!(append_to(&scene.store, &append), meanwhile);
    scene.memory.no_plan();
    let error = said.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error:?}");
    is_kept(&author, &scene.store, "after a prune").await;
}

/// A server that never decides: the call ends with an error that says that nothing was written.
///
/// Guarantees: S3-1.
#[tokio::test]
async fn a_server_that_never_decides_is_given_up() {
    let scene = Scene::new().await;
    let author = written(&scene.store, "r", &[1]).await;
    scene
        .memory
        .plan(|asked| asked.is_conditional.then_some(Fault::Refuse(409, "ConditionalRequestConflict")));
    let before = scene.memory.requests();
    let error = append_to(&scene.store, &author.next(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(scene.memory.requests() - before < 30, "the number of requests must be limited");
    scene.memory.no_plan();
    is_kept(&author, &scene.store, "after giving up").await;
}

/// A reader needs two requests for the long head of an object, and a rekey makes the head longer in between. The object must not count as damaged.
#[tokio::test]
async fn long_head_rewritten_during_read_is_not_damage() {
    let scene = Scene::new().await;
    let mut author = written(&scene.store, "r", &[1, 200]).await;
    for record in &mut author.records[1..] {
        let body = [&record.body[..], &[b' '; 10_000]].concat();
        *record = Record::seal(record.header.clone(), body.into()).unwrap();
    }
    let of_newest = |asked: &Asked| asked.method == "GET" && asked.path.contains("/fffffffffffffffe");
    let look = scene.memory.hold_next(of_newest);
    let meanwhile = async {
        look.arrived().await;
        let again = scene.memory.hold_next(of_newest);
        look.open();
        again.arrived().await;
        let given = &author.records[1..];
        let replaced = scene.store.resealing().unwrap().reseal(&author.key, given).await.unwrap();
        assert_eq!(replaced, 200);
        again.open();
    };
    let reader = scene.another();
    let (head, ()) = tokio::join!(reader.head(&author.key), meanwhile);
    assert_eq!(head.unwrap(), Some(author.run_head()));
    is_kept(&author, &reader, "after the rekey").await;
}

/// A prune that fails at any request leaves a complete log, before or after the cut. A repetition completes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn interrupted_prune_can_be_repeated() {
    // Logs with a base at the cut, a cut in the middle of an object, a given base, and a cut within the first object.
    let logs = [
        (&[1, 1, 1, 1, 1, 1][..], 4, true),
        (&[2, 5, 3], 6, false),
        (&[2, 5, 3], 4, true),
        (&[6, 2], 3, false),
    ];
    for (round, (counts, at, is_base)) in logs.into_iter().enumerate() {
        let prepare = move || async move {
            let scene = Scene::new().await;
            let author = written(&scene.store, "r", counts).await;
            let base = (!is_base).then(|| author.as_base(at));
            (scene, author, PruneCut { at: Seq::new(at), base })
        };
        let (scene, author, cut) = prepare().await;
        let requests = count(&scene, || scene.store.prune(&author.key, cut)).await;
        for is_once in [true, false] {
            let faults = if is_once { faults() } else { ends() };
            at_each(requests, round, faults, |number, fault| async move {
                let what = format!("{counts:?} cut at {at}, {fault:?} at request {number}, once: {is_once}");
                let (scene, mut author, cut) = prepare().await;
                scene.fault_at(number, &fault, is_once);
                let said = scene.store.prune(&author.key, cut.clone()).await;
                scene.memory.no_plan();
                assert!(!is_once || said.is_ok(), "{what}: the store must recover from one fault: {said:?}");
                let fresh = scene.another();
                let found = fresh.head(&author.key).await.unwrap().unwrap();
                assert!(
                    [0, at].contains(&found.first.get()),
                    "{what}: the log must be that before or after the cut"
                );
                for seq in found.first.get()..=found.seq.get() {
                    let loaded = fresh.load(&author.key, At::Seq(Seq::new(seq))).await;
                    assert!(loaded.is_ok(), "{what}: the log must be complete: {loaded:?}");
                }
                let history = fresh.headers(&author.key, HeaderRange::newest(100)).await;
                let kept = history.map(|page| page.items.len() as u64).unwrap_or_default();
                assert_eq!(
                    kept,
                    found.seq.get() - found.first.get() + 1,
                    "{what}: the history must be complete"
                );
                fresh
                    .prune(&author.key, cut.clone())
                    .await
                    .unwrap_or_else(|e| panic!("{what}: the repetition: {e:?}"));
                author.note_pruned(at, cut.base);
                is_kept(&author, &fresh, &what).await;
                author.write(&scene.store, 1).await;
                is_kept(&author, &scene.store, &what).await;
            })
            .await;
        }
    }
}

/// A purge that fails at any request leaves the run or no run. A repetition completes it, and the id can be used again.
///
/// Guarantees: S3-16.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn interrupted_purge_can_be_repeated() {
    let prepare = || async {
        let scene = Scene::new().await;
        let author = written(&scene.store, "r", &[1, 2, 1]).await;
        (scene, author)
    };
    let (scene, author) = prepare().await;
    let requests = count(&scene, || scene.store.purge(&author.key, None)).await;
    for is_once in [true, false] {
        at_each(requests, 0, if is_once { faults() } else { ends() }, |number, fault| async move {
            let what = format!("{fault:?} at request {number}, once: {is_once}");
            let (scene, mut author) = prepare().await;
            scene.fault_at(number, &fault, is_once);
            let said = scene.store.purge(&author.key, None).await;
            scene.memory.no_plan();
            assert!(!is_once || said.is_ok(), "{what}: the store must recover from one fault: {said:?}");
            let fresh = scene.another();
            if fresh.head(&author.key).await.unwrap().is_some() {
                assert!(said.is_err(), "{what}: the run exists, but the purge succeeded");
                is_kept(&author, &fresh, &what).await;
            }
            let late = author.next(1);
            fresh.purge(&author.key, None).await.unwrap_or_else(|e| panic!("{what}: the repetition: {e:?}"));
            assert_eq!(
                fresh.purge(&author.key, None).await.unwrap(),
                Removed::default(),
                "{what}: nothing may remain"
            );
            let refused = append_to(&scene.store, &late).await.unwrap_err();
            assert_eq!(refused.actual_head(), Some(None), "{what}: a late append: {refused:?}");
            author.records.clear();
            is_kept(&author, &fresh, &what).await;
            author.write(&scene.store, 2).await;
            is_kept(&author, &fresh, &what).await;
        })
        .await;
    }
}
