//! Random programs, and the function that runs one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata_core::graph::RetryPolicy;
use ferrata_core::node::NodeError;
use ferrata_flow::{Flow, FlowContext, FlowError, FlowErrorKind, flow};
use ferrata_testing::LedgerDatabase;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;

use crate::rng::Rng;

/// A part of a program.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// A step, which fails so many times first.
    Step {
        name: String,
        failures: u32,
        tries: u32,
    },
    /// A step that takes a time, and may be dropped by its timeout.
    Slow {
        name: String,
        seconds: u32,
        limit: u32,
    },
    Sleep {
        name: String,
        seconds: u32,
    },
    Value {
        name: String,
    },
    Ask {
        name: String,
    },
    /// Takes a message, or waits for one at most so long.
    Receive {
        name: String,
        seconds: u32,
    },
    /// Registers a compensation.
    Undo {
        name: String,
    },
    Yield,
    /// Ends the function with an error.
    Fail,
    Sequence(Vec<Part>),
    Join(Vec<Part>),
    /// The first two race, and the loser is dropped.
    Select(Box<Part>, Box<Part>),
    /// All of them, in the order in which they end.
    Unordered(Vec<Part>),
    Child {
        name: String,
        fails: bool,
    },
    /// A step that may have its effect once only, and says that nothing was done so many times first.
    External {
        name: String,
        failures: u32,
        tries: u32,
    },
    /// A step that writes a row in the transaction of its record.
    Transaction {
        name: String,
        fails: bool,
    },
    /// Calls of one flow, at most so many at a time. The second of them fails.
    Map {
        name: String,
        count: u32,
        max_running: u32,
    },
    /// Starts a flow that goes on alone.
    Spawn {
        name: String,
    },
    /// Sends an event, which no record holds.
    Emit,
}

impl Part {
    /// Makes a part of at most this depth, without names but for one in ten steps, which has a common one.
    ///
    /// Branches of a race are operations alone, with names of their own: `select!` polls them in any order, so equal names have no numbers there.
    pub(crate) fn random(rng: &mut Rng, depth: u32, may_yield: bool) -> Self {
        let name = String::new();
        let kind = if depth == 0 { rng.below(11) } else { rng.below(16) };
        match kind {
            0..=2 => {
                let name = if may_yield && rng.chance(10) { "common".to_owned() } else { name };
                let failures = if rng.chance(25) { 1 + rng.below(2) } else { 0 };
                Self::Step { name, failures, tries: 1 + rng.below(3) }
            }
            3 => Self::Slow { name, seconds: rng.below(4), limit: 1 + rng.below(4) },
            4 => Self::Sleep { name, seconds: rng.below(5) },
            5 => Self::Value { name },
            6 if rng.chance(40) => Self::Ask { name },
            6 if rng.chance(40) => Self::Receive { name, seconds: rng.below(5) },
            6 if may_yield => Self::Yield,
            6 => Self::Value { name },
            7 if rng.chance(50) => Self::Child { name, fails: rng.chance(20) },
            7 if may_yield => Self::Undo { name },
            7 => Self::Sleep { name, seconds: 1 },
            8 => {
                let failures = if rng.chance(40) { 1 + rng.below(2) } else { 0 };
                Self::External { name, failures, tries: 1 + rng.below(3) }
            }
            9 => Self::Transaction { name, fails: rng.chance(20) },
            10 if rng.chance(50) => {
                Self::Map { name, count: 1 + rng.below(3), max_running: 1 + rng.below(3) }
            }
            10 if may_yield && rng.chance(40) => Self::Emit,
            10 => Self::Spawn { name },
            11 | 12 => Self::Sequence(Self::several(rng, depth, may_yield)),
            13 => Self::Join(Self::several(rng, depth, may_yield)),
            14 => {
                let one = Self::random(rng, depth - 1, false);
                Self::Select(Box::new(one), Box::new(Self::random(rng, depth - 1, false)))
            }
            _ => Self::Unordered(Self::several(rng, depth, false)),
        }
    }

    fn several(rng: &mut Rng, depth: u32, may_yield: bool) -> Vec<Self> {
        (0..2 + rng.below(2)).map(|_| Self::random(rng, depth - 1, may_yield)).collect()
    }

    /// Counts the parts for which `is_wanted` holds.
    pub(crate) fn count(&self, is_wanted: &impl Fn(&Self) -> bool) -> u32 {
        let inner = match self {
            Self::Sequence(parts) | Self::Join(parts) | Self::Unordered(parts) => {
                parts.iter().map(|part| part.count(is_wanted)).sum()
            }
            Self::Select(one, other) => one.count(is_wanted) + other.count(is_wanted),
            _ => 0,
        };
        inner + u32::from(is_wanted(self))
    }

