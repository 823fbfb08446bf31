//! Many concurrent writers: sharing, waiting, and errors.

use std::future::poll_fn;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake};
use std::time::Duration;

use ferrata_store::{
    At, CheckpointStore, Clock as _, ErrorKind, ExecutorId, HeaderRange, Page, PruneCut, RunQuery, Seq,
    SystemClock, within,
};
use ferrata_store_sqlite::{SqliteOptions, Synchronous};
use sqlx::Connection as _;
use tokio::task::JoinSet;

use crate::support::{append, copy, execute, frames, is_kept, is_refused, log, place};

/// A thousand concurrent runs, each of which waits for each of its records. Appends that wait during a commit share the next transaction, so 3,000
/// appends need some dozens of commits and syncs.
///
/// Guarantees: SQLITE-4.
#[tokio::test]
async fn a_thousand_runs_at_once_share_few_commits() {
    let place = place(SqliteOptions::default()).await;
    // A reader prevents the log from being overwritten, so that the test can read all of it.
    let mut reader = place.connection().await;
    execute(&mut reader, "BEGIN; SELECT * FROM ferrata_runs").await;
    let mut runs = JoinSet::new();
    for run in 0..1_000 {
        let store = place.store.clone();
        runs.spawn(async move {
            let mut log = log(&format!("r-{run}"));
            for _ in 0..3 {
                log.write(&store, 1).await;
            }
            log
        });
    }
    let logs = runs.join_all().await;
    assert_eq!(logs.len(), 1_000);
    for log in logs.iter().step_by(97) {
        is_kept(&place.store, log).await;
    }
    let kept = place.directory.path().join("log");
    copy(&place.log_path(), &kept);
    let (_, ends) = frames(&std::fs::read(kept).unwrap());
    let commits = ends.into_iter().filter(|is_end| *is_end).count();
    assert!((3..300).contains(&commits), "{commits} commits for 3,000 appends");
}

/// A batch with more entries than SQLite accepts values in one statement.
///
/// Guarantees: SQLITE-4.
#[tokio::test]
async fn batch_size_has_no_limit() {
    let place = place(SqliteOptions::default().with_synchronous(Synchronous::Normal)).await;
    let mut logs: Vec<_> = (0..11_000).map(|run| log(&format!("r-{run}"))).collect();
    let batch: Vec<_> = logs.iter().map(|log| log.next(1)).collect();
    let written = place.store.append(batch.clone()).await;
    assert_eq!(written.len(), batch.len());
    for (log, (entry, written)) in logs.iter_mut().zip(batch.iter().zip(written)) {
        log.note_append(entry);
        assert_eq!(Some(written.unwrap()), log.head());
    }
    for log in logs.iter().step_by(1_999) {
        is_kept(&place.store, log).await;
    }
}

/// A step that does not move its run between listings writes one page for its record and one for its head.
///
/// Guarantees: SQLITE-5.
#[tokio::test]
async fn step_writes_two_pages() {
    let place = place(SqliteOptions::default()).await;
    let mut log = log("r");
    log.write(&place.store, 1).await;
    let kept = place.directory.path().join("log");
    let count = || {
        copy(&place.log_path(), &kept);
        frames(&std::fs::read(&kept).unwrap()).1.len()
    };
    let before = count();
    for _ in 0..40 {
        log.write(&place.store, 1).await;
    }
    // A full page is split now and then, which writes a few more pages.
    let written = count() - before;
    assert!((80..100).contains(&written), "{written} pages for 40 steps");
}

