//! A new field with a non-empty default: the log contains the value that the run saw.

use ferrata::prelude::*;
use ferrata::store::MemoryStore;
use ferrata::{Answer, NodeContext, RunKey};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, State)]
struct Old {
    name: String,
}

fn said() -> Vec<String> {
    vec!["init".to_owned()]
}

fn five() -> u32 {
    5
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, State)]
struct New {
    name: String,
    #[serde(default = "said")]
    #[state(append)]
    log: Vec<String>,
    #[serde(default = "five")]
    #[state(sum)]
    cost: u32,
    #[serde(default = "five")]
    #[state(max)]
    most: u32,
}

#[tokio::test]
async fn new_field_with_nonempty_default_survives_restart() {
    let store = MemoryStore::new();
    let key = RunKey::try_from("r").unwrap();
    let old = Graph::<Old>::builder("g")
        .node("ask", async |cx: NodeContext, _s| {
            let _: bool = cx.ask("ok", "?").await?;
            Ok(())
        })
        .node("then", async |_cx, _s| Ok(()))
        .entry("ask")
        .edge("ask", "then")
        .build()
        .unwrap();
    let first = Runtime::builder(store.clone()).build().await.unwrap();
    first.start(&old, Old { name: "a".into() }).id("r").await.unwrap().wait().await.unwrap();
    let question = first.questions(&key).await.unwrap().remove(0);
    first.respond(&key, &question.id, Answer::accept(true).unwrap()).await.unwrap();
    drop(first);

    let new = Graph::<New>::builder("g")
        .node("ask", async |cx: NodeContext, _s| {
            let _: bool = cx.ask("ok", "?").await?;
            Ok(New::update().log(["asked".to_owned()]).cost(2).most(3))
        })
        .node("then", async |cx: NodeContext, s: Draft<New>| {
            let _: bool = cx.ask("again", "?").await?;
            let seen = (s.log.clone(), s.cost, s.most);
            assert_eq!(seen, (vec!["init".to_owned(), "asked".to_owned()], 7, 5), "in the node");
            Ok(New::update())
        })
        .entry("ask")
        .edge("ask", "then")
        .build()
        .unwrap();
    let second = Runtime::builder(store.clone()).build().await.unwrap();
    second.resume(&new, &key).await.unwrap().wait().await.unwrap();
    let question = second.questions(&key).await.unwrap().remove(0);
    second.respond(&key, &question.id, Answer::accept(true).unwrap()).await.unwrap();
    drop(second);
    let third = Runtime::builder(store).build().await.unwrap();
    let state = third.resume(&new, &key).await.unwrap().completed().await.unwrap();
    let expected = New { name: "a".into(), log: vec!["init".into(), "asked".into()], cost: 7, most: 5 };
    assert_eq!(state, expected);
}