    /// Tells whether time decides what the program sees.
    pub(crate) fn has_race(&self) -> bool {
        match self {
            Self::Select(..) | Self::Unordered(_) => true,
            Self::Slow { .. } => true,
            Self::Sequence(parts) | Self::Join(parts) => parts.iter().any(Self::has_race),
            _ => false,
        }
    }
}

/// What the steps of a run did, over all processes.
#[derive(Debug, Default)]
pub(crate) struct RunLog {
    /// How often the work of each step ended well.
    pub(crate) effects: BTreeMap<String, u32>,
    /// The results of the external steps that had their effect, by name: an operator finds them.
    pub(crate) external: BTreeMap<String, String>,
    /// The transactions: whether the function has seen their results.
    pub(crate) transactions: BTreeMap<String, bool>,
    /// The steps whose result the function has seen.
    pub(crate) seen: BTreeSet<String>,
    /// How often each step was tried.
    tries: BTreeMap<String, u32>,
    /// The compensations, in the order in which they ran.
    pub(crate) undone: Vec<String>,
    /// Those that the last call of the function registered.
    pub(crate) registered: Vec<String>,
    /// How each part ended, in the last call of the function that came to its end, without what depends on time.
    pub(crate) outline: Vec<String>,
    /// Broken rules.
    pub(crate) faults: Vec<String>,
}

pub(crate) type SharedLog = Arc<Mutex<RunLog>>;

/// One call of the function.
#[derive(Clone)]
struct Call {
    cx: FlowContext,
    log: SharedLog,
    child: Flow<String, String>,
    /// Everything that the function has seen, in order.
    history: Arc<Mutex<Vec<String>>>,
    outline: Arc<Mutex<Vec<String>>>,
    numbers: Arc<Mutex<BTreeMap<String, u32>>>,
    pass: u32,
}

impl Call {
    fn see(&self, what: String) {
        self.history.lock().unwrap().push(what);
    }

    /// Notes how a part ended, in a form that is the same in each run of a program without races.
    fn end(&self, name: &str, is_good: bool) {
        let pass = self.pass;
        self.outline
            .lock()
            .unwrap()
            .push(format!("{pass}/{name}: {}", if is_good { "ok" } else { "failed" }));
    }

    fn history(&self) -> String {
        self.history.lock().unwrap().join(", ")
    }

    fn fault(&self, text: String) {
        self.log.lock().unwrap().faults.push(text);
    }

    /// Returns the name with the number of the call.
    fn number(&self, name: &str) -> String {
        let mut numbers = self.numbers.lock().unwrap();
        let number = numbers.entry(name.to_owned()).or_default();
        *number += 1;
        format!("{}/{name}#{number}", self.pass)
    }

    async fn step(
        &self,
        name: &str,
        failures: u32,
        tries: u32,
        seconds: Option<(u32, u32)>,
    ) -> Result<(), FlowError> {
        let (id, own) = (self.number(name), self.history());
        let work = || {
            let (log, id, clock, own) = (Arc::clone(&self.log), id.clone(), self.cx.clone(), own.clone());
            async move {
                if let Some((seconds, _)) = seconds {
                    // The clock of the world, which the timeout of the step goes by, too.
                    sleep_by(&clock, seconds).await;
                }
                let mut log = log.lock().unwrap();
                if log.seen.contains(&id) {
                    log.faults.push(format!("{id} is done again"));
                }
                let tried = log.tries.entry(id.clone()).or_default();
                *tried += 1;
                // One that fails for good fails also if a crash gives it another try.
                if *tried <= failures || failures >= tries {
                    return Err(FlowError::new(format!("{id} failed")));
                }
                *log.effects.entry(id).or_default() += 1;
                Ok(own)
            }
        };
        let policy =
            RetryPolicy::none().with_attempts(tries).with_delay(Duration::from_secs(1)).with_jitter(0.0);
        let step = self.cx.step(name, work).retry(policy);
        let result = match seconds {
            Some((_, limit)) => step.timeout(Duration::from_secs(limit.into())).await,
            None => step.await,
        };
        self.end(name, result.is_ok());
        match result {
            Ok(known) => {
                self.log.lock().unwrap().seen.insert(id.clone());
                self.check_history(&id, &known, &own);
                self.see(id);
                Ok(())
            }
            Err(error) => {
                self.see(format!("{id}: {error}"));
                Err(error)
            }
        }
    }

