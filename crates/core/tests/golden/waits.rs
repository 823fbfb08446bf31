//! Golden logs of runs with questions, messages, timers, pauses and edits: as records, and with a base in each record.

use std::sync::Arc;
use std::time::Duration;

use ferrata_core::Timestamp;
use ferrata_core::ask::{Answer, Ask, AskError};
use ferrata_core::graph::Graph;
use ferrata_core::node::{Conversation, NodeContext, NodeError, NodeResult};
use ferrata_core::record::{RecordKind, RunStatus};
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::{Context, Draft, Reducer};
use ferrata_core::store::{CheckpointStore, MemoryStore, RunAppend};
use ferrata_testing::ManualClock;

use super::{key, notes, read};

const HOUR: Duration = Duration::from_secs(3_600);

/// Whether steps may be executed. The golden runs executed them already.
#[derive(Clone, Copy)]
struct First(bool);

async fn buy(cx: NodeContext, _s: Draft<Context>) -> NodeResult<Context> {
    let first = cx.resource::<First>().0;
    let price: u32 = cx
        .step("price", async || if first { Ok(120) } else { Err(NodeError::new("the step was done before")) })
        .await?;
    let colour: Option<String> = cx.receive_within(24 * HOUR).await?;
    let idle: Option<String> = cx.receive_within(HOUR).await?;
    let (amount, vendor, size, gift, slept, last) = tokio::join!(
        cx.ask::<u32>("amount", "How many?"),
        cx.ask_with("vendor", Ask::<String>::new("Of whom?").choices(["acme", "emca"]).deadline(2 * HOUR)),
        cx.ask_with("size", Ask::<u32>::new("Which size?").deadline(2 * HOUR).or_default(7)),
        cx.ask::<bool>("gift", "As a gift?"),
        cx.sleep(72 * HOUR),
        cx.receive::<String>(),
    );
    slept?;
    let vendor = match vendor {
        Err(AskError::Expired { .. }) => "nobody".to_owned(),
        vendor => vendor?,
    };
    let gift = match gift {
        Err(AskError::Rejected { comment, by, .. }) => format!("{comment}, said {}", by.unwrap_or_default()),
        gift => gift?.to_string(),
    };
    let bought = [
        format!("{} for {price}", amount?),
        format!("{colour:?}, then {idle:?}, then {}", last?),
        format!("of {vendor} in size {}", size?),
        gift,
    ];
    Ok(Context::update().append("notes", bought).into())
}

fn shop() -> Graph<Context> {
    Graph::<Context>::builder("shop")
        .channel("notes", Reducer::Append)
        .node("begin", async |_cx, _s| Ok(()))
        .interrupt_after()
        .node("buy", buy)
        .node("count", async |_cx, _s| Ok(Context::update().append("notes", ["counted"])))
        .interrupt_before()
        .interrupt_after()
        .node("pack", async |_cx, _s| Ok(Context::update().append("notes", ["packed"])))
        .entry("begin")
        .edge("begin", ["buy", "count"])
        .edge("count", "pack")
        .build()
        .unwrap()
}

fn talk() -> Graph<Context> {
    Graph::<Context>::builder("talk")
        .channel("notes", Reducer::Append)
        .conversation("talk", ["end"], Conversation::new().exit_on("/quit"), async |_cx, _s, text: String| {
            Ok(Context::update().append("notes", [text]))
        })
        .node("end", async |_cx, _s| Ok(()))
        .entry("talk")
        .build()
        .unwrap()
}

/// A process with its own clock.
async fn process(store: &MemoryStore, clock: &Arc<ManualClock>, first: bool) -> Runtime {
    Runtime::builder(store.clone())
        .clock(Arc::clone(clock) as _)
        .resource(First(first))
        .build()
        .await
        .unwrap()
}

