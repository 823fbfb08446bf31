//! Transactions: the store keeps the rows of a node and its record together, or neither, whatever the node does in its transaction.

use std::collections::BTreeSet;
use std::error::Error as StdError;
use std::fmt;

use ferrata_store::{CheckpointStore, ErrorKind, Transactions, check_append};

use crate::cases::dropped::drop_after;
use crate::stage::{Log, TestStage, expect_refusal, is_kept_at_head, ok};
use crate::table::NestedEnd::{Commit, Drop, Forget, RollBack};
use crate::table::TransactionStep::{self as Step, Insert, Nested};
use crate::table::{StatementError, StatementErrors, StepResult, TransactionTable};

/// The expected end of a story. A story is the sequence of steps that a node takes in its transaction.
#[derive(Clone, Copy)]
enum StoryEnd {
    /// The run's commit succeeds. These rows and the record exist.
    Committed(&'static [u32]),
    /// The run's commit is refused. Neither rows nor the record exist.
    Refused,
    /// One of the two ends, depending on the database.
    Either(&'static [u32]),
    /// The run's commit is refused, and the record does not exist. Rows that the node committed with its own statement may exist.
    Ended,
    /// The run's commit cannot reach the database. Neither rows nor the record exist, and the node may run again.
    Lost,
}

/// The steps that a node takes in its transaction, and the expected end.
struct TransactionStory(&'static [Step], StoryEnd);

/// The maximum number of open transactions that the suite needs at the same time.
const MAX_OPEN: usize = 64;

/// The maximum number of polls of a commit before it is dropped.
const POLLS: usize = 12;

/// The first row number of the stories. Each story has its own numbers, so that no two stories insert the same row.
const ROWS: u32 = 100;

/// The state that the stories of a property share.
struct StoryScene {
    stage: TestStage,
    table: Box<dyn TransactionTable>,
    /// The committed rows of the table.
    kept: BTreeSet<u32>,
    count: u32,
}

impl StoryScene {
    async fn new(stage: TestStage) -> Self {
        let table = stage.table().await;
        let kept = table.rows().await;
        assert_eq!(kept, BTreeSet::from([0]), "the table of a fresh space holds the number 0");
        Self { stage, table, kept, count: 0 }
    }

    /// Runs a story on its own run.
    async fn run_story(&mut self, TransactionStory(steps, ending): &TransactionStory) {
        self.count += 1;
        let from = self.count * ROWS;
        let store = self.stage.store();
        let transactions = transactions(&*store);
        let mut log = self.stage.written(&format!("r-{}", self.count), 1).await;
        let mut transaction = ok(transactions.begin(&log.key).await, "beginning a transaction");
        let mut ended_itself = false;
        for step in *steps {
            match self.table.take_step(&mut transaction, shifted(*step, from)).await {
                StepResult::Unsupported => return,
                result => {
                    ended_itself |=
                        matches!(step, Step::Commit | Step::RollBack) && result == StepResult::Done
                }
            }
        }
        let entry = log.next(2);
        let committed = transactions.commit(transaction, entry.clone()).await;
        let found = self.table.rows().await;
        let what = format!("the commit after {steps:?}");
        let (rows, own) = match (ending, &committed) {
            (StoryEnd::Committed(rows) | StoryEnd::Either(rows), Ok(_)) => (*rows, false),
            (StoryEnd::Committed(_), Err(error)) => panic!("{what} must succeed, and failed: {error:?}"),
            (StoryEnd::Refused | StoryEnd::Either(_) | StoryEnd::Lost, Err(_)) => (&[][..], false),
            (StoryEnd::Ended, Err(_)) => (&[][..], ended_itself),
            (StoryEnd::Refused | StoryEnd::Ended | StoryEnd::Lost, Ok(_)) => {
                panic!("{what} must be refused, and succeeded; the table holds {found:?}")
            }
        };
        match committed {
            Ok(head) => {
                log.note_append(&entry);
                assert_eq!(Some(head), log.head(), "{what} returns the new head");
            }
            Err(_) => {
                // `Invalid` means that the node has failed. `Unavailable` means that it may run again.
                let kinds = [ErrorKind::Invalid, ErrorKind::Unavailable];
                let kinds = match ending {
                    StoryEnd::Either(_) => &kinds[..],
                    StoryEnd::Lost => &kinds[1..],
                    _ => &kinds[..1],
                };
                expect_refusal(committed, kinds, &what);
            }
        }
        if own {
            // The database received the node's own commit, which no store can undo.
            self.kept.extend(found.iter().filter(|row| (from..from + ROWS).contains(row)));
        }
        self.kept.extend(rows.iter().map(|row| from + row));
        assert_eq!(found, self.kept, "the rows after {what}");
        is_kept_at_head(&*store, &log).await;
        // This append succeeds only if the transaction has released its locks.
        log.write(&*store, 1).await;
        is_kept_at_head(&*store, &log).await;
    }

    async fn run_stories(&mut self, stories: &[TransactionStory]) {
        for story in stories {
            self.run_story(story).await;
        }
    }
}

fn transactions(store: &dyn CheckpointStore) -> &dyn Transactions {
    store.transactions().expect(
        "the store has no transactions; leave the group `transactions` out of the suite with the reason",
    )
}

fn shifted(step: Step, by: u32) -> Step {
    match step {
        Insert(row) => Insert(row + by),
        Step::InsertFull(row) => Step::InsertFull(row + by),
        Nested(row, end) => Nested(row + by, end),
        step => step,
    }
}

/// A node's rows and its record become visible with the commit, and not earlier.
pub(crate) async fn commit_keeps_rows_and_record(stage: TestStage) {
    let mut scene = StoryScene::new(stage).await;
    let store = scene.stage.store();
    let mut log = scene.stage.written("r", 1).await;
    for row in [1, 2] {
        let mut transaction = ok(transactions(&*store).begin(&log.key).await, "beginning a transaction");
        let done = scene.table.take_step(&mut transaction, Insert(row)).await;
        assert_eq!(done, StepResult::Done, "a row is inserted");
        assert_eq!(scene.table.rows().await, scene.kept, "no row is seen before the commit");
        let entry = log.next(3);
        let head = ok(transactions(&*store).commit(transaction, entry.clone()).await, "committing");
        log.note_append(&entry);
        assert_eq!(Some(head), log.head(), "the commit returns the new head");
        scene.kept.insert(row);
        assert_eq!(scene.table.rows().await, scene.kept, "the rows are there after the commit");
        is_kept_at_head(&*store, &log).await;
    }
    scene.run_stories(&[TransactionStory(&[Insert(1), Insert(2)], StoryEnd::Committed(&[1, 2]))]).await;
}

/// A dropped transaction is rolled back and releases its locks and its connection.
///
/// Guarantees: ONCE-1.
pub(crate) async fn dropped_transaction_leaves_no_rows(stage: TestStage) {
    let scene = StoryScene::new(stage).await;
    let store = scene.stage.store();
    let mut log = scene.stage.written("r", 1).await;
    let mut transaction = ok(transactions(&*store).begin(&log.key).await, "beginning a transaction");
    scene.table.take_step(&mut transaction, Insert(1)).await;
    drop(transaction);
    log.write(&*store, 1).await;
    is_kept_at_head(&*store, &log).await;
    assert_eq!(scene.table.rows().await, scene.kept, "a dropped transaction leaves no row");
}

/// If another writer was first, the commit fails with a conflict, and the rows are rolled back.
///
/// Guarantees: ONCE-1.
pub(crate) async fn conflict_at_commit_leaves_no_rows(stage: TestStage) {
    let scene = StoryScene::new(stage).await;
    let store = scene.stage.store();
    let mut log: Log = scene.stage.written("r", 1).await;
    let behind = log.next(1);
    log.write(&*store, 1).await;
    let mut transaction = ok(transactions(&*store).begin(&log.key).await, "beginning a transaction");
    scene.table.take_step(&mut transaction, Insert(1)).await;
    let committed = transactions(&*store).commit(transaction, behind).await;
    let refused = expect_refusal(committed, &[ErrorKind::Conflict], "a commit behind the head");
    assert_eq!(refused.actual_head(), Some(log.head()), "the conflict names the head: {refused:?}");
    assert_eq!(scene.table.rows().await, scene.kept, "a refused commit leaves no row");
    is_kept_at_head(&*store, &log).await;
    log.write(&*store, 1).await;
}

/// If the store does not accept the record, the commit fails, and the rows are rolled back.
pub(crate) async fn refused_record_leaves_no_rows(stage: TestStage) {
    let mut scene = StoryScene::new(stage).await;
    let store = scene.stage.store();
    let log = scene.stage.written("r", 2).await;
    let mut unsealed = log.next(1);
    unsealed.records[0].header.body_crc ^= 1;
    for (entry, what) in
        [(log.next(0), "a commit without records"), (unsealed, "a commit of a changed record")]
    {
        let mut transaction = ok(transactions(&*store).begin(&log.key).await, "beginning a transaction");
        scene.table.take_step(&mut transaction, Insert(1)).await;
        let kind = check_append(&entry).expect_err("the suite itself breaks a rule here").kind();
        let committed = transactions(&*store).commit(transaction, entry).await;
        expect_refusal(committed, &[ErrorKind::Invalid, kind], what);
        assert_eq!(scene.table.rows().await, scene.kept, "{what} leaves no row");
        is_kept_at_head(&*store, &log).await;
    }
    scene.run_story(&TransactionStory(&[Insert(1)], StoryEnd::Committed(&[1]))).await;
}

/// If the caller of a commit gets no answer, the commit took effect or did not. The log shows which, and the rows agree with the log. The next
/// attempt of the node expects the same head, so the second of the two commits fails with a conflict.
pub(crate) async fn unanswered_commit_keeps_rows_and_record(stage: TestStage) {
    let mut scene = StoryScene::new(stage).await;
    let store = scene.stage.store();
    for polls in 0..POLLS {
        let row = 2 * u32::try_from(polls).expect("few") + 1;
        let mut log = scene.stage.written(&format!("r-{polls}"), 1).await;
        let mut transaction = ok(transactions(&*store).begin(&log.key).await, "beginning a transaction");
        scene.table.take_step(&mut transaction, Insert(row)).await;
        let (first, second) = (log.next(2), log.next(1));
        drop_after(polls, transactions(&*store).commit(transaction, first.clone())).await;
        let mut again = ok(transactions(&*store).begin(&log.key).await, "beginning another transaction");
        scene.table.take_step(&mut again, Insert(row + 1)).await;
        let (entry, row) = match transactions(&*store).commit(again, second.clone()).await {
            Ok(_) => (second, row + 1),
            refused => {
                expect_refusal(refused, &[ErrorKind::Conflict], "a commit after one that was not answered");
                (first, row)
            }
        };
        log.note_append(&entry);
        is_kept_at_head(&*store, &log).await;
        scene.kept.insert(row);
        assert_eq!(scene.table.rows().await, scene.kept, "rows after a commit polled {polls} times");
    }
}

/// If no connection or no lock is free, a transaction cannot begin, and the error says that it may begin later.
pub(crate) async fn begin_without_room_is_unavailable(stage: TestStage) {
    let mut scene = StoryScene::new(stage).await;
    let store = scene.stage.store();
    let log = scene.stage.written("r", 1).await;
    let mut open = Vec::new();
    while open.len() < MAX_OPEN {
        match transactions(&*store).begin(&log.key).await {
            Ok(transaction) => open.push(transaction),
            refused => {
                let refused = expect_refusal(
                    refused.map(drop),
                    &[ErrorKind::Unavailable],
                    "a transaction that cannot begin",
                );
                assert!(refused.is_retryable(), "a transaction that cannot begin is retried: {refused:?}");
                break;
            }
        }
    }
    assert!(!open.is_empty(), "the first transaction begins");
    drop(open);
    is_kept_at_head(&*store, &log).await;
    scene.run_story(&TransactionStory(&[Insert(1)], StoryEnd::Committed(&[1]))).await;
}

/// If the connection is lost in the transaction, nothing is stored, and the node may run again.
pub(crate) async fn lost_connection_leaves_no_rows(stage: TestStage) {
    let stories = [
        TransactionStory(&[Insert(1), Step::LoseConnection], StoryEnd::Lost),
        TransactionStory(&[Insert(1), Step::LoseConnection, Insert(2)], StoryEnd::Lost),
        TransactionStory(&[Step::LoseConnection], StoryEnd::Lost),
    ];
    StoryScene::new(stage).await.run_stories(&stories).await;
}

/// The store recognizes the errors of statements after which the same work may succeed in another transaction.
pub(crate) async fn transient_errors_give_way(stage: TestStage) {
    let scene = StoryScene::new(stage).await;
    let store = scene.stage.store();
    let StatementErrors { transient, permanent } = scene.table.statement_errors().await;
    assert!(!transient.is_empty() && !permanent.is_empty(), "the table has errors of both kinds");
    let errors = transient.into_iter().map(|error| (error, true));
    for (error, is_transient) in errors.chain(permanent.into_iter().map(|error| (error, false))) {
        let what = error.to_string();
        assert_eq!(transactions(&*store).is_transient(&*error), is_transient, "gave way: {what}");
        let wrapped = WrappedError(error);
        assert_eq!(
            transactions(&*store).is_transient(&wrapped),
            is_transient,
            "gave way, as a cause: {what}"
        );
    }
}

/// An error of a node that has the error of a statement as its cause.
#[derive(Debug)]
struct WrappedError(StatementError);

impl fmt::Display for WrappedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the node failed")
    }
}

impl StdError for WrappedError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.0)
    }
}