    async fn external(&self, name: &str, failures: u32, tries: u32) -> Result<(), FlowError> {
        let (id, own) = (self.number(name), self.history());
        let work = || {
            let (log, id, own, name) = (Arc::clone(&self.log), id.clone(), own.clone(), name.to_owned());
            async move {
                let mut log = log.lock().unwrap();
                let tried = log.tries.entry(id.clone()).or_default();
                *tried += 1;
                if *tried <= failures || failures >= tries {
                    return Err(FlowError::new(format!("{id} failed")).not_done());
                }
                let count = log.effects.entry(id.clone()).or_default();
                *count += 1;
                if *count > 1 {
                    log.faults.push(format!("the external step {id} is repeated"));
                }
                log.external.insert(name, own.clone());
                Ok(own)
            }
        };
        let policy =
            RetryPolicy::none().with_attempts(tries).with_delay(Duration::from_secs(1)).with_jitter(0.0);
        let result = self.cx.step(name, work).retry(policy).external().await;
        self.end(name, result.is_ok());
        if let Ok(known) = &result {
            self.log.lock().unwrap().seen.insert(id.clone());
            self.check_history(&id, known, &own);
        }
        self.see(format!("{id}: {:?}", result.map(|_| ()).map_err(|error| error.to_string())));
        Ok(())
    }

    async fn transaction(&self, name: &str, fails: bool) {
        let (id, own) = (self.number(name), self.history());
        self.log.lock().unwrap().transactions.entry(id.clone()).or_default();
        let (row, result) = (id.clone(), own.clone());
        let written = self.cx.step_in::<LedgerDatabase, _, _, _>(name, move |rows| {
            Box::pin(async move {
                rows.add(&row, 1);
                if fails { Err(NodeError::new(format!("{row} failed")).fatal()) } else { Ok(result) }
            })
        });
        let result = written.await;
        self.end(name, result.is_ok());
        if let Ok(known) = &result {
            self.log.lock().unwrap().transactions.insert(id.clone(), true);
            self.check_history(&id, known, &own);
        }
        self.see(format!("{id}: {:?}", result.map(|_| ()).map_err(|error| error.to_string())));
    }

    async fn map(&self, name: &str, count: u32, max_running: u32) {
        let own = self.history();
        let inputs: Vec<String> = (0..count)
            .map(|n| format!("{}{name}.{n} after {own}", if n == 1 { FAILS } else { "" }))
            .collect();
        let results = self.cx.map(name, &self.child, inputs.clone(), max_running as usize).await;
        if results.len() != inputs.len() {
            self.fault(format!("{name} has {} results", results.len()));
        }
        for (input, result) in inputs.iter().zip(&results) {
            let is_right = match result {
                Ok(output) => output == input,
                Err(error) => input.starts_with(FAILS) && is_failure_of(error, input),
            };
            if !is_right {
                self.fault(format!("{name} has {result:?} for {input}"));
            }
        }
        results.iter().for_each(|result| self.end(name, result.is_ok()));
        self.see(format!("{name}: {:?}", results.iter().map(Result::is_ok).collect::<Vec<_>>()));
    }

    fn check_history(&self, id: &str, known: &str, own: &str) {
        if known != own {
            self.fault(format!("{id} was recorded after [{known}], and is called after [{own}]"));
        }
    }

