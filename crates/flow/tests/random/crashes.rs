//! Random programs with crashes before and after each write, and a second crash afterwards.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ferrata_core::Clock;
use ferrata_core::ask::{Answer, Answerer, AnswererQuestion};
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Outcome;
use ferrata_flow::{FlowCall, RuntimeFlowExt, StepOutcome};
use ferrata_testing::{Fault, Process, World};

use crate::program::{Part, Program, RunLog, SharedLog, child, program};
use crate::rng::{Rng, seeds};

/// How many seeds a run of the tests tries.
const SEEDS: u64 = 60;
const CANCEL_SEEDS: u64 = 300;

/// A crash: at which write of its process, and on which side.
pub(crate) type Crash = (u64, Fault);

/// An operator, who knows which external steps had their effect, and says no to some questions.
#[derive(Debug)]
struct Operator(SharedLog);

#[async_trait]
impl Answerer for Operator {
    async fn answer(&self, asked: &AnswererQuestion) -> Option<Answer> {
        let name = asked.question.id.rsplit_once(':')?.1;
        let answer = match name.split_once(".outcome") {
            Some((step, _)) => Answer::accept(match self.0.lock().unwrap().external.get(step) {
                Some(result) => StepOutcome::Done(result.clone()),
                None => StepOutcome::Retry,
            }),
            None if name.ends_with('4') => return Some(Answer::reject("not now")),
            None => Answer::accept(true),
        };
        Some(answer.unwrap())
    }

    fn name(&self) -> String {
        "operator".into()
    }
}

/// Makes the world of a program. Its store has transactions if the program needs them.
pub(crate) fn world(passes: &[Part]) -> World {
    match passes.iter().any(|part| part.count(&|part| matches!(part, Part::Transaction { .. })) > 0) {
        true => World::with_transactions(),
        false => World::new(),
    }
}

pub(crate) async fn process(world: &World, flow: &Program, log: &SharedLog) -> Process {
    process_of(world, Some(flow), log).await
}

/// Starts a process that serves the children of programs, and this program.
pub(crate) async fn process_of(world: &World, flow: Option<&Program>, log: &SharedLog) -> Process {
    let operator = Operator(Arc::clone(log));
    let clock: Arc<dyn Clock> = Arc::new(world.clock().clone());
    let process = world.process_with(|builder| builder.answerer(operator).resource(clock)).await.unwrap();
    if let Some(flow) = flow {
        process.serve(flow.graph().unwrap()).unwrap();
    }
    process.serve(child().graph().unwrap()).unwrap();
    process
}

/// Calls the program, with two messages for it.
fn call(process: &Process, flow: &Program) -> FlowCall<String> {
    process.call(flow, (0, Vec::new())).id("r").with(|start| start.message(1).message(2))
}

/// How a run of a program ended.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) status: RunStatus,
    pub(crate) text: String,
    pub(crate) log: RunLog,
    pub(crate) writes: u64,
    pub(crate) crash_count: u32,
    /// The rows of the transactions.
    pub(crate) rows: Vec<(String, i64)>,
}

/// Reads the rows of the transactions of a program.
pub(crate) async fn rows(world: &World, log: &RunLog) -> Vec<(String, i64)> {
    let mut rows = Vec::new();
    for id in log.transactions.keys() {
        rows.push((id.clone(), world.ledger().row(id).await));
    }
    rows
}

/// Runs a program in processes that crash so.
async fn run(passes: &[Part], crashes: &[Crash]) -> Ending {
    let log: SharedLog = Arc::new(Mutex::new(RunLog::default()));
    let flow = program(passes.to_vec(), &log);
    let world = world(passes);
    let mut crash_count = 0;
    for &(write, fault) in crashes {
        let process = process(&world, &flow, &log).await;
        process.fail_write(write, fault);
        if let Ok(handle) = world.pass(call(&process, &flow).start()).await {
            let _ = world.pass(handle.handle().completed()).await;
        }
        crash_count += u32::from(process.is_crashed());
        process.crash().await;
    }
    let process = process(&world, &flow, &log).await;
    let handle = world.pass(call(&process, &flow).start()).await.unwrap();
    let mut outcome = world.pass(handle.handle().wait()).await;
    while matches!(&outcome, Ok(Outcome::Sleeping { .. } | Outcome::Interrupted(_)) | Err(_)) {
        world.pass_for(std::time::Duration::from_secs(60)).await;
        outcome = world.pass(handle.handle().wait()).await;
    }
    let (status, text) = match outcome.unwrap() {
        Outcome::Completed(state) => (RunStatus::Completed, flow.output(&state).unwrap()),
        Outcome::Failed { failure, .. } => (RunStatus::Failed, failure.message),
        other => panic!("{other}"),
    };
    let log = std::mem::take(&mut *log.lock().unwrap());
    let rows = rows(&world, &log).await;
    Ending { status, text, log, writes: process.writes(), crash_count, rows }
}