/// Savepoints, and the driver's transactions within the transaction, commit and roll back as requested.
pub(crate) async fn nested_transactions_end_as_asked(stage: TestStage) {
    let stories = [
        TransactionStory(
            &[Insert(1), Step::Savepoint, Insert(2), Step::Release],
            StoryEnd::Committed(&[1, 2]),
        ),
        TransactionStory(
            &[Insert(1), Step::Savepoint, Insert(2), Step::RollBackTo, Step::Release, Insert(3)],
            StoryEnd::Committed(&[1, 3]),
        ),
        TransactionStory(&[Insert(1), Nested(2, Commit), Insert(3)], StoryEnd::Committed(&[1, 2, 3])),
        TransactionStory(&[Insert(1), Nested(2, RollBack), Insert(3)], StoryEnd::Committed(&[1, 3])),
        TransactionStory(&[Insert(1), Nested(2, Drop), Insert(3)], StoryEnd::Committed(&[1, 3])),
        TransactionStory(&[Insert(1), Nested(2, Drop)], StoryEnd::Committed(&[1])),
    ];
    StoryScene::new(stage).await.run_stories(&stories).await;
}

/// If the database refuses a statement and the node ignores the error, only that statement or the whole transaction has no effect.
///
/// Guarantees: ONCE-8.
pub(crate) async fn refused_statement_leaves_all_or_nothing(stage: TestStage) {
    use Step::{InsertRefused, Release, RollBackTo, Savepoint};
    let stories = [
        TransactionStory(&[Insert(1), InsertRefused], StoryEnd::Either(&[1])),
        TransactionStory(&[Insert(1), InsertRefused, Insert(2)], StoryEnd::Either(&[1, 2])),
        TransactionStory(
            &[Insert(1), Savepoint, InsertRefused, RollBackTo, Release, Insert(2)],
            StoryEnd::Committed(&[1, 2]),
        ),
        TransactionStory(&[Insert(1), Savepoint, InsertRefused, Insert(2)], StoryEnd::Either(&[1, 2])),
    ];
    StoryScene::new(stage).await.run_stories(&stories).await;
}

