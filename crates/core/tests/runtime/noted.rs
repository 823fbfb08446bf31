//! Notes of nodes next to the state: artifacts and memory reads.

use ferrata_core::graph::{Graph, RetryPolicy};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::runtime::Position;
use ferrata_core::state::{Artifact, Context, Draft, MemoryRead, Update};
use ferrata_core::{RunKey, Visit};

use super::world::World;

/// Every checkpoint after a node contains its memory reads and artifacts, also in its JSON.
///
/// Guarantees: CHECKPOINT-5.
#[tokio::test]
async fn a_checkpoint_lists_artifacts_and_the_memory() {
    let world = World::new();
    let runtime = world.process().await;
    let graph = Graph::<Context>::builder("recalls")
        .node("recall", async |cx: NodeContext, s: Draft<Context>| {
            cx.remember_read(MemoryRead::new("t-1", "likes tea", 0.75).with("scope", "user"))?;
            for bad in [f64::NAN, f64::INFINITY] {
                assert!(cx.remember_read(MemoryRead::new("t", "x", bad)).is_err());
            }
            let mut twice = MemoryRead::new("t", "x", 0.0);
            twice.extra.insert("strength".into(), 1.into());
            assert!(cx.remember_read(twice).is_err());
            cx.artifact(
                Artifact::new("report", "file:report.pdf")
                    .with_bytes(7)
                    .with_media_type("application/pdf")
                    .with_hash("sha256:00"),
            )?;
            if cx.attempt() == 1 {
                return Err(NodeError::from(std::io::Error::other("what this attempt noted is not kept")));
            }
            Ok(Update::from(s).send_out("memory", "likes green tea").send_out("mail", 1))
        })
        .retry(RetryPolicy::standard())
        .node("end", async |_cx: NodeContext, s: Draft<Context>| Ok(s))
        .entry("recall")
        .edge("recall", "end")
        .build()
        .unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    world.pass(run.completed()).await.unwrap();
    let at = Position::Visit("recall".parse().unwrap(), Visit::new(1));
    for position in [at, Position::Latest] {
        let checkpoint = runtime.checkpoint(&RunKey::try_from("r").unwrap(), position).await.unwrap();
        let json = serde_json::to_value(&checkpoint).unwrap();
        assert_eq!(
            json["memory"],
            serde_json::json!({
                "reads": [{"trace_id": "t-1", "content": "likes tea", "strength": 0.75, "scope": "user"}],
                "pending_writes": ["likes green tea"],
            })
        );
        let report = serde_json::json!({
            "name": "report", "reference": "file:report.pdf", "bytes": 7, "media_type": "application/pdf", "hash": "sha256:00"
        });
        assert_eq!(json["artifacts"], serde_json::json!({ "recall": [report] }));
        let back: ferrata_core::runtime::Checkpoint = serde_json::from_value(json).unwrap();
        assert_eq!(back, checkpoint);
    }
}
