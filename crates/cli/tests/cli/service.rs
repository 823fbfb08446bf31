//! A service for the command's tests: a runtime in this process, on a store in a folder.

use std::time::Duration;

use ferrata::prelude::*;
use ferrata::record::RunStatus;
use ferrata::{Ask, Clock, Conversation, RunKey, SystemClock};

use crate::support::Place;

/// Timeout of any wait on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// A service in this process.
pub(crate) struct Service {
    pub(crate) runtime: Runtime,
}

/// Asks whether to pay, and how much. Fails on request.
pub(crate) fn pay() -> Graph<Context> {
    Graph::<Context>::builder("pay")
        .node("begin", async |_cx, mut s| {
            s.set("amount", 120)?;
            Ok(s)
        })
        .gate(
            "approve",
            |_s: &Context| Ask::<String>::new("Pay 120 EUR?").choices(["yes", "no"]),
            |s, answer| s.set("answer", answer),
        )
        .node("send", async |_cx, mut s| {
            if s.get::<bool>("broken")?.unwrap_or(false) {
                return Err("the bank is closed".into());
            }
            s.set("sent", true)?;
            Ok(s)
        })
        .entry("begin")
        .edge("begin", "approve")
        .edge("approve", "send")
        .build()
        .unwrap()
}

/// Receives messages until `bye`.
pub(crate) fn chat() -> Graph<Context> {
    Graph::<Context>::builder("chat")
        .conversation(
            "talk",
            ["end"],
            Conversation::new().exit_on("bye"),
            async |_cx, mut s, text: String| {
                s.set("last", text)?;
                Ok(s)
            },
        )
        .node("end", async |_cx, s| Ok(s))
        .entry("talk")
        .build()
        .unwrap()
}

/// An `External` node that does not learn the outcome of its first attempt.
pub(crate) fn charge() -> Graph<Context> {
    Graph::<Context>::builder("charge")
        .node("card", async |cx, s| if cx.attempt() > 1 { Ok(s) } else { Err("the bank hung up".into()) })
        .effect(Effect::External)
        .retry(RetryPolicy::standard())
        .entry("card")
        .build()
        .unwrap()
}

/// Works until it is cancelled.
pub(crate) fn busy() -> Graph<Context> {
    Graph::<Context>::builder("busy")
        .node("work", async |_cx, s| {
            std::future::pending::<()>().await;
            Ok(s)
        })
        .entry("work")
        .build()
        .unwrap()
}

impl Service {
    /// Starts a service that claims every active run.
    pub(crate) async fn start(place: &Place) -> Self {
        let runtime = Runtime::builder_with(place.open())
            .sweep_interval(Duration::from_millis(20))
            .poll_interval(Duration::from_millis(20))
            .cancel_grace(Duration::from_millis(200))
            .build()
            .await
            .unwrap();
        for graph in [pay(), chat(), busy(), charge()] {
            runtime.serve(&graph).unwrap();
        }
        Self { runtime }
    }

    /// Starts a run, and waits until it is idle, if it becomes idle.
    pub(crate) async fn run(&self, graph: &Graph<Context>, id: &str, input: Context) -> RunKey {
        let handle = self.runtime.start(graph, input).id(id).label("team", "red").await.unwrap();
        handle.run().clone()
    }

    /// Waits until a run has this status.
    pub(crate) async fn until(&self, run: &RunKey, status: RunStatus) {
        let clock = SystemClock::new();
        loop {
            let now = self.runtime.head(run).await.unwrap().map(|head| head.status);
            if now == Some(status) {
                return;
            }
            assert!(clock.monotonic() < PATIENCE, "run {run} is {now:?}, not {status}");
            clock.sleep(Duration::from_millis(5)).await;
        }
    }
}

/// A run of each kind: waiting for an answer (`pay-1`), for a message (`chat-1`), completed (`pay-2`), failed (`pay-3`).
pub(crate) async fn some_runs(place: &Place) -> Service {
    let service = Service::start(place).await;
    let one = service.run(&pay(), "pay-1", Context::new()).await;
    service.until(&one, RunStatus::Interrupted).await;
    let chat = service.run(&chat(), "chat-1", Context::new()).await;
    service.until(&chat, RunStatus::AwaitingInput).await;
    for (id, broken, status) in [("pay-2", false, RunStatus::Completed), ("pay-3", true, RunStatus::Failed)] {
        let mut input = Context::new();
        input.set("broken", broken).unwrap();
        let run = service.run(&pay(), id, input).await;
        service.until(&run, RunStatus::Interrupted).await;
        let answer = ferrata::Answer::accept("yes").unwrap();
        service.runtime.respond(&run, "approve", answer).by("ann").await.unwrap();
        service.until(&run, status).await;
    }
    service
}
