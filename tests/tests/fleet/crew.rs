//! Processes that serve one workflow on one store, their common ledger, and its invariants.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata_core::ask::QuestionKind;
use ferrata_core::record::{RecordHeader, RecordKind, Resolution, RunStatus};
use ferrata_core::runtime::Runtime;
use ferrata_core::state::Patch;
use ferrata_core::store::{CheckpointStore, Page, RunHead, RunQuery};
use ferrata_core::{Clock, ErrorKind, Result, RunKey, SystemClock};
use ferrata_testing::every_header;
use ferrata_tests::Space;
use rustix::process::{Pid, Signal, kill_process};

/// Maximum time of any wait on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(300);

/// SplitMix64.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % most
    }

    /// A clock error of up to five minutes.
    pub(crate) fn skew(&mut self) -> i64 {
        i64::try_from(self.below(600_000)).unwrap() - 300_000
    }
}

/// One process.
pub(crate) struct Member {
    child: Child,
    /// The lines that it has printed.
    said: Arc<Mutex<Vec<String>>>,
}

impl Member {
    pub(crate) fn begin(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let (out, said) = (child.stdout.take().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let heard = Arc::clone(&said);
        std::thread::spawn(move || {
            BufReader::new(out)
                .lines()
                .map_while(std::result::Result::ok)
                .for_each(|line| heard.lock().unwrap().push(line));
        });
        Self { child, said }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to shut down, and waits until it has exited successfully.
    pub(crate) async fn leave(mut self) {
        // Before its first line, it may not handle signals yet.
        until("its first word", async || (!self.said().is_empty()).then_some(())).await;
        self.signal(Signal::TERM);
        let status = until("a process that was asked to end", async || self.child.try_wait().unwrap()).await;
        assert!(status.success(), "{status:?} after {:?}", self.said());
        until("its last word", async || self.said().iter().any(|line| line == "left").then_some(())).await;
    }

    pub(crate) fn said(&self) -> Vec<String> {
        self.said.lock().unwrap().clone()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // A failed test leaves no process. The kill fails if the process has exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Polls until `look` returns a value, and fails if that takes too long.
pub(crate) async fn until<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
    until_or(look, async || what.to_owned()).await
}

/// Like [`until`]. On failure, the message contains the text that `tell` returns.
pub(crate) async fn until_or<T>(
    mut look: impl AsyncFnMut() -> Option<T>,
    tell: impl AsyncFn() -> String,
) -> T {
    let clock = SystemClock::new();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        if clock.monotonic() >= LONG {
            panic!("{}: no result within {LONG:?}", tell().await);
        }
        clock.sleep(Duration::from_millis(10)).await;
    }
}

/// A line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Done {
    pub(crate) run: String,
    pub(crate) activation: String,
    key: String,
}

/// The recorded activations at some moment, and the length of the ledger then.
pub(crate) struct Moment {
    recorded: BTreeMap<String, BTreeSet<String>>,
    lines: usize,
}

/// The load that a store can handle. The server that stands in for S3 is written in Python, and a hundred times slower.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    /// Validity of a heartbeat.
    pub(crate) ttl: Duration,
    /// Number of runs that each process starts.
    pub(crate) runs: u32,
}

impl Size {
    pub(crate) fn of(space: &Space) -> Self {
        match space.url().starts_with("s3:") {
            true => Self { ttl: Duration::from_secs(6), runs: 1 },
            false => Self { ttl: Duration::from_secs(2), runs: 4 },
        }
    }
}

pub(crate) struct Crew<'a> {
    pub(crate) space: &'a Space,
    /// The URL of the store for the processes.
    pub(crate) url: String,
    pub(crate) ttl: Duration,
    /// The store, opened in this process.
    pub(crate) store: Arc<dyn CheckpointStore>,
    /// Resolves unknown outcomes, and drives no runs.
    operator: Runtime,
}

impl<'a> Crew<'a> {
    pub(crate) async fn new(space: &'a Space, ttl: Duration) -> Self {
        let store = space.open();
        let operator = Runtime::builder_with(Arc::clone(&store)).heartbeat_ttl(LONG).build().await.unwrap();
        Self { space, url: space.url().to_owned(), ttl, store, operator }
    }

    fn ledger(&self) -> PathBuf {
        self.space.folder().join("ledger")
    }

    /// Starts a process that starts `runs` runs.
    pub(crate) fn spawn(&self, url: &str, skew: i64, prefix: &str, runs: u32) -> Member {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fleet"));
        command.arg(url).arg(self.ledger()).arg(self.ttl.as_millis().to_string());
        command.arg(skew.to_string()).arg(prefix).arg(runs.to_string());
        command.envs(self.space.environment());
        Member::begin(&mut command)
    }

