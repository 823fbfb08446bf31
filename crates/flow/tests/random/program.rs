//! Random programs, and the function that runs one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata_core::graph::RetryPolicy;
use ferrata_flow::{Flow, FlowContext, FlowError, flow};
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
    },
}

impl Part {
    /// Makes a part of at most this depth, without names but for one in ten steps, which has a common one.
    ///
    /// Branches of a race are operations alone, with names of their own: `select!` polls them in any order, so equal names have no numbers there.
    pub(crate) fn random(rng: &mut Rng, depth: u32, may_yield: bool) -> Self {
        let name = String::new();
        let kind = if depth == 0 { rng.below(8) } else { rng.below(13) };
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
            7 if rng.chance(50) => Self::Child { name },
            7 if may_yield => Self::Undo { name },
            7 => Self::Sleep { name, seconds: 1 },
            8 | 9 => Self::Sequence(Self::several(rng, depth, may_yield)),
            10 => Self::Join(Self::several(rng, depth, may_yield)),
            11 => {
                let one = Self::random(rng, depth - 1, false);
                Self::Select(Box::new(one), Box::new(Self::random(rng, depth - 1, false)))
            }
            _ => Self::Unordered(Self::several(rng, depth, false)),
        }
    }

    fn several(rng: &mut Rng, depth: u32, may_yield: bool) -> Vec<Self> {
        (0..2 + rng.below(2)).map(|_| Self::random(rng, depth - 1, may_yield)).collect()
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
    /// The steps whose result the function has seen.
    seen: BTreeSet<String>,
    /// How often each step was tried.
    tries: BTreeMap<String, u32>,
    /// The compensations, in the order in which they ran.
    pub(crate) undone: Vec<String>,
    /// Those that the last call of the function registered.
    pub(crate) registered: Vec<String>,
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
    numbers: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl Call {
    fn see(&self, what: String) {
        self.history.lock().unwrap().push(what);
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
        format!("{name}#{number}")
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
                    let value = self.cx.random(name).await;
                    self.see(value.to_string());
                }
                Part::Ask { name } => {
                    let yes: bool = self.cx.ask(name, "Sure?").await?;
                    self.see(format!("{name} {yes}"));
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
                Part::Child { name } => {
                    let input = format!("{name} after {}", self.history());
                    let result = self.cx.call(&self.child, input.clone()).name(name).await?;
                    if result != input {
                        self.fault(format!("child {name} was called after another history"));
                    }
                    self.see(name.clone());
                }
            }
            Ok(())
        })
    }
}

async fn sleep_by(cx: &FlowContext, seconds: u32) {
    let clock = Arc::clone(cx.resource::<Arc<dyn ferrata_core::Clock>>());
    clock.sleep(Duration::from_secs(seconds.into())).await;
}

/// The flow that children run.
pub(crate) fn child() -> Flow<String, String> {
    flow("child", |_cx, input: String| async move { Ok::<_, FlowError>(input) })
}

/// Makes the flow of a program.
pub(crate) fn program(part: Part, log: &SharedLog) -> Flow<(), String> {
    let (part, log) = (Arc::new(part), Arc::clone(log));
    flow("random", move |cx: FlowContext, _: ()| {
        let (part, log) = (Arc::clone(&part), Arc::clone(&log));
        async move {
            log.lock().unwrap().registered.clear();
            let (history, numbers) = (Arc::default(), Arc::default());
            let call = Call { cx, log, child: child(), history, numbers };
            let result = call.run(&part).await;
            // What it has seen is part of the result: the last step says it once more.
            call.see(format!("{:?}", result.as_ref().map_err(ToString::to_string)));
            result.map_err(FlowError::as_fatal)?;
            call.step("end", 0, 1, None).await?;
            Ok(call.history.lock().unwrap().join(", "))
        }
    })
}