/// The database has rolled back the transaction by itself, and the node continues as if it had not: in savepoints, or in a transaction that the
/// node began with a statement or through the driver. The run's commit must not use such a transaction.
///
/// Guarantees: ONCE-8.
pub(crate) async fn database_rollback_refuses_commit(stage: TestStage) {
    use Step::{Begin, BeginImmediate, LoseTransaction, Release, RollBackTo, Savepoint};
    let stories = [
        TransactionStory(&[Insert(1), LoseTransaction], StoryEnd::Refused),
        TransactionStory(&[Insert(1), LoseTransaction, Insert(2)], StoryEnd::Refused),
        TransactionStory(&[Insert(1), LoseTransaction, Savepoint, Insert(2)], StoryEnd::Refused),
        TransactionStory(&[Insert(1), LoseTransaction, Savepoint, Insert(2), Release], StoryEnd::Refused),
        TransactionStory(&[Insert(1), LoseTransaction, Begin, Insert(2)], StoryEnd::Refused),
        TransactionStory(&[Insert(1), LoseTransaction, BeginImmediate, Insert(2)], StoryEnd::Refused),
        TransactionStory(
            &[Insert(1), Savepoint, LoseTransaction, RollBackTo, Release, Savepoint, Insert(2), Release],
            StoryEnd::Refused,
        ),
        TransactionStory(
            &[Insert(1), Savepoint, LoseTransaction, RollBackTo, Release, Savepoint, Insert(2)],
            StoryEnd::Refused,
        ),
        TransactionStory(&[Insert(1), LoseTransaction, Nested(2, Commit)], StoryEnd::Refused),
        TransactionStory(&[Insert(1), LoseTransaction, Nested(2, RollBack)], StoryEnd::Refused),
        TransactionStory(&[Insert(1), LoseTransaction, Nested(2, Drop)], StoryEnd::Refused),
        TransactionStory(&[Insert(1), LoseTransaction, Nested(2, Forget)], StoryEnd::Refused),
        TransactionStory(
            &[Nested(1, Commit), LoseTransaction, Nested(2, Drop), Insert(3)],
            StoryEnd::Refused,
        ),
    ];
    StoryScene::new(stage).await.run_stories(&stories).await;
}