/// While another program holds the lock, writes wait, and then fail as not begun. Reads continue.
///
/// Guarantees: SQLITE-2.
#[tokio::test]
async fn long_lock_makes_writes_unavailable() {
    let place = place(SqliteOptions::default().with_lock_wait(Duration::from_millis(30))).await;
    let mut log = log("r");
    log.write(&place.store, 2).await;
    let mut other = place.connection().await;
    execute(&mut other, "BEGIN IMMEDIATE; UPDATE ferrata_runs SET status = status").await;
    let entry = log.next(1);
    for _ in 0..2 {
        is_refused(&place.store, &log, ErrorKind::Unavailable).await;
    }
    let cut = PruneCut { at: Seq::new(1), base: Some(log.as_base(1)) };
    let executor = ExecutorId::from_uuid(*log.head().unwrap().id.as_uuid());
    for refused in [
        place.store.prune(&log.key, cut).await.map(drop),
        place.store.purge(&log.key, None).await.map(drop),
        place.store.heartbeat(&executor, Duration::from_secs(1)).await,
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    is_kept(&place.store, &log).await;
    place.open(SqliteOptions::default()).setup().await.unwrap();
    // A writer with a longer wait gets the lock.
    let patient = place.open(SqliteOptions::default());
    let waiting = append(&patient, entry.clone());
    let (written, ()) = tokio::join!(waiting, async {
        SystemClock::new().sleep(Duration::from_millis(20)).await;
        execute(&mut other, "COMMIT").await;
    });
    written.unwrap();
    log.note_append(&entry);
    is_kept(&place.store, &log).await;
    log.write(&place.store, 1).await;
}

/// A purge, a prune and a start that waited for another process's lock when their callers were dropped must not run later on a new generation of the
/// run.
///
/// Guarantees: SQLITE-6.
#[tokio::test]
async fn dropped_call_skips_next_generation() {
    let place = place(SqliteOptions::default().with_lock_wait(Duration::from_secs(120))).await;
    let (mut purged, mut pruned, started) = (log("purged"), log("pruned"), log("started"));
    for log in [&mut purged, &mut pruned] {
        log.write(&place.store, 5).await;
    }
    let mut other = place.connection().await;
    execute(&mut other, "BEGIN IMMEDIATE").await;
    // The fourth record of a log is a base.
    let cut = PruneCut { at: Seq::new(4), base: None };
    let mut purge = Box::pin(place.store.purge(&purged.key, None));
    let mut prune = Box::pin(place.store.prune(&pruned.key, cut));
    let mut start = Box::pin(place.store.append(vec![started.next(1)]));
    poll_fn(|cx| {
        let is_done = purge.as_mut().poll(cx).is_ready() || prune.as_mut().poll(cx).is_ready();
        assert!(!is_done && start.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    drop((purge, prune, start));
    execute(&mut other, "DELETE FROM ferrata_records; DELETE FROM ferrata_runs; DELETE FROM ferrata_heads")
        .await;
    let (mut again, mut anew) = (log("purged"), log("pruned"));
    for log in [&mut again, &mut anew] {
        let entry = log.next(5);
        place.store.append_in(&mut other, entry.clone()).await.unwrap();
        log.note_append(&entry);
    }
    execute(&mut other, "COMMIT").await;
    // The single writer executes this after all earlier work.
    log("last").write(&place.store, 1).await;
    for log in [&again, &anew] {
        is_kept(&place.store, log).await;
        let kept = place.store.headers(&log.key, HeaderRange::oldest(10)).await.unwrap();
        assert_eq!(kept.items, log.headers(), "the log of {}", log.key);
    }
    is_kept(&place.store, &started).await;
}

/// A busy writer releases the lock at times, and a waiting writer polls often enough to get it, so neither passes the other many times. SQLite's own
/// waits of up to 100 ms would not achieve this.
///
/// Guarantees: SQLITE-7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_writer_starves_no_other() {
    const TURNS: usize = 30;
    // A busy machine may schedule the two writers in any order. One good attempt is enough, and a starving writer has none.
    let mut all = Vec::new();
    while all.len() < 6 {
        let passed = passed_while_another_waits(TURNS).await;
        assert!(passed > TURNS, "the other writer was busy");
        if passed < TURNS * 100 {
            return;
        }
        all.push(passed);
    }
    panic!("{all:?} appends of a busy writer passed {TURNS} appends of another");
}

/// Returns the number of appends of a busy writer during `turns` appends of another instance.
async fn passed_while_another_waits(turns: usize) -> usize {
    let place = place(SqliteOptions::default()).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let mut busy = JoinSet::new();
    for run in 0..32 {
        let (store, is_over) = (place.store.clone(), Arc::clone(&is_over));
        busy.spawn(async move {
            let mut log = log(&format!("busy-{run}"));
            while !is_over.load(Ordering::Relaxed) {
                log.write(&store, 1).await;
            }
            log
        });
    }
    // Each of its appends meets a lock whose holder has the next transaction ready.
    let other = place.open(SqliteOptions::default().with_lock_wait(Duration::from_secs(120)));
    let mut log = log("patient");
    for _ in 0..turns {
        log.write(&other, 1).await;
    }
    is_over.store(true, Ordering::Relaxed);
    let mut passed = 0;
    for log in busy.join_all().await {
        is_kept(&other, &log).await;
        passed += log.records.len();
    }
    is_kept(&place.store, &log).await;
    passed
}

/// A caller commits a step itself if no other write is active. A call that is dropped at any moment leaves its step done or undone and the writer
/// usable, so a repeat finds the records or writes them.
///
/// Guarantees: SQLITE-6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_caller_leaves_step_whole_or_absent() {
    let place = place(SqliteOptions::default().with_synchronous(Synchronous::Normal)).await;
    let mut log = log("r");
    log.write(&place.store, 1).await;
    let mut dropped = 0;
    for round in 0..300 {
        let entry = log.next(1 + usize::from(round % 7 == 0));
        let mut looks = round;
        let mut first = Box::pin(append(&place.store, entry.clone()));
        let is_dropped = poll_fn(|cx| match first.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(false),
            Poll::Pending if looks == 0 => Poll::Ready(true),
            Poll::Pending => {
                looks -= 1;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        });
        dropped += usize::from(is_dropped.await);
        drop(first);
        append(&place.store, entry.clone()).await.unwrap();
        log.note_append(&entry);
    }
    assert!(dropped > 0, "no call was dropped");
    is_kept(&place.store, &log).await;
    is_kept(&place.open(SqliteOptions::default()), &log).await;
}

/// A caller that started its step and then waits for something else, as in a `select!`, blocks no other caller.
///
/// Guarantees: SQLITE-6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unpolled_writer_blocks_no_other() {
    let place = place(SqliteOptions::default().with_synchronous(Synchronous::Normal)).await;
    let (mut first, mut second) = (log("r-1"), log("r-2"));
    first.write(&place.store, 1).await;
    second.write(&place.store, 1).await;
    // A step may be executed at once or be passed to the writer. In both cases it blocks no other step.
    for _ in 0..20 {
        let (left, entry) = (first.next(1), second.next(1));
        let mut waits = Box::pin(append(&place.store, left.clone()));
        let is_done = poll_fn(|cx| Poll::Ready(waits.as_mut().poll(cx).is_ready())).await;
        let others = append(&place.store, entry.clone());
        let written = within(&SystemClock::new(), Duration::from_secs(20), others).await;
        written.expect("the caller that is not polled blocks the others").unwrap();
        second.note_append(&entry);
        if !is_done {
            waits.await.unwrap();
        }
        first.note_append(&left);
        first.write(&place.store, 1).await;
    }
    for log in [&first, &second] {
        is_kept(&place.store, log).await;
    }
}

/// A caller that started a read and is not polled blocks no other reader. The same holds for one that waits for its turn to read.
///
/// Guarantees: SQLITE-8.
#[tokio::test]
async fn unpolled_reader_blocks_no_other() {
    let place = place(SqliteOptions::default().with_readers(NonZeroUsize::MIN)).await;
    let mut log = log("r");
    log.write(&place.store, 2).await;
    let mut left: Vec<_> = (0..3).map(|_| Box::pin(place.store.load(&log.key, At::Latest))).collect();
    for reads in &mut left {
        poll_fn(|cx| Poll::Ready(reads.as_mut().poll(cx).is_ready())).await;
    }
    let other = within(&SystemClock::new(), Duration::from_secs(20), place.store.head(&log.key)).await;
    let head = other.expect("the readers that are not polled block the others").unwrap();
    assert_eq!(head.map(|head| head.head()), log.head());
    for reads in left {
        assert_eq!(reads.await.unwrap(), Some(log.loaded(1)));
    }
}

/// Blocks this thread on a future, without using its runtime.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Thread(std::thread::Thread);
    impl Wake for Thread {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Thread(std::thread::current())).into();
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return done;
        }
        std::thread::park();
    }
}

