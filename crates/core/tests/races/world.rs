//! One race: two processes on a run, concurrent callers, and the final checks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use ferrata_core::ask::{Answer, QuestionKind};
use ferrata_core::graph::Graph;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Outcome, RunHandle, Runtime};
use ferrata_core::state::Context;
use ferrata_core::store::{CheckpointStore, MemoryStore};
use ferrata_core::{Clock, Error, ErrorKind, RunKey};
use ferrata_testing::{FaultOdds, FaultPlan, FaultStore, LedgerStore, ManualClock, SeqIds};
use tokio::task::JoinSet;

use super::dropped::polled;
use super::graphs::{self, Mail, SHARED, Seat, Witness};
use super::hands::Deed;
use super::store::Yielding;
use crate::support::dice::Dice;
use crate::support::letters::TOPIC;
use crate::support::log::Log;

/// Number of yields before the clock advances.
const PATIENCE: u32 = 48;

/// Number of idle periods, after all callers are done, until the run counts as endless.
const ROUNDS: u32 = 40;

/// Number of rounds until every outbox message must be delivered.
const DELIVERING: u32 = 1_000;

/// The kind of race.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Race {
    /// A store without faults.
    Calm,
    /// Replies of the store are lost, and appends fail.
    Lossy,
}

/// Results of races.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) log: Vec<String>,
    /// Number of acknowledged and refused operations, by kind.
    deeds: BTreeMap<Deed, (u32, u32)>,
    ends: BTreeMap<String, u32>,
    fenced: u32,
    dropped: u32,
    /// Number of received outbox messages.
    letters: u64,
    /// Number of booked rows.
    booked: usize,
}

impl Report {
    pub(crate) fn add(&mut self, other: &Self) {
        for (deed, (done, refused)) in &other.deeds {
            let all = self.deeds.entry(*deed).or_default();
            *all = (all.0 + done, all.1 + refused);
        }
        for (end, times) in &other.ends {
            *self.ends.entry(end.clone()).or_default() += times;
        }
        self.fenced += other.fenced;
        self.dropped += other.dropped;
        self.letters += other.letters;
        self.booked += other.booked;
    }

    /// Checks that every operation succeeded and was refused somewhere, and that runs ended in every way.
    pub(crate) fn check_coverage(&self, race: Race) {
        let Self { deeds, ends, fenced, dropped, letters, booked, .. } = self;
        println!(
            "{race:?}: {deeds:?}, {ends:?}, fenced {fenced}, dropped {dropped}, letters {letters}, booked {booked}"
        );
        assert!(*dropped > 0, "no caller dropped its request");
        assert!(*letters > 100, "too few outbox messages were received");
        assert!(*booked > 200, "too few rows were booked");
        for deed in Deed::ALL {
            let (done, refused) = deeds.get(&deed).copied().unwrap_or_default();
            assert!(
                done > 0 && refused > 0,
                "{deed:?} succeeded {done} times and was refused {refused} times"
            );
        }
        assert!(ends.len() >= 2 && *fenced > 0, "ends: {ends:?}, fenced: {fenced}");
    }
}

/// An operation of a caller, and its result.
struct Told {
    deed: Deed,
    by: String,
    /// None if the request was dropped before its reply.
    result: Option<Result<(), Error>>,
}

pub(crate) struct World {
    pub(crate) graph: Graph<Context>,
    pub(crate) dice: Arc<Dice>,
    store: MemoryStore,
    /// The store of the runs, with the rows.
    ledger: LedgerStore,
    clock: Arc<ManualClock>,
    witness: Arc<Witness>,
    race: Race,
    seed: u64,
    told: Mutex<Vec<Told>>,
    /// Results of the handles of resumed runs.
    waits: Mutex<JoinSet<Result<Outcome<Context>, Error>>>,
}

impl World {
    pub(crate) fn key() -> RunKey {
        RunKey::try_from("r").unwrap()
    }