/// If a full database refuses a row of the node, either all other rows exist with the record, or nothing exists.
///
/// Guarantees: ONCE-8.
pub(crate) async fn full_database_leaves_all_or_nothing(stage: TestStage) {
    use Step::{InsertFull, Release, RollBackTo, Savepoint};
    let stories = [
        TransactionStory(&[Insert(1), InsertFull(2)], StoryEnd::Either(&[1])),
        TransactionStory(&[Insert(1), InsertFull(2), Insert(3)], StoryEnd::Either(&[1, 3])),
        TransactionStory(
            &[Insert(1), Savepoint, InsertFull(2), RollBackTo, Release, Insert(3)],
            StoryEnd::Either(&[1, 3]),
        ),
        TransactionStory(
            &[Insert(1), Savepoint, InsertFull(2), RollBackTo, Release, Savepoint, Insert(3), Release],
            StoryEnd::Either(&[1, 3]),
        ),
    ];
    StoryScene::new(stage).await.run_stories(&stories).await;
}

/// If a node ends the transaction with a statement, its record is stored neither in that transaction nor in one that the node begins afterward.
///
/// Guarantees: ONCE-8.
pub(crate) async fn ended_transaction_refuses_commit(stage: TestStage) {
    use Step::{Begin, BeginImmediate, Commit, RollBack, Savepoint};
    let stories = [
        TransactionStory(&[Insert(1), RollBack], StoryEnd::Ended),
        TransactionStory(&[Insert(1), RollBack, Insert(2)], StoryEnd::Ended),
        TransactionStory(&[Insert(1), RollBack, Begin, Insert(2)], StoryEnd::Ended),
        TransactionStory(&[Insert(1), RollBack, BeginImmediate, Insert(2)], StoryEnd::Ended),
        TransactionStory(&[Insert(1), RollBack, Begin, Savepoint, Insert(2)], StoryEnd::Ended),
        TransactionStory(&[Insert(1), Commit], StoryEnd::Ended),
        TransactionStory(&[Insert(1), Commit, Insert(2)], StoryEnd::Ended),
        TransactionStory(&[Insert(1), Commit, Begin, Insert(2)], StoryEnd::Ended),
        TransactionStory(&[Insert(1), Commit, BeginImmediate, Insert(2)], StoryEnd::Ended),
    ];
    StoryScene::new(stage).await.run_stories(&stories).await;
}

