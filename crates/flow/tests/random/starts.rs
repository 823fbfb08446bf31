//! Random programs that a queue, a schedule or a parent starts, or that a fork continues, with crashes of their processes.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Position;
use ferrata_core::store::{CheckpointStore as _, Page, RunHead, RunQuery};
use ferrata_core::{ErrorKind, Result, RunKey, Seq};
use ferrata_flow::{Flow, FlowContext, FlowErrorKind, RuntimeFlowExt, flow};
use ferrata_queue::{RuntimeQueueExt, StartQueueExt};
use ferrata_schedule::RuntimeScheduleExt;
use ferrata_testing::{Fault, Process, World};

use crate::crashes::{Crash, Ending, check, check_rows, process, process_of, random_passes, rows, world};
use crate::program::{Part, Program, RunLog, SharedLog, program};
use crate::rng::{Rng, seeds};

/// How many seeds a run of the tests tries, and how many crashes each of them has.
const SEEDS: u64 = 60;
const CRASHES: u32 = 4;

const MINUTE: Duration = Duration::from_secs(60);

/// How many minutes of the clock a program may take.
const MINUTES: u32 = 3_000;

/// How a program is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Direct,
    /// It waits for the slot that another run holds first.
    Queue,
    /// A tick at two o'clock. The world begins at a quarter to two.
    Schedule,
    /// Another function calls it.
    Child,
}

/// The run that holds the only slot of the queue at first.
fn holder() -> Flow<(), ()> {
    flow("holder", |cx: FlowContext, (): ()| async move {
        cx.sleep("hold", Duration::from_secs(3)).await;
        Ok(())
    })
}

/// The parent of a program. Its result is the result of the program.
fn parent(program: &Program) -> Flow<(), Result<String, String>> {
    let program = program.clone();
    flow("parent", move |cx: FlowContext, (): ()| {
        let program = program.clone();
        async move {
            match cx.call(&program, (0, Vec::new())).name("program").await {
                Ok(output) => Ok(Ok(output)),
                Err(error) if error.kind() == FlowErrorKind::ChildFailed => {
                    Ok(Err(error.failure().causes().join(": ")))
                }
                Err(error) => Err(error.as_fatal()),
            }
        }
    })
}

impl Start {
    /// Returns whether the start gives the run its two messages.
    fn has_messages(self) -> bool {
        matches!(self, Self::Direct | Self::Queue)
    }

    /// Starts the program as a service does at each of its starts.
    async fn launch(self, process: &Process, flow: &Program) -> Result<()> {
        let graph = flow.graph()?;
        let input = flow.input(&(0, Vec::new()))?;
        match self {
            Self::Direct => drop(process.start(graph, input).id("r").message(1).message(2).await?),
            Self::Queue => {
                let holder = holder();
                process.serve(holder.graph()?)?;
                process.queue("line").at_once(1).declare().await?;
                drop(process.start(holder.graph()?, holder.input(&())?).id("holder").queue("line").await?);
                drop(process.start(graph, input).id("r").message(1).message(2).queue("line").await?);
            }
            Self::Schedule => {
                drop(process.schedule("nightly").cron("0 2 * * *").start(graph, input).await?);
            }
            Self::Child => {
                let parent = parent(flow);
                process.serve(parent.graph()?)?;
                drop(process.call(&parent, ()).id("parent").start().await?);
            }
        }
        Ok(())
    }
}

/// Lists the runs of a workflow, oldest first.
async fn runs(world: &World, workflow: &str) -> Vec<RunHead> {
    let mut query = RunQuery::default();
    query.workflow = Some(workflow.try_into().unwrap());
    let mut heads = world.store().runs(&query, Page::first(Page::MAX)).await.unwrap().items;
    heads.sort_by_key(|head| head.facts.created);
    heads
}

async fn has_ended(world: &World, workflow: &str) -> bool {
    runs(world, workflow).await.first().is_some_and(|head| head.status.is_finished())
}

/// Waits until the first run of this workflow has ended, or the process has crashed.
async fn settle(world: &World, process: &Process, workflow: &str) {
    for _ in 0..MINUTES {
        if process.is_crashed() || has_ended(world, workflow).await {
            return;
        }
        world.pass_for(MINUTE).await;
    }
    panic!("the run does not end: {:?}", runs(world, workflow).await);
}

/// The ending of the run in a process that has not crashed.
async fn ending(
    world: &World,
    process: &Process,
    flow: &Program,
    head: &RunHead,
    log: &SharedLog,
    crash_count: u32,
) -> Ending {
    let text = match head.status {
        RunStatus::Completed => {
            let state = process.state_at(flow.graph().unwrap(), &head.run, Position::Latest).await.unwrap();
            flow.output(&state).unwrap()
        }
        _ => process.post_mortem(&head.run).await.unwrap(),
    };
    let log = std::mem::take(&mut *log.lock().unwrap());
    let rows = rows(world, &log).await;
    Ending { status: head.status, text, log, writes: process.writes(), crash_count, rows }
}