/// A caller that blocks the only thread of its runtime, and one within a runtime that is not driven.
///
/// Guarantees: SQLITE-8.
#[test]
fn read_completes_on_stalled_runtime() {
    let (place, log) = block_on(async {
        let place = place(SqliteOptions::default()).await;
        let mut log = log("r");
        log.write(&place.store, 2).await;
        (place, log)
    });
    for is_driven in [true, false] {
        let (store, key) = (place.store.clone(), log.key.clone());
        let (said, heard) = std::sync::mpsc::channel();
        // The read would never complete.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let read = || block_on(store.head(&key)).unwrap();
            let head = match is_driven {
                true => runtime.block_on(async { read() }),
                false => {
                    let _within = runtime.enter();
                    read()
                }
            };
            said.send(head).unwrap();
        });
        let head = heard.recv_timeout(Duration::from_secs(20));
        let head = head.unwrap_or_else(|_| panic!("the read does not complete, driven: {is_driven}"));
        assert_eq!(head.map(|head| head.head()), log.head());
    }
}

/// A heartbeat does not queue behind other writes, so a busy process stays alive.
///
/// Guarantees: SQLITE-7.
#[tokio::test]
async fn heartbeat_passes_waiting_writes() {
    let place = place(SqliteOptions::default()).await;
    let logs: Vec<_> = (0..2_000).map(|run| log(&format!("r-{run}"))).collect();
    for written in place.store.append(logs.iter().map(|log| log.next(1)).collect()).await {
        written.unwrap();
    }
    // Each purge is a separate transaction, and is in the writer's queue after its first poll.
    let mut purges: Vec<_> = logs.iter().map(|log| place.store.purge(&log.key, None)).collect();
    poll_fn(|context| {
        assert!(purges.iter_mut().all(|purge| purge.as_mut().poll(context).is_pending()));
        Poll::Ready(())
    })
    .await;
    let executor = ExecutorId::from_uuid(*logs[0].next(1).records[0].header.id.as_uuid());
    place.store.heartbeat(&executor, Duration::from_secs(60)).await.unwrap();
    let left = place.store.runs(&RunQuery::default(), Page::first(1)).await.unwrap().items.len();
    assert!(left > 0, "the heartbeat waited for the whole queue");
    for purge in purges {
        purge.await.unwrap();
    }
}