/// If the node leaves a transaction of the driver open within the transaction, the commit is refused: the driver would end only the inner
/// transaction.
///
/// Guarantees: ONCE-8.
pub(crate) async fn open_nested_transaction_refuses_commit(stage: TestStage) {
    let stories = [
        TransactionStory(&[Insert(1), Nested(2, Forget)], StoryEnd::Refused),
        TransactionStory(&[Insert(1), Nested(2, Forget), Insert(3)], StoryEnd::Refused),
        TransactionStory(&[Insert(1), Step::Savepoint, Insert(2)], StoryEnd::Either(&[1, 2])),
    ];
    StoryScene::new(stage).await.run_stories(&stories).await;
}

/// If a constraint refuses rows at the commit, the node has failed, and the store is not damaged.
///
/// Guarantees: ONCE-8.
pub(crate) async fn deferred_constraint_refuses_commit(stage: TestStage) {
    let stories = [
        TransactionStory(&[Insert(1), Step::ViolateAtCommit], StoryEnd::Refused),
        TransactionStory(&[Nested(1, Commit), Step::ViolateAtCommit, Insert(2)], StoryEnd::Refused),
        TransactionStory(
            &[Insert(1), Step::Savepoint, Step::ViolateAtCommit, Step::RollBackTo, Step::Release],
            StoryEnd::Committed(&[1]),
        ),
    ];
    StoryScene::new(stage).await.run_stories(&stories).await;
}
