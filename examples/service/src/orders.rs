//! The graph of an order, and the payments that it makes.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use ferrata::prelude::*;
use ferrata::{Clock, SystemClock};
use serde::{Deserialize, Serialize};

/// Price in euros from which a person must approve the order.
const NEEDS_APPROVAL: u32 = 100;

/// An order: the state of its run.
#[derive(Clone, Debug, Default, Serialize, Deserialize, State)]
pub(crate) struct Order {
    /// The item that is ordered.
    pub(crate) item: String,
    /// The price in euros.
    pub(crate) eur: u32,
    /// The decision of a person, if one was asked.
    pub(crate) approved: Option<bool>,
    /// The receipt of the payment.
    pub(crate) receipt: Option<String>,
    /// The note for the customer.
    pub(crate) note: Option<String>,
    /// The completed work, each with the replica that did it.
    #[state(append)]
    pub(crate) done: Vec<String>,
}

/// The data that this process provides to the nodes.
#[derive(Debug)]
pub(crate) struct Replica {
    /// The name of the replica, as it appears in orders and payments.
    pub(crate) name: String,
    /// The duration of each piece of work.
    pub(crate) pace: Duration,
    /// The folder of the payments.
    pub(crate) payments: PathBuf,
}

impl Replica {
    /// Pays and returns the receipt. The function is a stand-in for a payment provider, which pays only once for each key.
    ///
    /// Each payment is a file whose name contains all its data. So a payment exists completely or not at all.
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

/// Does a piece of work: waits for its duration, and records the replica.
async fn work(cx: NodeContext, _order: Draft<Order>) -> NodeResult<Order> {
    let replica = cx.resource::<Replica>();
    SystemClock::new().sleep(replica.pace).await;
    Ok(Order::update().done([format!("{} by {}", cx.node(), replica.name)]).into())
}

async fn pay(cx: NodeContext, order: Draft<Order>) -> NodeResult<Order> {
    let replica = cx.resource::<Replica>();
    let (run, eur, key) = (cx.run().run.clone(), order.eur, cx.idempotency_key());
    let payer = cx.clone();
    // A process that dies after the payment and before its record pays again with the same key, which the provider recognizes.
    let paid = tokio::task::spawn_blocking(move || payer.resource::<Replica>().pay(run.as_str(), eur, &key));
    let receipt = paid.await.map_err(NodeError::new)?.map_err(NodeError::new)?;
    SystemClock::new().sleep(replica.pace).await;
    Ok(Order::update().receipt(Some(receipt)).done([format!("pay by {}", replica.name)]).into())
}

/// Ships the order and writes a note for the customer, word by word like a model. The words are recorded. So a client that watches the order sees the
/// words at any replica, and continues after the last word that it has seen.
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
/// Fails if the graph has mistakes.
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
