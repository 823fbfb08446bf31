//! Golden logs of a run with a configuration, a first message and a keyed message, and of its fork, which has them in a base.

use ferrata_core::graph::Graph;
use ferrata_core::node::{Conversation, NodeContext};
use ferrata_core::runtime::Runtime;
use ferrata_core::state::{Context, Reducer};

use super::waits::prefix;
use super::{key, notes, read};

fn talk() -> Graph<Context> {
    Graph::<Context>::builder("given")
        .channel("notes", Reducer::Append)
        .conversation(
            "talk",
            ["end"],
            Conversation::new().exit_on("/quit"),
            async |cx: NodeContext, _s, text: String| {
                let model: String = cx.config()?;
                Ok(Context::update().append("notes", [format!("{text}, says {model}")]))
            },
        )
        .node("end", async |_cx, _s| Ok(()))
        .entry("talk")
        .build()
        .unwrap()
}

/// From each record, the configuration can be read, and the first message is there. The key of the second message is known after its record.
///
/// Guarantees: FORMAT-5.
#[tokio::test]
async fn every_record_restores_configuration_and_message_keys() {
    for name in ["given", "given-fork"] {
        let records = read(name).1;
        for count in 1..=records.len() {
            let store = prefix(name, count).await;
            let runtime = Runtime::builder(store).build().await.unwrap();
            if name == "given" {
                let start = runtime.start(&talk(), Context::new()).id("r").config("small").message("hello");
                start.await.unwrap().wait().await.unwrap();
            }
            runtime.send(&key(), "more").key("hook-1").await.unwrap();
            runtime.send(&key(), "/quit").await.unwrap();
            let state = runtime.resume(&talk(), "r").await.unwrap().completed().await.unwrap();
            assert_eq!(
                notes(&state),
                ["hello, says small", "more, says small"],
                "{name} after {count} records"
            );
        }
    }
}
