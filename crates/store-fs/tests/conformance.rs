//! The store passes the conformance suite.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ferrata_store::{CheckpointStore, Clock, RunKey, Seq, Timestamp};
use ferrata_store_conformance::{Damage, ModelTest, Space, StoreFactory, suite};
use ferrata_store_fs::{FsOptions, FsStore};
use ferrata_testing::ManualClock;
use tempfile::TempDir;

struct Folders;

/// The same with a journal from the first append on.
struct Journaled;

/// A separate folder for each test, and the clock of its instances.
struct Folder {
    directory: TempDir,
    clock: ManualClock,
    options: FsOptions,
}

#[async_trait]
impl StoreFactory for Folders {
    async fn fresh(&self) -> Box<dyn Space> {
        Box::new(Folder::new(FsOptions::default()))
    }
}

#[async_trait]
impl StoreFactory for Journaled {
    async fn fresh(&self) -> Box<dyn Space> {
        Box::new(Folder::new(FsOptions::default().with_journal_after(0)))
    }
}

impl Folder {
    fn new(options: FsOptions) -> Self {
        let directory = tempfile::tempdir().expect("a folder for the test");
        Self { directory, clock: ManualClock::default(), options }
    }

    fn log(&self, run: &RunKey) -> PathBuf {
        self.directory.path().join(format!("runs/{}/{}.jsonl", run.tenant, run.run))
    }
}

fn line_of(lines: &mut [String], seq: Seq) -> &mut String {
    let mark = format!("\"seq\":{seq},");
    lines.iter_mut().find(|line| line.contains(&mark)).expect("the record must exist")
}

/// The offset of a line's checksum.
fn inside(line: &str) -> usize {
    line.rfind(",\"sum\"").expect("a checksum")
}

#[async_trait]
impl Space for Folder {
    async fn open(&self) -> Arc<dyn CheckpointStore> {
        let store = FsStore::open_with(self.directory.path(), self.options.clone()).expect("a store");
        Arc::new(store.with_clock(Arc::new(self.clock.clone())))
    }

    async fn damage(&self, run: &RunKey, damage: Damage) -> bool {
        if let Damage::Swapped(other) = damage {
            let (log, other, aside) = (self.log(run), self.log(&other), self.directory.path().join("aside"));
            for (from, to) in [(&log, &aside), (&other, &log), (&aside, &other)] {
                std::fs::rename(from, to).expect("the run must have a log");
            }
            return true;
        }
        let log = std::fs::read_to_string(self.log(run)).expect("the run must have a log");
        let mut lines: Vec<String> = log.split_inclusive('\n').map(str::to_owned).collect();
        match damage {
            Damage::Body(seq) => {
                let line = line_of(&mut lines, seq);
                // The last byte of the body, or the one before its closing quote.
                let end = line[..inside(line)].trim_end_matches('"').len() - 1;
                let changed = if line[end..].starts_with('x') { "y" } else { "x" };
                line.replace_range(end..=end, changed);
            }
            Damage::Gone(seq) => line_of(&mut lines, seq).clear(),
            Damage::Torn => {
                let last = lines.last_mut().expect("a record");
                last.truncate(last.len() / 2);
            }
            Damage::NewerFormat(seq) => {
                let line = line_of(&mut lines, seq);
                let newer = line[..inside(line)].replacen("\"v\":1", "\"v\":2", 1);
                *line = format!("{newer},\"sum\":\"{:08x}\"}}\n", crc32c::crc32c(newer.as_bytes()));
            }
            _ => return false,
        }
        std::fs::write(self.log(run), lines.concat()).expect("the run must have a log");
        true
    }

    async fn advance_clock(&self, by: Duration) -> Option<Timestamp> {
        self.clock.advance(by);
        Some(self.clock.now())
    }
}

suite!(Folders, without: [
    notices = "no other process is told when a file changes",
    tail = "the length of the file is what says where a log ends",
    transactions = "the store has none",
]);

mod journaled {
    use super::Journaled;

    ferrata_store_conformance::suite!(Journaled, without: [
        notices = "no other process is told when a file changes",
        tail = "the length of the file is what says where a log ends",
        transactions = "the store has none",
    ]);
}

/// Compares more seeds with the model than the suite does for every store.
#[test]
fn many_seeds_are_answered_like_the_model() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for seed in 100..120 {
        runtime.block_on(ModelTest::default().with_seed(seed).with_instances(2).run(&Folders));
        runtime.block_on(ModelTest::default().with_seed(seed).with_instances(2).run(&Journaled));
    }
}
