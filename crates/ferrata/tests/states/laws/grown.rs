//! A state type that gained and lost a field continues runs of the earlier type. The log stays valid, and damage is detected.

use ferrata::ask::Answer;
use ferrata::node::NodeContext;
use ferrata::runtime::{Outcome, Runtime};
use ferrata::store::{At, CheckpointStore, MemoryStore};
use ferrata::{Draft, ErrorKind, Graph, RunKey, State};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, State)]
struct Before {
    n: u32,
    gone: String,
    items: Vec<Old>,
    text: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Old {
    id: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, State)]
struct After {
    n: f64,
    items: Vec<New>,
    text: String,
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct New {
    id: u32,
    #[serde(default)]
    size: u32,
}

/// Asks, and then writes enough for more than one base.
fn graph<S: State>(write: fn(&mut S, String)) -> Graph<S> {
    let mut builder = Graph::<S>::builder("grows").entry("ask").node("ask", async |cx, s| {
        let _: bool = cx.ask("q", "Go on?").await?;
        Ok(s)
    });
    let names: Vec<String> = (0..30).map(|at| format!("n{at}")).collect();
    for (at, name) in names.iter().enumerate() {
        builder = builder.node(name.as_str(), move |_cx: NodeContext, mut s: Draft<S>| async move {
            write(&mut s, at.to_string().repeat(2_000));
            Ok(s)
        });
        let before = at.checked_sub(1).map_or("ask", |before| names[before].as_str());
        builder = builder.edge(before, name.as_str());
    }
    builder.build().unwrap()
}

#[tokio::test]
async fn a_type_that_grew_leaves_a_sound_log() {
    let store = MemoryStore::new();
    let runtime = Runtime::builder(store.clone()).build().await.unwrap();
    let run = RunKey::try_from("r").unwrap();
    let old = graph::<Before>(|s, text| s.text = text);
    let input = Before { n: 7, gone: "so long".into(), items: vec![Old { id: 1 }], text: String::new() };
    let outcome = runtime.start(&old, input).id("r").await.unwrap().wait().await.unwrap();
    assert!(matches!(outcome, Outcome::Interrupted(_)));
    runtime.respond(&run, "ask", Answer::accept(true).unwrap()).await.unwrap();
    let new = graph::<After>(|s, text| s.text = text);
    let state = runtime.resume(&new, "r").await.unwrap().completed().await.unwrap();
    assert_eq!((state.n, state.items[0].id), (7.0, 1));
    let checked = runtime.check_log(&run).await.unwrap();
    assert!(checked.bases > 1, "{checked:?}");
    // A change that no type makes still counts as damage.
    let bases: Vec<u64> = {
        let mut bases = Vec::new();
        for seq in 0..checked.records {
            let loaded = store.load(&run, At::Seq(ferrata::Seq::new(seq))).await.unwrap().unwrap();
            bases.extend(
                loaded.last().filter(|record| record.header.base).map(|record| record.header.seq.get()),
            );
        }
        bases
    };
    let first = usize::try_from(bases[1]).unwrap();
    store.tamper(&run, |records| {
        let text = String::from_utf8(records[first].body.to_vec()).unwrap();
        let body = text.replace("\"id\":1", "\"id\":2");
        assert_ne!(body, text);
        records[first] = ferrata::record::Record::seal(records[first].header.clone(), body.into()).unwrap();
    });
    let error = runtime.check_log(&run).await.unwrap_err();
    assert_eq!((error.kind(), error.seq().map(ferrata::Seq::get)), (ErrorKind::Corrupt, Some(first as u64)));
}
