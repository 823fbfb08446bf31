//! The external resources of a run: one graph per resource, with a node that uses it next to a node that asks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ferrata_core::Clock as _;
use ferrata_core::graph::{CachePolicy, Effect, Graph, GraphBuilder};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::runtime::OnParentEnd;
use ferrata_core::state::{Context, Draft};
use ferrata_testing::ManualClock;

use super::world::Outside;

/// The topic of all messages.
pub(crate) const TOPIC: &str = "mail";

/// Duration of the node after it has used its resource: longer than a waiting run stays in memory.
const NAP: Duration = Duration::from_secs(1);

/// An external resource that a node of the run uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thing {
    /// A child that the node awaits.
    Child,
    /// A child that the node leaves.
    Left,
    /// A run that the node spawns.
    Spawned,
    /// An outbox message.
    Letter,
    /// A stored value whose name is in the state.
    Blob,
    /// A result that the process caches for other runs.
    Cached,
    /// A durable stream.
    Stream,
}

/// A child that sleeps, and doubles its number.
pub(crate) fn kid() -> Graph<Context> {
    Graph::<Context>::builder("kid")
        .node("double", async |cx, mut s: Draft<Context>| {
            cx.sleep(NAP).await?;
            let number: u32 = s.get("number")?.unwrap_or_default();
            s.set("number", number * 2)?;
            Ok(s)
        })
        .entry("double")
        .build()
        .unwrap()
}

fn input(number: u32) -> Result<Context, NodeError> {
    let mut input = Context::new();
    input.set("number", number)?;
    Ok(input)
}

fn outside(cx: &NodeContext) -> Arc<Outside> {
    Arc::clone(cx.resource::<Arc<Outside>>())
}

impl Thing {
    /// `begin` leads to `use`, which uses the resource, and to `beside`, which asks, and fails on request. Both lead to `end`.
    pub(crate) fn graph(self) -> Graph<Context> {
        let graph = Graph::<Context>::builder("run").node("begin", async |_cx, s| Ok(s));
        self.add(graph)
            .node("beside", async |cx: NodeContext, mut s: Draft<Context>| {
                let (outside, clock) = (outside(&cx), Arc::clone(cx.resource::<Arc<ManualClock>>()));
                let fails_at = *outside.fails_at.lock().unwrap();
                if let Some(write) = fails_at {
                    // Wait until the other node has reached that write, or cannot continue.
                    let mut patience = 60;
                    while outside.writes() < write && patience > 0 {
                        clock.sleep(Duration::from_millis(50)).await;
                        patience -= 1;
                    }
                    outside.is_too_late.store(patience == 0, Ordering::SeqCst);
                    *outside.fails_at.lock().unwrap() = None;
                    return Err(NodeError::new("it is told to fail"));
                }
                let yes: bool = cx.ask("go", "Go on?").await?;
                s.set("yes", yes)?;
                Ok(s)
            })
            .node("end", move |cx: NodeContext, mut s: Draft<Context>| async move {
                if self == Self::Letter {
                    cx.send_out(TOPIC, "end")?;
                }
                s.set("ended", true)?;
                Ok(s)
            })
            .entry("begin")
            .edge("begin", ["use", "beside"])
            .edge(["use", "beside"], "end")
            .build()
            .unwrap()
    }

    fn add(self, graph: GraphBuilder<Context>) -> GraphBuilder<Context> {
        if self == Self::Cached {
            return graph
                .node("use", async |cx: NodeContext, mut s: Draft<Context>| {
                    outside(&cx).looks.fetch_add(1, Ordering::SeqCst);
                    s.set("used", "looked")?;
                    Ok(s)
                })
                .effect(Effect::Read)
                .cached(CachePolicy::with_max_age(Duration::from_secs(3_600)), |_s, _cx| Ok("key"));
        }
        graph.node("use", move |cx: NodeContext, mut s: Draft<Context>| async move {
            let used = self.used_by(&cx).await?;
            if self != Self::Child {
                cx.sleep(NAP).await?;
            }
            s.set("used", used)?;
            Ok(s)
        })
    }

    async fn used_by(self, cx: &NodeContext) -> Result<String, NodeError> {
        match self {
            Self::Child => {
                let state = cx.child(&kid(), input(21)?).name("kid").await?;
                Ok(state.get::<u32>("number")?.unwrap_or_default().to_string())
            }
            Self::Left => {
                let left = cx.child(&kid(), input(1)?).name("kid").on_parent_end(OnParentEnd::Leave);
                Ok(left.start().await?.run().run.to_string())
            }
            Self::Spawned => Ok(cx.spawn(&kid(), input(1)?).name("kid").await?.run.to_string()),
            Self::Letter => {
                cx.send_out(TOPIC, "use")?;
                Ok("sent".to_owned())
            }
            Self::Blob => {
                let put = async || {
                    let number = outside(cx).puts.fetch_add(1, Ordering::SeqCst);
                    Ok::<_, NodeError>(format!("blob-{number}"))
                };
                cx.step("put", put).await
            }
            Self::Stream => {
                let mut tokens = cx.stream("tokens")?.durable();
                for token in ["It", " depends", "."] {
                    tokens.send(token).await?;
                }
                tokens.finish().await?;
                Ok("streamed".to_owned())
            }
            Self::Cached => Ok(String::new()),
        }
    }
}