    pub(crate) fn done(&self) -> Vec<Done> {
        let text = std::fs::read_to_string(self.ledger()).unwrap_or_default();
        let parse = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            let [run, node, visit, key] = *words else { panic!("an incomplete line: {line}") };
            Done { run: run.to_owned(), activation: format!("{node} {visit}"), key: key.to_owned() }
        };
        text.lines().map(parse).collect()
    }

    pub(crate) async fn heads(&self) -> Vec<RunHead> {
        retried(async || self.store.runs(&RunQuery::default(), Page::first(Page::MAX)).await).await.items
    }

    pub(crate) async fn headers(&self, run: &RunKey) -> Vec<RecordHeader> {
        retried(async || every_header(&*self.store, run).await).await
    }

    /// Reads the recorded activations. Reads the ledger first, because an activation that is in it and not yet recorded may be repeated.
    pub(crate) async fn moment(&self) -> Moment {
        let mut recorded = BTreeMap::new();
        for head in self.heads().await {
            recorded.insert(head.run.run.to_string(), ended(&self.headers(&head.run).await));
        }
        Moment { recorded, lines: self.done().len() }
    }

    /// Resolves unknown outcomes of `External` effects from the ledger.
    async fn resolve(&self, run: &RunKey) -> Result<()> {
        for question in self.operator.questions(run).await? {
            assert_eq!(question.kind, QuestionKind::Doubt);
            let (node, visit) = (question.node.to_string(), question.visit.to_string());
            let (id, activation) = (run.run.to_string(), format!("{node} {visit}"));
            let is_done = self.done().iter().any(|done| done.run == id && done.activation == activation);
            let resolution = if is_done {
                Resolution::Supply(Patch::from_json(&format!(
                    r#"[{{"append":["path",["{node}@{visit}"]]}}]"#
                ))?)
            } else {
                Resolution::Retry
            };
            match self.operator.respond(run, &question.id, resolution).await {
                Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::WrongStatus) => {}
                answered => answered?,
            }
        }
        Ok(())
    }

    /// Waits until `runs` runs have completed, and resolves unknown outcomes in between.
    pub(crate) async fn complete(&self, runs: usize) {
        until("all runs", async || self.is_complete(runs).await.then_some(())).await;
    }

    /// Whether `runs` runs have completed. Resolves unknown outcomes.
    pub(crate) async fn is_complete(&self, runs: usize) -> bool {
        let heads = self.heads().await;
        for head in heads.iter().filter(|head| head.status == RunStatus::Interrupted) {
            if let Err(error) = self.resolve(&head.run).await {
                assert!(error.is_retryable(), "{error:?}");
            }
        }
        let failed: Vec<_> = heads.iter().filter(|head| head.status == RunStatus::Failed).collect();
        assert!(failed.is_empty(), "{failed:?}");
        heads.iter().filter(|head| head.status == RunStatus::Completed).count() >= runs
    }

    /// Checks the ledger and the logs of all runs. Recorded work did not run again after any of the moments. `External` work was not repeated without
    /// permission. Keys are stable. Each run had one owner at any time.
    pub(crate) async fn check(&self, moments: &[Moment]) {
        let (mut keys, mut paid) = (HashMap::new(), BTreeSet::new());
        for (at, done) in self.done().into_iter().enumerate() {
            let place = (done.run.clone(), done.activation.clone());
            for moment in moments.iter().filter(|moment| moment.lines <= at) {
                let recorded = moment.recorded.get(&done.run);
                let again = recorded.is_some_and(|recorded| recorded.contains(&done.activation));
                assert!(!again, "{place:?} was recorded and ran again");
            }
            let key = keys.entry(place.clone()).or_insert_with(|| done.key.clone());
            assert_eq!(*key, done.key, "{place:?} has another key");
            if done.activation.starts_with("pay ") {
                assert!(paid.insert(place.clone()), "{place:?} must not be repeated, but was");
            }
        }
        for head in self.heads().await {
            let headers = self.headers(&head.run).await;
            one_owner(&headers, &head.run);
            let each = [("read", 4), ("write", 4), ("pay", 4), ("each", 16), ("join", 4), ("last", 1)];
            let wanted: BTreeSet<_> = each
                .into_iter()
                .flat_map(|(node, visits)| (1..=visits).map(move |visit| format!("{node} {visit}")))
                .collect();
            assert_eq!(ended(&headers), wanted, "{}", head.run);
        }
    }
}

/// Calls until the store answers.
async fn retried<T>(mut call: impl AsyncFnMut() -> Result<T>) -> T {
    until("an answer of the store", async || match call().await {
        Ok(answer) => Some(answer),
        Err(error) => {
            assert!(error.is_retryable(), "{error:?}");
            None
        }
    })
    .await
}

/// The ended activations in these headers, as `node visit`.
fn ended(headers: &[RecordHeader]) -> BTreeSet<String> {
    let nodes = headers.iter().filter(|header| header.kind == RecordKind::Node);
    nodes.map(|header| format!("{} {}", header.node.as_ref().unwrap(), header.visit.unwrap())).collect()
}

/// Checks that a log has a single history, and that the owner of each part is the process that claimed it.
fn one_owner(headers: &[RecordHeader], run: &RunKey) {
    let (mut before, mut holder, mut epoch) = (None, None, None);
    for (at, header) in headers.iter().enumerate() {
        assert_eq!(
            (header.seq.get(), header.prev),
            (at as u64, before),
            "{run}: the log must have a single history"
        );
        match header.kind {
            RecordKind::Start | RecordKind::Claim => {
                assert!(Some(header.epoch) > epoch, "{run}: record {at} claims an old epoch");
                holder = header.owner;
            }
            _ => assert_eq!(Some(header.epoch), epoch, "{run}: record {at}"),
        }
        assert!(header.owner.is_none() || header.owner == holder, "{run}: record {at} has another owner");
        (before, epoch) = (Some(header.id), Some(header.epoch));
    }
}