/// Checks what holds for each run, whatever crashed.
pub(crate) fn check(seed: u64, passes: &[Part], crashes: &[Crash], ending: &Ending, calm: Option<&Ending>) {
    let fail = |why: String| {
        panic!(
            "seed {seed}, crashes {crashes:?}: {why}\n{passes:#?}\n{ending:?}\nrepeat with FERRATA_FLOW_SEED={seed} cargo test -p ferrata-flow --test random"
        )
    };
    if !ending.log.faults.is_empty() {
        fail(format!("broken rules {:?}", ending.log.faults));
    }
    if ending.text.contains("does not fit the records") {
        fail("unchanged code was refused".into());
    }
    let most = 1 + ending.crash_count;
    if let Some((id, count)) = ending.log.effects.iter().find(|(_, count)| **count > most) {
        fail(format!("{id} had its effect {count} times"));
    }
    if let Err(why) = check_rows(ending) {
        fail(why);
    }
    if ending.status == RunStatus::Failed {
        let mut undone = ending.log.undone.clone();
        undone.dedup();
        let mut expected = ending.log.registered.clone();
        expected.reverse();
        if undone != expected {
            fail(format!("undone {undone:?}, and not {expected:?}"));
        }
    } else if !ending.log.undone.is_empty() {
        fail("a run that completed undid something".into());
    }
    let Some(calm) = calm.filter(|_| !passes.iter().any(Part::has_race)) else { return };
    let effects = |ending: &Ending| ending.log.effects.keys().cloned().collect::<Vec<_>>();
    if ending.status != calm.status
        || effects(ending) != effects(calm)
        || ending.log.outline != calm.log.outline
    {
        fail(format!("without a crash it was {calm:?}"));
    }
}

/// Checks that each transaction was committed at most once, and exactly once if the function has seen its result.
pub(crate) fn check_rows(ending: &Ending) -> Result<(), String> {
    for (id, row) in &ending.rows {
        let is_seen = ending.log.transactions.get(id) == Some(&true);
        if *row > 1 || (is_seen && *row != 1) {
            return Err(format!("{id} was committed {row} times"));
        }
    }
    Ok(())
}

/// Guarantees: FLOW-2, FLOW-3, FLOW-5, FLOW-7, FLOW-9, FLOW-11.
#[tokio::test]
async fn random_functions_survive_crashes() {
    let (mut cases, mut raced, mut failed, mut parts) = (0, 0, 0, Counts::default());
    for seed in seeds(SEEDS) {
        let mut rng = Rng::new(seed);
        let pass_count = if rng.chance(25) { 2 + rng.below(2) } else { 1 };
        let passes = random_passes(&mut rng, pass_count, 3);
        parts.add(&passes);
        let calm = run(&passes, &[]).await;
        check(seed, &passes, &[], &calm, None);
        raced += u32::from(passes.iter().any(Part::has_race));
        failed += u32::from(calm.status == RunStatus::Failed);
        for write in 0..calm.writes {
            for fault in [Fault::CrashBefore, Fault::CrashAfter] {
                let mut crashes = vec![(write, fault)];
                if rng.chance(50) {
                    crashes.push((1 + u64::from(rng.below(20)), fault));
                }
                let ending = run(&passes, &crashes).await;
                check(seed, &passes, &crashes, &ending, Some(&calm));
                cases += 1;
            }
        }
    }
    println!("{cases} cases, {raced} programs with races, {failed} that fail, {parts:?}");
    assert!(cases < 1_000 || parts.are_all_there(), "{parts:?}");
}

/// Makes a program of so many passes, which fails in three of ten cases.
pub(crate) fn random_passes(rng: &mut Rng, pass_count: u32, depth: u32) -> Vec<Part> {
    let mut passes: Vec<Vec<Part>> = (0..pass_count)
        .map(|_| (0..2 + rng.below(3)).map(|_| Part::random(rng, depth, true)).collect())
        .collect();
    if rng.chance(30)
        && let Some(last) = passes.last_mut()
    {
        last.push(Part::Fail);
    }
    rename(passes)
}

/// How many parts of each kind the programs have.
#[derive(Debug, Default)]
struct Counts {
    external: u32,
    transactions: u32,
    maps: u32,
    spawned: u32,
    events: u32,
    continued: usize,
}

impl Counts {
    fn add(&mut self, passes: &[Part]) {
        self.continued += passes.len() - 1;
        for part in passes {
            self.external += part.count(&|part| matches!(part, Part::External { .. }));
            self.transactions += part.count(&|part| matches!(part, Part::Transaction { .. }));
            self.maps += part.count(&|part| matches!(part, Part::Map { .. }));
            self.spawned += part.count(&|part| matches!(part, Part::Spawn { .. }));
            self.events += part.count(&|part| matches!(part, Part::Emit));
        }
    }

    fn are_all_there(&self) -> bool {
        let parts = [self.external, self.transactions, self.maps, self.spawned, self.events];
        self.continued > 0 && parts.iter().all(|count| *count > 0)
    }
}

