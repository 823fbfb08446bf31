//! Secret channels: stored like other channels, and absent from every view of a run.

use ferrata::graph::Graph;
use ferrata::node::NodeResult;
use ferrata::runtime::{Diff, RecordedEvent, RetentionPolicy, Runtime, WatchEventKind};
use ferrata::state::{Context, Draft, HIDDEN};
use ferrata::store::MemoryStore;
use ferrata::{ErrorKind, Position, RunKey, Seq, State};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const MARK: &str = "mark-of-a-secret";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, State)]
struct Login {
    user: String,
    #[state(secret)]
    #[serde(rename = "pass word")]
    password: String,
    #[state(secret, append)]
    codes: Vec<String>,
}

/// The same state before its channels were secret.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, State)]
struct Open {
    user: String,
    #[serde(rename = "pass word")]
    password: String,
    #[state(append)]
    codes: Vec<String>,
}

/// The same state when the password was a number.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, State)]
struct Numbered {
    user: String,
    #[state(secret)]
    #[serde(rename = "pass word")]
    password: u32,
    #[state(append)]
    codes: Vec<String>,
}

async fn ask(_cx: ferrata::NodeContext, _s: Draft<Login>) -> NodeResult<Login> {
    Ok(Login::update().user("ann").password(format!("{MARK}-2")).codes([format!("{MARK}-3")]).into())
}

fn graph() -> Graph<Login> {
    Graph::<Login>::builder("login").node("ask", ask).entry("ask").build().unwrap()
}

fn input() -> Login {
    Login { password: format!("{MARK}-1"), ..Login::default() }
}

/// Reads every view of the run, and checks that none contains the mark.
async fn views(runtime: &Runtime, run: &RunKey) -> Vec<String> {
    let mut views = Vec::new();
    let head = runtime.head(run).await.unwrap().unwrap();
    for seq in (head.first.get()..=head.seq.get()).map(Seq::new) {
        views.push(runtime.redacted_state_at(run, seq).await.unwrap().to_string());
        let mut checkpoint = runtime.checkpoint(run, seq).await.unwrap();
        views.push(format!("{checkpoint:?}"));
        checkpoint.hide_secrets();
        views.push(serde_json::to_string(&checkpoint).unwrap());
    }
    let at = async |seq: Seq| Value::from(runtime.channels_at(run, seq).await.unwrap());
    let (from, to) = (at(head.first).await, at(head.seq).await);
    let diff = Diff::redacted(&from, &to, &runtime.secrets(run).await.unwrap());
    views.extend([format!("{diff:?}"), serde_json::to_string(&diff).unwrap()]);
    views.push(format!("{:?}", Diff::between(&from, &to)));
    views.push(runtime.post_mortem(run).await.unwrap());
    views.push(format!("{:?}", runtime.timeline(run, head.first).await.unwrap()));
    let mut told = 0;
    for behind in [None, Some(head.first)] {
        let mut watch = runtime.watch(run).values().updates();
        if let Some(behind) = behind {
            watch = watch.after(behind);
        }
        let mut watch = watch.await.unwrap();
        while let Some(event) = watch.next().await.unwrap() {
            told += usize::from(matches!(
                event.what,
                WatchEventKind::Recorded(RecordedEvent::Value { .. } | RecordedEvent::Update { .. })
            ));
            views.extend([format!("{event:?}"), event.to_json().unwrap()]);
        }
    }
    assert!(told > 0 || head.first == head.seq, "no event arrived");
    for view in &views {
        assert!(!view.contains(MARK), "{view}");
    }
    views
}

async fn ended(run: ferrata::RunHandle<impl State>) -> RunKey {
    run.wait().await.unwrap();
    run.run().clone()
}