/// Performs all operations that a golden run needs to reach its end, from any record. Returns the statuses on the way, and the final state.
async fn finish(store: &MemoryStore, graph: &Graph<Context>, first: bool) -> (Vec<String>, Context) {
    let clock = Arc::new(ManualClock::new(Timestamp::from_unix_ms(1_795_270_000_000)));
    let runtime = process(store, &clock, first).await;
    let mut stood = Vec::new();
    for _ in 0..40 {
        let outcome = runtime.resume(graph, "r").await.unwrap().wait().await.unwrap();
        stood.push(format!("{outcome:?}"));
        match outcome {
            Outcome::Completed(state) => return (stood, state),
            Outcome::Interrupted(questions) => {
                let question = &questions[0];
                let answer = match question.id.as_str() {
                    "buy@1:amount" => Answer::accept(3),
                    "buy@1:gift" => Answer::accept(false),
                    "begin@1:after" | "count@1:before" | "count@1:after" => Answer::accept(()),
                    other => panic!("no such question: {other}"),
                };
                runtime.respond(&key(), &question.id, answer.unwrap()).await.unwrap();
            }
            Outcome::Paused { reason, .. } => {
                assert!(matches!(reason.as_str(), "lunch" | "stocktaking"), "{reason}");
                runtime.unpause(&key()).await.unwrap();
            }
            Outcome::AwaitingInput if graph.name().as_str() == "talk" => {
                runtime.send(&key(), "/quit").await.unwrap();
            }
            Outcome::AwaitingInput => runtime.send(&key(), "at last").await.unwrap(),
            Outcome::Sleeping { until } => {
                // Deadlines, idle times and the timer.
                clock.advance(until.since(ferrata_core::Clock::now(&*clock)));
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("the run does not end");
}

/// Imports the first records of a golden log into a store.
pub(crate) async fn prefix(name: &str, records: usize) -> MemoryStore {
    let store =
        MemoryStore::with_clock(Arc::new(ManualClock::new(Timestamp::from_unix_ms(1_795_270_000_000))));
    let (facts, mut all) = read(name);
    all.truncate(records);
    let append = RunAppend { run: key(), expected: None, records: all, facts: Some(facts) };
    store.append(vec![append]).await.pop().unwrap().unwrap();
    store
}

/// The trace of the complete run. Its step is not repeated.
const BOUGHT: [&str; 7] = [
    "counted",
    "edited",
    "3 for 120",
    "Some(\"blue\"), then None, then hurry up",
    "of nobody in size 7",
    "it is for me, said bob",
    "packed",
];

/// Guarantees: FORMAT-5, QUESTION-3, STEP-1.
#[tokio::test]
async fn log_restores_notes_answers_and_messages() {
    for name in ["waits", "waits-bases"] {
        let store = prefix(name, usize::MAX).await;
        let mut state = notes(&finish(&store, &shop(), false).await.1);
        state.sort();
        let mut wanted = BOUGHT;
        wanted.sort_unstable();
        assert_eq!(state, wanted, "{name}");
    }
}

/// Guarantees: FORMAT-5, MESSAGE-1.
#[tokio::test]
async fn a_conversation_goes_on_where_it_was() {
    for name in ["conversation", "conversation-bases"] {
        let store = prefix(name, usize::MAX).await;
        assert_eq!(notes(&finish(&store, &talk(), false).await.1), ["hello"], "{name}");
    }
}

/// The two logs of a run contain the same records, and yield the same history and state at each of them.
///
/// Guarantees: FORMAT-6.
#[tokio::test]
async fn event_and_base_logs_agree_at_every_record() {
    for (name, graph) in [("waits", shop()), ("conversation", talk())] {
        let bases = format!("{name}-bases");
        let (one, two) = (read(name).1, read(&bases).1);
        assert_eq!(one.len(), two.len());
        for records in 1..=one.len() {
            let mut told = Vec::new();
            for name in [name, &bases] {
                let store = prefix(name, records).await;
                let clock = Arc::new(ManualClock::new(Timestamp::from_unix_ms(1_795_270_000_000)));
                let runtime = process(&store, &clock, true).await;
                let head = runtime.head(&key()).await.unwrap().unwrap();
                let questions = runtime.questions(&key()).await.unwrap();
                let (stood, end) = finish(&store, &graph, true).await;
                told.push((head.status, head.wake_at, questions, stood, notes(&end)));
            }
            assert_eq!(told[0], told[1], "{name} after {records} records");
        }
    }
}

/// A fruitless claim counts, also in later processes.
#[tokio::test]
async fn run_with_repeated_fruitless_claims_parks() {
    for name in ["waits", "waits-bases"] {
        let claim = read(name).1.iter().position(|record| record.header.kind == RecordKind::Claim).unwrap();
        let store = prefix(name, claim + 1).await;
        let runtime = Runtime::builder(store).resource(First(true)).max_claims(1).build().await.unwrap();
        runtime.serve(&shop()).unwrap();
        let run = runtime.start(&shop(), Context::new()).id("r");
        let mut polls = 0;
        while runtime.head(&key()).await.unwrap().unwrap().status == RunStatus::InProgress {
            polls += 1;
            assert!(polls < 1_000_000, "{name}: no process claims the run");
            tokio::task::yield_now().await;
        }
        let Outcome::Paused { reason, .. } = run.await.unwrap().wait().await.unwrap() else {
            panic!("{name}")
        };
        assert!(reason.starts_with("claims without progress: 1"), "{name}: {reason}");
    }
}

/// The logs contain every record field that concerns waiting, and every field of a base.
///
/// Guarantees: FORMAT-5.
#[test]
fn every_content_is_held() {
    let bodies = |name: &str| -> String {
        let bodies = read(name).1;
        bodies.iter().map(|record| String::from_utf8_lossy(&record.body).into_owned() + "\n").collect()
    };
    let records = bodies("waits") + &bodies("conversation");
    for content in [
        r#""what":{"result":120}"#,
        r#""what":{"until":"#,
        r#""what":{"took":1}"#,
        r#""what":{"refused":{"message":0,"why":"it is not of type "#,
        r#""what":"idle""#,
        r#"{"change":{"asked":{"node":"buy","visit":1,"name":"size","ask":{"question":"Which size?","expects":"u32","deadline":"#,
        r#","on_deadline":{"default":7}}"#,
        r#""expects":{"one_of":["acme","emca"]}"#,
        r#"{"asked":{"node":"count","visit":1,"name":"before","ask":{"question":null,"expects":"any"}}}"#,
        r#"{"change":{"expired":{"node":"buy","visit":1,"name":"vendor","at":"#,
        r#"{"change":"interrupted"}"#,
        r#"{"change":{"rested":{"status":"interrupted","receiving":true,"wake":"#,
        r#"{"change":{"rested":{"status":"awaiting_input","receiving":true}}}"#,
        r#"{"answer":{"question":"begin@1:after","answer":{"accept":null}}},"by":"ann","at":"#,
        r#"{"answer":{"question":"buy@1:gift","answer":{"reject":"it is for me"}}}"#,
        r#"{"message":{"body":17}}"#,
        r#"{"what":{"pause":{"reason":"lunch"}},"by":"ann","at":"#,
        r#"{"what":"unpause","by":"ann","at":"#,
        r#"{"patch":[{"append":["notes",["edited"]]}],"by":"eve"}"#,
        r#"{"reason":"nothing but time moves the run","wake":"#,
        r#","receiving":true}"#,
        r#""hold":true"#,
    ] {
        assert!(records.contains(content), "no {content}");
    }
    let bases = bodies("waits-bases");
    for field in [
        r#""paused":"stocktaking""#,
        r#""inbox":[{"number":2,"body":"hurry up","by":"bob","at":"#,
        r#""messages":3"#,
        r#""receiving":true"#,
        r#""wake":"#,
        r#""holds":[[2,1]]"#,
        r#""fruitless":1"#,
        r#""answered":[{"id":"begin@1:after","by":"ann","at":"#,
        r#""memos":{"#,
        r##""#receive1":{"message":{"number":1,"body":"blue","by":"bob","at":"##,
        r##""#receive2":"idle""##,
        r##""#sleep1":{"until":"##,
        r#""amount":{"asked":{"ask":{"question":"How many?","expects":"u32"}}}"#,
        r#""reply":{"answered":{"answer":{"reject":"it is for me"},"by":"bob","at":"#,
        r#""reply":{"answered":{"answer":{"accept":7},"by":"deadline","at":"#,
        r#""reply":{"expired":{"at":"#,
        r#""price":{"result":120}"#,
    ] {
        assert!(bases.contains(field), "no {field} in a base");
    }
    let counted = bodies("counted") + &bodies("counted-bases");
    for field in [r#""spent":["close"]"#, r#""fresh":["close"]"#, r#""dropped":["close"]"#, r#""spent":true"#]
    {
        assert!(counted.contains(field), "no {field}");
    }
}
