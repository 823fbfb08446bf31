//! Reads a run at an earlier record, changes a value there, and shows the outcome in a fork.
//!
//! Everything is in memory.
#![expect(clippy::print_stdout, reason = "it shows what happens")]

use std::error::Error;

use ferrata::prelude::*;
use ferrata::runtime::{Change, Position};
use ferrata::state::{Op, Patch};
use ferrata::{RunKey, Seq};
use serde::{Deserialize, Serialize};

/// A trip and its costs.
#[derive(Clone, Debug, Default, Serialize, Deserialize, State)]
struct Trip {
    budget: u32,
    people: u32,
    hotel: String,
    #[state(append)]
    bookings: Vec<String>,
    spent: u32,
}

fn graph() -> Result<Graph<Trip>, GraphError> {
    let graph = Graph::<Trip>::builder("trip")
        .node("plan", async |_cx, mut trip| {
            trip.people = 4;
            Ok(trip)
        })
        .node("hotel", async |_cx, mut trip| {
            let (name, price) =
                if trip.budget / trip.people >= 200 { ("Grand Hotel", 190) } else { ("Pension Anna", 80) };
            trip.hotel = name.to_owned();
            trip.spent += price * trip.people;
            let beds = format!("{} beds at {name}", trip.people);
            trip.bookings.push(beds);
            Ok(trip)
        })
        .node("train", async |_cx, mut trip| {
            trip.spent += 25 * trip.people;
            let seats = format!("{} seats", trip.people);
            trip.bookings.push(seats);
            Ok(trip)
        })
        .node("guide", async |_cx, mut trip| {
            trip.spent += 60;
            trip.bookings.push("a guide".to_owned());
            Ok(trip)
        })
        .entry("plan")
        .edge("plan", "hotel")
        .edge("hotel", "train")
        .route("train", ["guide"], |trip, _| {
            if trip.spent + 60 <= trip.budget { Route::to("guide") } else { Route::none() }
        })
        .build()?;
    Ok(graph)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let graph = graph()?;
    let runtime = Runtime::builder_with(ferrata::connect("memory:")?).build().await?;
    let trip = RunKey::try_from("trip")?;

    let run = runtime.start(&graph, Trip { budget: 485, ..Trip::default() }).id("trip").await?;
    let first = run.completed().await?;
    println!("as it was: {}, {} spent of {}", first.bookings.join(", "), first.spent, first.budget);

    // Every record is a position that can be read.
    let planned: Position = "plan@1".parse()?;
    let then = runtime.state_at(&graph, &trip, planned.clone()).await?;
    println!("\nafter `plan`: {} people, {} booked", then.people, then.bookings.len());
    let there = runtime.checkpoint(&trip, planned.clone()).await?;
    println!("what ran next: {}", there.next[0].node);

    // The fork has only two travelers.
    let change = Patch::from_ops(&[Op::Set("people".into(), 2.into())])?;
    let fork = runtime.fork(&trip, planned).id("trip-for-two").edit(change).drive(&graph).await?;
    let second = fork.completed().await?;
    println!("\nfor two: {}, {} spent of {}", second.bookings.join(", "), second.spent, second.budget);
    for ancestor in runtime.lineage(fork.run()).await? {
        let from =
            ancestor.forked_at.map_or_else(String::new, |seq: Seq| format!(", forked at record {seq}"));
        println!("  {}{from}", ancestor.run.run);
    }

    println!("\nwhat differs in the end:");
    let (one, two) = (serde_json::to_value(&first)?, serde_json::to_value(&second)?);
    for change in ferrata::runtime::Diff::between(&one, &two).changes {
        match change {
            Change::Replace { path, value, before } => println!("  {path}: {before} became {value}"),
            Change::Add { path, value } => println!("  {path}: {value} is new"),
            Change::Remove { path, before } => println!("  {path}: {before} is gone"),
            _ => {}
        }
    }
    // The source run is unchanged.
    assert_eq!(runtime.state_at(&graph, &trip, Position::Latest).await?.bookings, first.bookings);
    Ok(())
}