/// Guarantees: AT-REST-7.
#[tokio::test]
async fn secret_appears_in_no_run_view() {
    let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
    let run = ended(runtime.start(&graph(), input()).await.unwrap()).await;
    let all = views(&runtime, &run).await.join("\n");
    assert!(all.contains(HIDDEN) && all.contains("ann"), "{all}");
    let shown = runtime.redacted_state_at(&run, Position::Latest).await.unwrap();
    assert_eq!(shown, json!({ "user": "ann", "pass word": HIDDEN, "codes": HIDDEN }));
    let edit = ferrata::Patch::from_ops(&[ferrata::state::Op::Set("codes".into(), json!([MARK]))]).unwrap();
    assert!(!format!("{edit:?} {:?}", edit.ops().unwrap()).contains(MARK));
    // For a fork and after a prune, only the base states which channels are secret.
    let fork = runtime.fork(&run, Seq::new(0)).start_at("ask").edit(edit).await.unwrap();
    assert!(!runtime.redacted_state_at(&fork, Position::Latest).await.unwrap().to_string().contains(MARK));
    let fork = ended(runtime.resume(&graph(), &fork).await.unwrap()).await;
    views(&runtime, &fork).await;
    let pruned = runtime.apply_retention(&fork, &RetentionPolicy::keep_all().keep_last(1)).await.unwrap();
    assert!(pruned.records > 0);
    assert!(views(&runtime, &fork).await.iter().any(|view| view.contains(HIDDEN)));
    // The state still has the values of the run.
    let state: Login = runtime.state_at(&graph(), &fork, Position::Latest).await.unwrap();
    assert_eq!((state.password, state.codes.len()), (format!("{MARK}-2"), 2));
    let mut watch = runtime.watch(&run).values().reveal_secrets().await.unwrap();
    let mut seen = String::new();
    while let Some(event) = watch.next().await.unwrap() {
        seen.push_str(&event.to_json().unwrap());
    }
    assert!(seen.contains(&format!("{MARK}-1")) && seen.contains(&format!("{MARK}-3")), "{seen}");
}

/// Guarantees: AT-REST-7.
#[tokio::test]
async fn channel_becoming_secret_is_hidden_in_entire_run() {
    let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
    let open = Graph::<Open>::builder("login")
        .node("ask", async |_cx, _s: Draft<Open>| -> NodeResult<Open> { Err("not yet".into()) })
        .retry(ferrata::graph::RetryPolicy::none())
        .entry("ask")
        .build()
        .unwrap();
    let before = Open { password: format!("{MARK}-1"), ..Open::default() };
    let run = ended(runtime.start(&open, before).await.unwrap()).await;
    assert!(runtime.secrets(&run).await.unwrap().is_empty());
    assert!(runtime.redacted_state_at(&run, Seq::new(0)).await.unwrap().to_string().contains(MARK));
    runtime.retry(&run).await.unwrap();
    ended(runtime.resume(&graph(), &run).await.unwrap()).await;
    assert_eq!(runtime.secrets(&run).await.unwrap().iter().collect::<Vec<_>>(), ["codes", "pass word"]);
    views(&runtime, &run).await;
    runtime.check_log(&run).await.unwrap();
}

/// Guarantees: AT-REST-7.
#[tokio::test]
async fn secret_channel_error_hides_value() {
    let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
    let run = ended(runtime.start(&graph(), input()).await.unwrap()).await;
    let graph =
        Graph::<Numbered>::builder("login").node("ask", async |_cx, s| Ok(s)).entry("ask").build().unwrap();
    let error = runtime.state_at(&graph, &run, Position::Latest).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::GraphChanged);
    let told = format!("{error} {error:?}");
    assert!(told.contains("pass word") && !told.contains(MARK), "{told}");
}

#[tokio::test]
async fn log_without_secrets_never_mentions_secrets() {
    let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
    let graph = |secret: bool| {
        let graph = Graph::<Context>::builder("g").node("n", async |_cx, s| Ok(s)).entry("n");
        if secret { graph.secret("token").build().unwrap() } else { graph.build().unwrap() }
    };
    for secret in [false, true] {
        let run = ended(runtime.start(&graph(secret), Context::new()).await.unwrap()).await;
        let text = runtime.export(&run).await.unwrap();
        assert_eq!(text.contains("\"secret\":[\"token\"]"), secret, "{text}");
        assert_eq!(text.contains("secret"), secret, "{text}");
    }
}