/// Runs a program, started so, in processes that crash so.
async fn run(start: Start, passes: &[Part], crashes: &[Crash]) -> Ending {
    let log: SharedLog = Arc::new(Mutex::new(RunLog::default()));
    let flow = program(passes.to_vec(), &log);
    let world = world(passes);
    let mut crash_count = 0;
    for &(write, fault) in crashes {
        let process = process(&world, &flow, &log).await;
        process.fail_write(write, fault);
        if world.pass(start.launch(&process, &flow)).await.is_ok() {
            settle(&world, &process, "random").await;
        }
        crash_count += u32::from(process.is_crashed());
        process.crash().await;
    }
    let process = process(&world, &flow, &log).await;
    world.pass(start.launch(&process, &flow)).await.unwrap();
    settle(&world, &process, "random").await;
    let head = runs(&world, "random").await.remove(0);
    let ending = ending(&world, &process, &flow, &head, &log, crash_count).await;
    match start {
        Start::Queue => check_queue(&world, &process).await,
        Start::Child => check_parent(&world, &process, &flow, &ending).await,
        Start::Direct | Start::Schedule => {}
    }
    ending
}

/// Checks that the ended runs have given their slots back.
async fn check_queue(world: &World, process: &Process) {
    let line = process.queue("line").find().await.unwrap().unwrap();
    for _ in 0..100 {
        let status = line.status().await.unwrap();
        if status.held.is_empty() && status.waiting == 0 {
            return;
        }
        world.pass_for(30 * MINUTE).await;
    }
    panic!("a slot is held for ever: {:?}", line.status().await.unwrap());
}

/// Checks that the parent has the result of the program.
async fn check_parent(world: &World, process: &Process, flow: &Program, ending: &Ending) {
    settle(world, process, "parent").await;
    let parent = parent(flow);
    let run: RunKey = "parent".try_into().unwrap();
    let state = process.state_at(parent.graph().unwrap(), &run, Position::Latest).await.unwrap();
    let result = parent.output(&state).unwrap();
    match ending.status {
        RunStatus::Completed => assert_eq!(result.as_ref(), Ok(&ending.text)),
        _ => assert!(result.is_err(), "{result:?}"),
    }
}

/// A function may be started in any way: its run has the same result and the same effects, whatever crashes.
///
/// Guarantees: FLOW-2, FLOW-3, FLOW-5, FLOW-7, FLOW-9, FLOW-11.
#[tokio::test]
async fn started_functions_survive_crashes() {
    let mut cases = [0, 0, 0];
    for seed in seeds(SEEDS) {
        let mut rng = Rng::new(seed ^ 0x57A7);
        let pass_count = if rng.chance(25) { 2 } else { 1 };
        let passes = random_passes(&mut rng, pass_count, 2);
        let direct = run(Start::Direct, &passes, &[]).await;
        for (index, start) in [Start::Queue, Start::Schedule, Start::Child].into_iter().enumerate() {
            let calm = run(start, &passes, &[]).await;
            let may_differ = !start.has_messages()
                && passes.iter().any(|part| part.count(&|part| matches!(part, Part::Receive { .. })) > 0);
            check(seed, &passes, &[], &calm, Some(&direct).filter(|_| !may_differ));
            for _ in 0..CRASHES {
                let fault = if rng.chance(50) { Fault::CrashBefore } else { Fault::CrashAfter };
                let mut crashes = vec![(u64::from(rng.below(u32::try_from(calm.writes).unwrap())), fault)];
                if rng.chance(40) {
                    crashes.push((1 + u64::from(rng.below(20)), fault));
                }
                let ending = run(start, &passes, &crashes).await;
                check(seed, &passes, &crashes, &ending, Some(&calm));
                cases[index] += 1;
            }
        }
    }
    println!("{cases:?} cases through a queue, by a schedule and as a child");
}

/// A run whose process crashed, or that ended, and a fork of it.
#[derive(Clone, Copy, Debug)]
struct Branch {
    source: Crash,
    /// The part of the log of the source that the fork takes, in percent. `None` is the end of a run that has not ended.
    at: Option<u64>,
    /// A crash of the process of the fork.
    fork: Option<Crash>,
}

/// The ending of a fork, and the effects of its source.
struct Forked {
    ending: Ending,
    source_effects: BTreeSet<String>,
    is_earlier: bool,
}