/// Overlapping readers prevent each commit's checkpoint from emptying the log, so it would grow forever. Once the log is long, a checkpoint waits for
/// the readers.
///
/// Guarantees: SQLITE-8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_readers_do_not_grow_wal_unboundedly() {
    let place = place(SqliteOptions::default()).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let (mut first, mut second) = (place.connection().await, place.connection().await);
    let mut readers = JoinSet::new();
    readers.spawn({
        let is_over = Arc::clone(&is_over);
        async move {
            let begin = "BEGIN; SELECT count(*) FROM ferrata_runs";
            execute(&mut first, begin).await;
            while !is_over.load(Ordering::Relaxed) {
                execute(&mut second, begin).await;
                SystemClock::new().sleep(Duration::from_millis(2)).await;
                execute(&mut first, "COMMIT").await;
                std::mem::swap(&mut first, &mut second);
            }
            first.close().await.unwrap();
            second.close().await.unwrap();
        }
    });
    let mut log = log("r");
    let mut longest = 0;
    for _ in 0..60 {
        let entry = log.next_body(vec![b'x'; 1 << 20]);
        append(&place.store, entry.clone()).await.unwrap();
        log.note_append(&entry);
        longest = longest.max(std::fs::metadata(place.log_path()).unwrap().len());
    }
    is_over.store(true, Ordering::Relaxed);
    readers.join_all().await;
    // This is retried after each 4 MiB. A busy machine may prevent some of these checkpoints.
    assert!(longest < 42 << 20, "the log of 60 MiB of records grew to {longest} bytes");
    is_kept(&place.store, &log).await;
}