    /// Runs a part. Failures of steps are handled, but for those of names that end in a 3.
    fn run<'a>(&'a self, part: &'a Part) -> BoxFuture<'a, Result<(), FlowError>> {
        Box::pin(async move {
            match part {
                Part::Step { name, failures, tries } => {
                    let result = self.step(name, *failures, *tries, None).await;
                    if name.ends_with('3') {
                        result?
                    }
                }
                Part::Slow { name, seconds, limit } => {
                    let _ = self.step(name, 0, 2, Some((*seconds, *limit))).await;
                }
                Part::Sleep { name, seconds } => {
                    self.cx.sleep(name, Duration::from_secs((*seconds).into())).await;
                    self.see(name.clone());
                }
                Part::Value { name } => {
                    let value = match name.bytes().last().unwrap_or_default() % 3 {
                        0 => self.cx.random(name).await.to_string(),
                        1 => self.cx.uuid(name).await.to_string(),
                        _ => format!("{:?}", self.cx.now(name).await),
                    };
                    self.see(value);
                }
                Part::Ask { name } => {
                    let answer: Result<bool, _> = self.cx.ask(name, "Sure?").await;
                    self.end(name, answer.is_ok());
                    self.see(format!("{name} {:?}", answer.map_err(|error| error.to_string())));
                }
                Part::Receive { name, seconds } => {
                    let time = Duration::from_secs((*seconds).into());
                    let message: Option<u32> = self.cx.receive_within(name, time).await;
                    self.see(format!("{name} {message:?}"));
                }
                Part::Undo { name } => {
                    let log = Arc::clone(&self.log);
                    log.lock().unwrap().registered.push(name.clone());
                    let own = name.clone();
                    self.cx.compensate(name, move || {
                        let (log, name) = (Arc::clone(&log), own.clone());
                        async move {
                            log.lock().unwrap().undone.push(name);
                            Ok::<_, FlowError>(())
                        }
                    });
                }
                Part::Yield => tokio::task::yield_now().await,
                Part::Fail => return Err(FlowError::fatal("the end")),
                Part::Sequence(parts) => {
                    for part in parts {
                        self.run(part).await?;
                    }
                }
                Part::Join(parts) => {
                    let all = futures_util::future::join_all(parts.iter().map(|part| self.run(part))).await;
                    all.into_iter().collect::<Result<(), _>>()?;
                }
                Part::Select(one, other) => tokio::select! {
                    result = self.run(one) => { self.see("left".into()); result? }
                    result = self.run(other) => { self.see("right".into()); result? }
                },
                Part::Unordered(parts) => {
                    let numbered = parts.iter().enumerate();
                    let mut all: FuturesUnordered<_> =
                        numbered.map(|(index, part)| async move { (index, self.run(part).await) }).collect();
                    while let Some((index, result)) = all.next().await {
                        self.see(format!("ended {index}"));
                        result?;
                    }
                }
                Part::Child { name, fails } => {
                    let input = format!("{}{name} after {}", if *fails { FAILS } else { "" }, self.history());
                    let result = self.cx.call(&self.child, input.clone()).name(name).await;
                    self.end(name, result.is_ok());
                    let is_right = match &result {
                        Ok(output) => !fails && *output == input,
                        Err(error) => *fails && is_failure_of(error, &input),
                    };
                    if !is_right {
                        self.fault(format!("child {name} of {input} has {result:?}"));
                    }
                    self.see(name.clone());
                }
                Part::External { name, failures, tries } => self.external(name, *failures, *tries).await?,
                Part::Transaction { name, fails } => self.transaction(name, *fails).await,
                Part::Map { name, count, max_running } => self.map(name, *count, *max_running).await,
                Part::Spawn { name } => {
                    let input = format!("{name} after {}", self.history());
                    let run = self.cx.spawn(name, &self.child, &input).await;
                    self.end(name, true);
                    self.see(format!("{name} {run}"));
                }
                Part::Emit => self.cx.emit("seen", self.history())?,
            }
            Ok(())
        })
    }
}

async fn sleep_by(cx: &FlowContext, seconds: u32) {
    let clock = Arc::clone(cx.resource::<Arc<dyn ferrata_core::Clock>>());
    clock.sleep(Duration::from_secs(seconds.into())).await;
}

/// What the input of a child begins with that fails.
const FAILS: &str = "fails: ";

/// The flow that children run.
pub(crate) fn child() -> Flow<String, String> {
    flow("child", |_cx, input: String| async move {
        if input.starts_with(FAILS) { Err(FlowError::fatal(failure_of(&input))) } else { Ok(input) }
    })
}

/// The error of a child with this input: its beginning, because causes are cut.
fn failure_of(input: &str) -> String {
    input.chars().take(40).collect()
}

fn is_failure_of(error: &FlowError, input: &str) -> bool {
    let causes = error.failure().causes();
    error.kind() == FlowErrorKind::ChildFailed
        && causes.iter().any(|cause| cause.ends_with(&failure_of(input)))
}

/// The flow of a program. Its input is the number of the pass, and what the passes before it saw.
pub(crate) type Program = Flow<(u32, Vec<String>), String>;

/// Makes the flow of a program, which does one of these parts in each pass.
pub(crate) fn program(passes: Vec<Part>, log: &SharedLog) -> Program {
    let (passes, log) = (Arc::new(passes), Arc::clone(log));
    flow("random", move |cx: FlowContext, (pass, history): (u32, Vec<String>)| {
        let (passes, log) = (Arc::clone(&passes), Arc::clone(&log));
        async move {
            log.lock().unwrap().registered.clear();
            let (history, numbers, outline) = (Arc::new(Mutex::new(history)), Arc::default(), Arc::default());
            let call = Call { cx, log, child: child(), history, outline, numbers, pass };
            let result = call.run(&passes[pass as usize]).await;
            let mut outline = call.outline.lock().unwrap().clone();
            outline.sort();
            call.log.lock().unwrap().outline = outline;
            // What it has seen is part of the result: the last step says it once more.
            call.see(format!("{:?}", result.as_ref().map_err(ToString::to_string)));
            result.map_err(FlowError::as_fatal)?;
            call.step("end", 0, 1, None).await?;
            let history = call.history.lock().unwrap().clone();
            if passes.len() > pass as usize + 1 {
                return call.cx.continue_with((pass + 1, history)).await;
            }
            Ok(history.join(", "))
        }
    })
}
