//! What happens to an order: the graph, and the payments that it makes.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use ferrata::prelude::*;
use ferrata::{Clock, SystemClock};
use serde::{Deserialize, Serialize};

/// From how many euros on a person must agree.
const NEEDS_APPROVAL: u32 = 100;

/// An order, as the run keeps it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, State)]
pub(crate) struct Order {
    /// What is ordered.
    pub(crate) item: String,
    /// What it costs.
    pub(crate) eur: u32,
    /// What a person said, where one was asked.
    pub(crate) approved: Option<bool>,
    /// The receipt of the payment.
    pub(crate) receipt: Option<String>,
    /// What the customer is told.
    pub(crate) note: Option<String>,
    /// What was done, and by which replica.
    #[state(append)]
    pub(crate) done: Vec<String>,
}

/// What this process is to the nodes.
#[derive(Debug)]
pub(crate) struct Replica {
    /// Its name, as it stands in orders and payments.
    pub(crate) name: String,
    /// How long each piece of work takes.
    pub(crate) pace: Duration,
    /// Where payments are kept.
    pub(crate) payments: PathBuf,
}

impl Replica {
    /// Pays, and returns the receipt: a stand-in for a payment provider, which pays once for a key however often it is asked.
    ///
    /// Each payment is a file whose name says everything, so it is there or not.
    fn pay(&self, order: &str, eur: u32, key: &str) -> std::io::Result<String> {
        std::fs::create_dir_all(&self.payments)?;
        let receipt = format!("{order}.{eur}EUR.{key}");
        match std::fs::File::create_new(self.payments.join(&receipt)) {
            Ok(file) => file.sync_all()?,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        Ok(receipt)
    }
}

/// Does a piece of work: takes its time, and says who did it.
async fn work(cx: NodeContext, _order: Draft<Order>) -> NodeResult<Order> {
    let replica = cx.resource::<Replica>();
    SystemClock::new().sleep(replica.pace).await;
    Ok(Order::update().done([format!("{} by {}", cx.node(), replica.name)]).into())
}

async fn pay(cx: NodeContext, order: Draft<Order>) -> NodeResult<Order> {
    let replica = cx.resource::<Replica>();
    let (run, eur, key) = (cx.run().run.clone(), order.eur, cx.idempotency_key());
    let payer = cx.clone();
    // A process that dies after the payment and before its record pays again, with the same key: the provider knows it.
    let paid = tokio::task::spawn_blocking(move || payer.resource::<Replica>().pay(run.as_str(), eur, &key));
    let receipt = paid.await.map_err(NodeError::new)?.map_err(NodeError::new)?;
    SystemClock::new().sleep(replica.pace).await;
    Ok(Order::update().receipt(Some(receipt)).done([format!("pay by {}", replica.name)]).into())
}

/// Ships, and writes the customer a note: word by word, as a model would. The words are recorded, so that whoever watches the order sees
/// them come at any replica, and goes on where it was cut off.
async fn ship(cx: NodeContext, order: Draft<Order>) -> NodeResult<Order> {
    let (replica, clock) = (cx.resource::<Replica>(), SystemClock::new());
    let text = format!("Good news: {} for {} EUR is on its way to you.", order.item, order.eur);
    let words: Vec<_> = text.split_inclusive(' ').collect();
    let pause = replica.pace / u32::try_from(words.len()).unwrap_or(u32::MAX);
    let mut note = cx.stream("note")?.durable();
    for word in words {
        note.send(word).await?;
        clock.sleep(pause).await;
    }
    note.finish().await?;
    Ok(Order::update().note(Some(text)).done([format!("{} by {}", cx.node(), replica.name)]).into())
}

/// Builds the graph of an order.
///
/// # Errors
///
/// If it has mistakes.
pub(crate) fn graph() -> Result<Graph<Order>, GraphError> {
    Graph::<Order>::builder("order")
        .node("reserve", work)
        .gate(
            "approve",
            |order: &Order| Ask::<bool>::new(format!("{} for {} EUR?", order.item, order.eur)),
            |order: &mut Order, yes| order.approved = Some(yes),
        )
        .node("pay", pay)
        .node("ship", ship)
        .node("release", work)
        .entry("reserve")
        .route(
            "reserve",
            ["approve", "pay"],
            |order: &Order, _| {
                if order.eur >= NEEDS_APPROVAL { "approve" } else { "pay" }
            },
        )
        .route(
            "approve",
            ["pay", "release"],
            |order: &Order, _| {
                if order.approved == Some(true) { "pay" } else { "release" }
            },
        )
        .edge("pay", "ship")
        .build()
}
