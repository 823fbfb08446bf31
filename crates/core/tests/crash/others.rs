//! A second process signals the run at every write of the first: no signal is lost, and no work runs twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ferrata_core::ErrorKind;
use ferrata_core::graph::{CheckpointFrequency, CheckpointPolicy};
use ferrata_core::runtime::Runtime;
use ferrata_core::state::{Op, Patch};
use ferrata_testing::{Fault, FaultPlan};

use super::graphs::{self, Case};
use super::pausing;
use super::world::World;

/// The signal of the second process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Answers,
    Message,
    Pause,
    Edit,
}

/// The moment of the signal, relative to a write of the first process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meeting {
    /// Just before a write of the first process, which then conflicts.
    Before,
    /// Just after a write whose reply is lost. The first process repeats the write, and finds its own record below another head.
    AfterLost,
}

impl Said {
    /// Sends the signal. Returns the number of acknowledged operations.
    async fn say(self, world: &World, other: &Runtime) -> u32 {
        let run = World::key();
        match self {
            _ if other.head(&run).await.unwrap().is_none() => 0,
            Self::Answers => {
                let mut said = 0;
                let questions = other.questions(&run).await.unwrap();
                for question in questions.iter().filter(|question| question.deadline.is_none()) {
                    other.respond(&run, &question.id, world.answer(question)).by("bob").await.unwrap();
                    said += 1;
                }
                said
            }
            Self::Message => match world.send_next(other).await {
                Err(error) if error.kind() == ErrorKind::WrongStatus => 0,
                sent => u32::from(sent.unwrap()),
            },
            Self::Pause => match other.pause(&run, "tea").by("bob").await {
                Err(error) if error.kind() == ErrorKind::WrongStatus => 0,
                paused => paused.map(|()| 1).unwrap(),
            },
            Self::Edit => {
                let patch = Patch::from_ops(&[Op::Append("edits".into(), vec!["by bob".into()])]).unwrap();
                match other.edit(&run, patch).check_with(world.graph()).by("bob").await {
                    Err(error) if error.kind() == ErrorKind::WrongStatus => 0,
                    edited => edited.map(|()| 1).unwrap(),
                }
            }
        }
    }
}

/// Sends one signal of the second process at every write of the first. Returns how often a signal was possible.
async fn meet(case: &Case, policy: CheckpointPolicy, said: Said, meeting: Meeting) -> u32 {
    let calm = World::new(case, policy, "calm");
    let mut wanted = calm.live(&[]).await;
    let mut spoken = 0;
    for at in 1..calm.operations() {
        let label = format!("{} {:?}: {said:?} {meeting:?} {at}", case.name, policy.frequency);
        let world = Arc::new(World::new(case, policy, &label).patient().shared().shared());
        let (store, runtime) = world.process(FaultPlan::new()).await;
        let (_, other) = world.process(FaultPlan::new()).await;
        let heard = Arc::new(AtomicU32::new(0));
        let hook = {
            let (world, heard) = (Arc::clone(&world), Arc::clone(&heard));
            async move {
                heard.store(said.say(&world, &other).await, Ordering::SeqCst);
            }
        };
        match meeting {
            Meeting::Before => store.before(at, hook),
            Meeting::AfterLost => {
                store.plan(at, Fault::After);
                store.after(at, hook);
            }
        }
        let state = loop {
            match world.go_on(&runtime).await {
                // A policy that keeps no results of nodes stops the driver, and the run is resumed.
                Err(error) if error.kind() == ErrorKind::Conflict && !keeps_ends(policy) => {}
                state => break state.unwrap_or_else(|error| panic!("{label}: {error:?}")),
            }
        };
        let mut state = world.close(state).await;
        world.check();
        let messages = world.check_said();
        if messages.len() > 1 {
            // Concurrent sends have only the order of the log, and the messages must be received in that order.
            let mut taken: Vec<_> = messages.into_iter().filter(serde_json::Value::is_string).collect();
            taken.push("nobody".into());
            assert_eq!(state["said"], serde_json::Value::from(taken), "{label}");
            state["said"] = wanted["said"].clone();
        }
        let heard = heard.load(Ordering::SeqCst);
        spoken += u32::from(heard > 0);
        let edits = take_by(&mut state, "by bob");
        assert_eq!(edits, if said == Said::Edit { heard as usize } else { 0 }, "{label}");
        take_by(&mut wanted, "by bob");
        assert_eq!(state, wanted, "{label}");
    }
    spoken
}

/// Whether the driver keeps results of nodes until they are recorded.
fn keeps_ends(policy: CheckpointPolicy) -> bool {
    !matches!(policy.frequency, CheckpointFrequency::StatusChangeOnly | CheckpointFrequency::Disabled)
}

/// Removes the marks of the second process's edits from a state, and then also empty channels.
fn take_by(state: &mut serde_json::Value, who: &str) -> usize {
    let Some(edits) = state.get_mut("edits").and_then(serde_json::Value::as_array_mut) else { return 0 };
    let before = edits.len();
    edits.retain(|edit| edit != who);
    let taken = before - edits.len();
    if edits.is_empty()
        && let Some(channels) = state.as_object_mut()
    {
        channels.remove("edits");
    }
    taken
}

async fn all(said: Said) {
    let nth = CheckpointFrequency::EveryNth(3.try_into().unwrap());
    let frequencies = [
        CheckpointFrequency::EveryNode,
        nth,
        CheckpointFrequency::StatusChangeOnly,
        CheckpointFrequency::Disabled,
    ];
    let mut spoken = 0;
    for policy in frequencies.map(|frequency| CheckpointPolicy::default().with_frequency(frequency)) {
        let cases = match policy.frequency {
            CheckpointFrequency::EveryNode | CheckpointFrequency::EveryNth(_) => {
                let graphs = [graphs::diamond(), graphs::fan_out(), graphs::flaky()];
                pausing::all().into_iter().chain(graphs).collect()
            }
            // Notes are kept. After a conflict, the rest of the run restarts from its last record.
            CheckpointFrequency::StatusChangeOnly => {
                vec![pausing::talk(), pausing::mixed(), graphs::external()]
            }
            // The log contains no single nodes.
            _ => vec![pausing::talk(), pausing::steps()],
        };
        for case in cases {
            // A policy that delays records makes no difference to a lost reply.
            let meetings: &[Meeting] = match policy.frequency {
                CheckpointFrequency::EveryNode => &[Meeting::Before, Meeting::AfterLost],
                _ => &[Meeting::Before],
            };
            for &meeting in meetings {
                spoken += meet(&case, policy, said, meeting).await;
            }
        }
    }
    assert!(spoken > 20, "{said:?} was sent {spoken} times");
}

/// Guarantees: QUESTION-3.
#[tokio::test]
async fn answers_of_another_process_are_taken_once() {
    all(Said::Answers).await;
}

/// Guarantees: MESSAGE-1.
#[tokio::test]
async fn run_receives_remote_messages_once_in_order() {
    all(Said::Message).await;
}

#[tokio::test]
async fn a_pause_by_another_process_loses_nothing() {
    all(Said::Pause).await;
}

/// Guarantees: CONTROL-3.
#[tokio::test]
async fn an_edit_by_another_process_is_made_once() {
    all(Said::Edit).await;
}