/// Runs a program until a write crashes its process, or another process takes the run over. The run is then cancelled, and a third process undoes
/// it, after a crash of its own. Returns `None` if the run ended before.
async fn cancel(passes: &[Part], first: Crash, second: Crash, is_taken_over: bool) -> Option<Ending> {
    let log: SharedLog = Arc::new(Mutex::new(RunLog::default()));
    let flow = program(passes.to_vec(), &log);
    let world = world(passes);
    let one = process(&world, &flow, &log).await;
    if !is_taken_over {
        one.fail_write(first.0, first.1);
    }
    let handle = world.pass(call(&one, &flow).start()).await.ok()?;
    let run = handle.run().clone();
    world.pass_for(std::time::Duration::from_secs(first.0 % 7)).await;
    // The process that lost the run is alive until the end.
    let one = match is_taken_over {
        true => Some(one),
        false => {
            let _ = world.pass(handle.handle().completed()).await;
            one.crash().await;
            None
        }
    };
    let other = world.process().await.unwrap();
    world.pass(other.cancel(&run, "enough")).await.ok()?;
    let mut crash_count = 2;
    for crash in [Some(second), None] {
        let process = process(&world, &flow, &log).await;
        if let Some((write, fault)) = crash {
            process.fail_write(write, fault);
        }
        if let Ok(handle) = world.pass(process.resume(flow.graph().unwrap(), &run).take_over()).await {
            let _ = world.pass(handle.completed()).await;
        }
        crash_count += u32::from(process.is_crashed());
        if crash.is_some() {
            process.crash().await;
        }
    }
    drop(one);
    let status = other.head(&run).await.unwrap().unwrap().status;
    let log = std::mem::take(&mut *log.lock().unwrap());
    let rows = rows(&world, &log).await;
    Some(Ending { status, text: String::new(), log, writes: 0, crash_count, rows })
}

/// Guarantees: FLOW-8, FLOW-9.
#[tokio::test]
async fn random_functions_are_undone_when_cancelled() {
    let (mut cases, mut undone) = (0, 0);
    for seed in seeds(CANCEL_SEEDS) {
        let mut rng = Rng::new(seed ^ 0xCA9C);
        let mut parts: Vec<_> = (0..3 + rng.below(3)).map(|_| Part::random(&mut rng, 2, true)).collect();
        for _ in 0..2 {
            let at = rng.below(u32::try_from(parts.len()).unwrap()) as usize;
            parts.insert(at, Part::Undo { name: String::new() });
        }
        let passes = rename(vec![parts]);
        let mut crash = || {
            (
                1 + u64::from(rng.below(20)),
                if rng.chance(50) { Fault::CrashBefore } else { Fault::CrashAfter },
            )
        };
        let (first, second) = (crash(), crash());
        let Some(ending) = cancel(&passes, first, second, seed % 3 == 0).await else { continue };
        cases += 1;
        undone += usize::from(!ending.log.undone.is_empty());
        let case = format!("seed {seed}, crashes {first:?} and {second:?}\n{passes:#?}\n{ending:?}");
        assert!(ending.log.faults.is_empty(), "broken rules: {case}");
        assert_eq!(ending.status, RunStatus::Cancelled, "{case}");
        assert_eq!(check_rows(&ending), Ok(()), "{case}");
        let mut expected = ending.log.registered.clone();
        expected.reverse();
        let mut once = ending.log.undone.clone();
        once.dedup();
        // A timer that ends between two tries of the cleanup adds compensations to those that ran.
        once.sort();
        expected.sort();
        assert_eq!(once, expected, "{case}");
        let most = 1 + ending.crash_count;
        assert!(ending.log.effects.values().all(|count| *count <= most), "an effect was repeated: {case}");
    }
    println!("{cases} cases, {undone} with compensations");
    assert!(cases < 100 || undone > cases / 3);
}

/// Makes the names of the parts of a program unique.
pub(crate) fn rename(passes: Vec<Vec<Part>>) -> Vec<Part> {
    fn each(part: &mut Part, count: &mut u32) {
        *count += 1;
        match part {
            Part::Step { name, .. } if name == "common" => {}
            Part::Step { name, .. }
            | Part::Slow { name, .. }
            | Part::Sleep { name, .. }
            | Part::Ask { name }
            | Part::Receive { name, .. }
            | Part::Undo { name }
            | Part::Value { name }
            | Part::Child { name, .. }
            | Part::External { name, .. }
            | Part::Transaction { name, .. }
            | Part::Map { name, .. }
            | Part::Spawn { name } => *name = format!("p{count}"),
            Part::Yield | Part::Fail | Part::Emit => {}
            Part::Sequence(parts) | Part::Join(parts) | Part::Unordered(parts) => {
                parts.iter_mut().for_each(|part| each(part, count));
            }
            Part::Select(one, other) => {
                each(one, count);
                each(other, count);
            }
        }
    }
    let mut passes: Vec<_> = passes.into_iter().map(Part::Sequence).collect();
    let mut count = 0;
    passes.iter_mut().for_each(|part| each(part, &mut count));
    passes
}