/// Runs a program until its process crashes or it ends, and continues it in a fork. Returns `None` if there is no run to fork.
async fn fork(passes: &[Part], branch: Branch) -> Option<Forked> {
    let log: SharedLog = Arc::new(Mutex::new(RunLog::default()));
    let flow = program(passes.to_vec(), &log);
    let world = world(passes);
    let first = process(&world, &flow, &log).await;
    first.fail_write(branch.source.0, branch.source.1);
    if world.pass(Start::Direct.launch(&first, &flow)).await.is_ok() {
        settle(&world, &first, "random").await;
    }
    let mut crash_count = u32::from(first.is_crashed());
    first.crash().await;
    let head = runs(&world, "random").await.pop()?;
    let at = match branch.at {
        None if !head.status.is_finished() => Position::Latest,
        at => Position::Seq(Seq::new((head.seq.get().saturating_sub(1)) * at.unwrap_or(100) / 100)),
    };
    let is_earlier = at != Position::Latest;
    let mut source_effects = BTreeSet::new();
    if is_earlier {
        let mut log = log.lock().unwrap();
        // The fork does again, rightly, what the source did after the position.
        source_effects = std::mem::take(&mut log.effects).into_keys().collect();
        log.seen.clear();
    }
    for crash in [branch.fork, None] {
        // No process serves the workflow, so the source stays as it is.
        let process = process_of(&world, None, &log).await;
        if let Some((write, fault)) = crash {
            process.fail_write(write, fault);
        }
        let request = process.fork(&head.run, at.clone()).id("fork").drive(flow.graph().unwrap());
        match world.pass(request).await {
            Ok(handle) => drop(world.pass(handle.completed()).await),
            // The source had ended at this record.
            Err(error) if error.kind() == ErrorKind::Invalid => return None,
            Err(error) if !process.is_crashed() => panic!("{branch:?}: {error}"),
            Err(_) => {}
        }
        crash_count += u32::from(process.is_crashed());
        if crash.is_some() {
            process.crash().await;
            continue;
        }
        let run: RunKey = "fork".try_into().unwrap();
        let fork = process.head(&run).await.unwrap().unwrap();
        let ending = ending(&world, &process, &flow, &fork, &log, crash_count).await;
        return Some(Forked { ending, source_effects, is_earlier });
    }
    None
}

/// A fork sees what its source has recorded, and does the rest as a run that never crashed.
///
/// Guarantees: FLOW-2, FLOW-3, FLOW-5, FLOW-7, FLOW-9, FLOW-11.
#[tokio::test]
async fn forked_functions_continue_their_source() {
    let (mut cases, mut earlier) = (0, 0);
    for seed in seeds(SEEDS) {
        let mut rng = Rng::new(seed ^ 0xF02C);
        let pass_count = if rng.chance(25) { 2 } else { 1 };
        let passes = random_passes(&mut rng, pass_count, 2);
        let calm = run(Start::Direct, &passes, &[]).await;
        for _ in 0..2 * CRASHES {
            let mut crash = |limit| {
                (
                    u64::from(rng.below(limit)),
                    if rng.chance(50) { Fault::CrashBefore } else { Fault::CrashAfter },
                )
            };
            let source = crash(1 + u32::try_from(calm.writes).unwrap());
            let fork_crash = crash(20);
            let at = rng.chance(40).then(|| u64::from(rng.below(101)));
            let branch = Branch { source, at, fork: Some(fork_crash).filter(|_| rng.chance(50)) };
            let Some(forked) = fork(&passes, branch).await else { continue };
            cases += 1;
            earlier += u32::from(forked.is_earlier);
            check_fork(seed, &passes, branch, forked, &calm);
        }
    }
    println!("{cases} forks, {earlier} of them at an earlier record");
}

/// Checks what holds for each fork. One at an earlier record may do again what the source did after it.
fn check_fork(seed: u64, passes: &[Part], branch: Branch, forked: Forked, calm: &Ending) {
    let Forked { mut ending, source_effects, is_earlier } = forked;
    if !is_earlier {
        return check(seed, passes, &[branch.source], &ending, Some(calm));
    }
    let case = format!("seed {seed}, {branch:?}\n{passes:#?}\n{ending:?}");
    // A compensation that the source recorded before the position does not run again.
    let (mut undone, mut registered) = (ending.log.undone.clone(), ending.log.registered.clone());
    undone.sort();
    undone.dedup();
    registered.sort();
    if ending.status == RunStatus::Failed {
        assert_eq!(undone, registered, "{case}");
        ending.log.undone = ending.log.registered.iter().rev().cloned().collect();
    } else {
        ending.log.undone.clear();
    }
    let most = 2;
    assert!(ending.rows.iter().all(|(_, row)| *row <= most), "{case}");
    ending.rows.iter_mut().for_each(|(_, row)| *row = (*row).min(1));
    assert_eq!(check_rows(&ending), Ok(()), "{case}");
    for id in source_effects {
        ending.log.effects.entry(id).or_insert(1);
    }
    check(seed, passes, &[branch.source], &ending, Some(calm));
}