    fn new(race: Race, seed: u64) -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = MemoryStore::with_clock(Arc::clone(&clock) as _);
        let dice = Arc::new(Dice::new(seed));
        let witness = Witness {
            store: store.clone(),
            dice: Arc::clone(&dice),
            failures: Mutex::new(dice.below(3)),
            sends: dice.below(4) == 0,
            received: Mutex::default(),
            began: Mutex::default(),
            broken: Mutex::default(),
        };
        let graph = dice.pick(&graphs::all()).clone();
        Self {
            graph,
            dice,
            ledger: LedgerStore::new().with_runs(store.clone()),
            store,
            clock,
            witness: Arc::new(witness),
            race,
            seed,
            told: Mutex::default(),
            waits: Mutex::default(),
        }
    }

    async fn process(&self, number: u64) -> Runtime {
        let plan = match self.race {
            Race::Calm => FaultPlan::new(),
            Race::Lossy => {
                let odds = FaultOdds::default().with_before(0.04).with_after(0.12);
                FaultPlan::new().with_chance(self.seed * 2 + number, odds)
            }
        };
        let inner = FaultStore::new(self.ledger.clone(), plan);
        let store = Yielding { inner, dice: Arc::clone(&self.dice), tells: self.dice.below(2) == 0 };
        let seat = Arc::new(Seat { witness: Arc::clone(&self.witness), executor: OnceLock::new() });
        let runtime = Runtime::builder(store)
            // The clock jumps while calls are in progress.
            .store_timeout(Duration::MAX)
            .clock(Arc::clone(&self.clock) as _)
            .ids(Arc::new(SeqIds::new(number + 1)))
            .resource(Arc::clone(&seat))
            .sink(TOPIC, Mail(Arc::clone(&self.witness)))
            .store_retries(2, Duration::from_millis(1))
            .build()
            .await
            .unwrap();
        seat.executor.set(runtime.executor()).unwrap();
        runtime
    }

    /// Waits for a resumed run in the background.
    pub(crate) fn follow(&self, run: RunHandle<Context>) -> Result<(), Error> {
        if run.is_driven_here() {
            self.waits.lock().unwrap().spawn(async move { run.wait().await });
        }
        Ok(())
    }

    /// Runs one race to its end and checks the invariants.
    pub(crate) async fn race(race: Race, seed: u64) -> Report {
        let world = Arc::new(Self::new(race, seed));
        let mut time = JoinSet::new();
        let clock = Arc::clone(&world.clock);
        time.spawn(async move {
            loop {
                for _ in 0..PATIENCE {
                    tokio::task::yield_now().await;
                }
                clock.advance(Duration::from_millis(500));
            }
        });
        let processes = [Arc::new(world.process(0).await), Arc::new(world.process(1).await)];
        world.begin(&processes[0]).await;
        let mut hands = JoinSet::new();
        for number in 0..3 + world.dice.below(10) {
            let (world, deed) = (Arc::clone(&world), Deed::draw(&world));
            let runtime = Arc::clone(world.dice.pick(&processes));
            hands.spawn(async move {
                world.dice.give_way(160).await;
                let by = format!("{deed:?}-{number}");
                let act = deed.act(&world, &runtime, &by);
                // Some callers drop the request before its reply.
                let result = match world.dice.below(5) {
                    0 => {
                        let polls = usize::try_from(world.dice.below(40)).unwrap();
                        polled(Box::pin(act), polls).await
                    }
                    _ => Some(act.await),
                };
                world.told.lock().unwrap().push(Told { deed, by, result });
            });
        }
        while let Some(done) = hands.join_next().await {
            done.unwrap();
        }
        world.end(&processes).await;
        world.deliver(&processes[0]).await;
        world.check(&processes[1]).await
    }

    /// Starts the run, and repeats the start while the store fails.
    async fn begin(&self, runtime: &Runtime) {
        loop {
            match runtime.start(&self.graph, Context::new()).id("r").await {
                Ok(run) => return self.follow(run).unwrap(),
                Err(error) => assert!(error.is_retryable() && self.race == Race::Lossy, "{error:?}"),
            }
        }
    }

    /// Brings the run to its end after all callers are done.
    async fn end(&self, processes: &[Arc<Runtime>]) {
        let run = Self::key();
        for _ in 0..ROUNDS {
            let runtime = self.dice.pick(processes);
            let result = self.end_once(runtime).await;
            match result {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    // The run's former driver may still be stopping, or a dropped operation may still be in progress.
                    let passes = [ErrorKind::Conflict, ErrorKind::Fenced, ErrorKind::WrongStatus];
                    let is_loss = self.race == Race::Lossy && error.is_retryable();
                    assert!(is_loss || passes.contains(&error.kind()), "{error:?}");
                    self.dice.give_way(40).await;
                }
            }
        }
        Log::read(&self.store, &run).await.show().iter().for_each(|line| println!("{line}"));
        panic!("the run does not end; it is {:?}", self.store.head(&run).await.unwrap().unwrap().status);
    }

    /// Lets a later process deliver all outbox messages.
    async fn deliver(&self, operator: &Runtime) {
        let run = Self::key();
        let later = self.process(2).await;
        later.serve(&self.graph).unwrap();
        for _ in 0..DELIVERING {
            if !self.store.head(&run).await.unwrap().unwrap().is_delivering() {
                return;
            }
            // Refused if no message was set aside.
            let _ = operator.retry_outbox(&run, &[]).await;
            self.dice.give_way(200).await;
        }
        Log::read(&self.store, &run).await.show().iter().for_each(|line| println!("{line}"));
        panic!("an outbox message is not delivered");
    }

    async fn end_once(&self, runtime: &Runtime) -> Result<bool, Error> {
        let run = Self::key();
        match self.store.head(&run).await?.unwrap().status {
            RunStatus::Completed | RunStatus::Cancelled => return Ok(true),
            RunStatus::Failed => runtime.retry(&run).await?,
            _ => {}
        }
        match runtime.resume(&self.graph, "r").take_over().await?.wait().await? {
            Outcome::Completed(_) | Outcome::Cancelled { .. } => return Ok(true),
            Outcome::Interrupted(questions) => {
                for question in questions {
                    let answer = match question.kind {
                        QuestionKind::Asked => Answer::accept(7)?,
                        _ => Answer::accept(())?,
                    };
                    match runtime.respond(&run, &question.id, answer).await {
                        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                        answered => answered?,
                    }
                }
            }
            Outcome::AwaitingInput => {
                runtime.send(&run, format!("late {}", self.dice.below(u64::MAX))).await?
            }
            Outcome::Paused { .. } => runtime.unpause(&run).await?,
            Outcome::Sleeping { until } => self.clock.advance(until.since(self.clock.now())),
            _ => {}
        }
        Ok(false)
    }

    async fn check(&self, runtime: &Runtime) -> Report {
        let run = Self::key();
        let log = Log::read(&self.store, &run).await;
        if std::env::var_os("FERRATA_RACE_SEED").is_some() {
            log.show().iter().for_each(|line| println!("{line}"));
            let told = self.told.lock().unwrap();
            told.iter().for_each(|told| println!("{}: {:?}", told.by, told.result));
        }
        let mut report = Report { log: log.show(), ..Report::default() };
        log.check_chain();
        assert_eq!(log.broken, Vec::<String>::new());
        assert_eq!(*self.witness.broken.lock().unwrap(), Vec::<String>::new());
        self.check_told(&log, &mut report);
        self.check_waits(&mut report).await;
        self.check_end(&log, runtime, &mut report).await;
        self.check_rows(&log, &mut report).await;
        report
    }

    /// The rows must be exactly those of the recorded nodes and steps, each once.
    async fn check_rows(&self, log: &Log, report: &mut Report) {
        let books = |at: &&String| ["left@", "right@", "last@"].iter().any(|node| at.starts_with(node));
        let debits = |note: &&String| note.ends_with(":debit") || note.ends_with(":credit");
        let of_nodes: BTreeSet<_> = log.done.iter().filter(books).filter(|_| self.books()).collect();
        let of_steps: BTreeSet<_> = log.noted.iter().filter(debits).collect();
        let recorded: BTreeSet<_> = of_nodes.union(&of_steps).copied().cloned().collect();
        let began = self.witness.began.lock().unwrap().clone();
        let possible =
            began.keys().flat_map(|at| [at.clone(), format!("{at}:debit"), format!("{at}:credit")]);
        for row in possible {
            let expected = i64::from(recorded.contains(&row));
            assert_eq!(self.ledger.row(&row).await, expected, "number of bookings of {row}");
        }
        assert_eq!(self.ledger.row(SHARED).await, recorded.len() as i64, "{recorded:?}");
        report.booked += recorded.len();
    }

    /// Whether nodes of this graph book rows.
    fn books(&self) -> bool {
        self.graph.name().as_str() == "booking"
    }

    /// Checks that acknowledged operations are recorded once, refused ones are not recorded, and each refusal has a reason.
    fn check_told(&self, log: &Log, report: &mut Report) {
        for Told { deed, by, result } in &*self.told.lock().unwrap() {
            let times = log.hands.get(by).copied().unwrap_or_default();
            let counts = report.deeds.entry(*deed).or_default();
            let Some(result) = result else {
                report.dropped += 1;
                assert!(times <= 1, "{by} was dropped and is recorded {times} times");
                continue;
            };
            match result {
                Ok(()) => {
                    counts.0 += 1;
                    assert!(
                        !deed.is_signed() || times == 1,
                        "{by} was acknowledged and is recorded {times} times"
                    );
                }
                Err(error) if self.race == Race::Lossy && error.kind() == ErrorKind::Indeterminate => {
                    assert!(times <= 1, "{by} has an unknown outcome and is recorded {times} times");
                }
                Err(error) => {
                    counts.1 += 1;
                    assert_eq!(times, 0, "{by} was refused but is recorded: {error:?}");
                    let is_loss = self.race == Race::Lossy && error.kind() == ErrorKind::Unavailable;
                    assert!(is_loss || deed.refusals().contains(&error.kind()), "{by}: {error:?}");
                }
            }
        }
    }

    /// Checks that every driver of the run learned its end, or that another process owns it.
    async fn check_waits(&self, report: &mut Report) {
        let mut waits = std::mem::take(&mut *self.waits.lock().unwrap());
        while let Some(ended) = waits.join_next().await {
            match ended.unwrap() {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Fenced => report.fenced += 1,
                Err(error) => assert!(self.race == Race::Lossy && error.is_retryable(), "{error:?}"),
            }
        }
    }

    /// Checks that an ended run has no owner and no questions, and that its state equals its log.
    async fn check_end(&self, log: &Log, runtime: &Runtime, report: &mut Report) {
        let run = Self::key();
        let head = self.store.head(&run).await.unwrap().unwrap();
        assert_eq!(head.owner, None, "{:?}", head.status);
        let questions = loop {
            match runtime.questions(&run).await {
                Err(error) if self.race == Race::Lossy && error.is_retryable() => {}
                questions => break questions.unwrap(),
            }
        };
        assert_eq!(questions, [], "{:?}", head.status);
        *report.ends.entry(head.status.to_string()).or_default() += 1;
        let ended = loop {
            match runtime.start(&self.graph, Context::new()).id("r").await {
                Err(error) if self.race == Race::Lossy && error.is_retryable() => {}
                run => break run.unwrap().wait().await.unwrap(),
            }
        };
        let state = match ended {
            Outcome::Completed(state) => state,
            Outcome::Cancelled { state, .. } => {
                assert!(log.is_cancelled, "the run was not cancelled by the test");
                state
            }
            outcome => panic!("{outcome:?}"),
        };
        let texts = |channel: &str| state.get::<Vec<String>>(channel).unwrap().unwrap_or_default();
        let is_traced = |at: &&String| !at.starts_with("ok@");
        assert_eq!(texts("trace"), log.trace.iter().filter(is_traced).cloned().collect::<Vec<_>>(), "trace");
        assert_eq!(texts("edits"), log.edits, "edits");
        let taken: Vec<_> = log.taken.iter().map(|message| message.as_str().unwrap().to_owned()).collect();
        assert!(taken.starts_with(&texts("said")), "sent {:?}, received {taken:?}", texts("said"));
        let order: Vec<_> = log.messages.iter().filter(|message| log.taken.contains(message)).collect();
        assert_eq!(order, log.taken.iter().collect::<Vec<_>>(), "messages must be received in order");
        let began = self.witness.began.lock().unwrap();
        for at in log.trace.iter().filter(is_traced) {
            assert!(began.contains_key(at), "{at} is recorded but never ran");
        }
        let node = |at: &String| -> [String; 2] { ["begins", "ends"].map(|what| format!("{at} {what}")) };
        let sent: Vec<_> =
            log.trace.iter().filter(is_traced).filter(|_| self.witness.sends).flat_map(node).collect();
        assert_eq!(log.letters.sent, sent, "outbox messages of nodes that completed");
        let received = self.witness.received.lock().unwrap();
        assert_eq!(received.missing(&run, &log.life, &log.letters), None, "lost outbox messages");
        report.letters += received.count();
        // The origin that a node recorded must agree with the log, too.
        for came in texts("got").iter().filter(|got| got.contains('<')) {
            let (at, from) = came.split_once('<').unwrap();
            let place = log.trace.iter().position(|done| done == at).unwrap();
            let before = &log.trace[place - 1];
            assert!(
                before.starts_with(&format!("{from}@")),
                "{at} names {from} as its origin, but before it ran {before}"
            );
        }
    }
}
