//! A process dies in the middle of a chain; the next one goes on behind the last node that ended.
//!
//! Without arguments the program starts itself as a child that dies, and then takes the child's run up.
#![expect(clippy::print_stdout, reason = "it shows what happens")]

use std::error::Error;
use std::process::Command;

use ferrata::prelude::*;
use ferrata::{Clock, IdSource, RandomIds, SystemClock};
use serde::{Deserialize, Serialize};

const CHAIN: [&str; 5] = ["fetch", "parse", "check", "store", "notify"];

#[derive(Clone, Debug, Default, Serialize, Deserialize, State)]
struct Order {
    #[state(append)]
    done: Vec<String>,
}

/// Whether this process is the one to die.
struct Dies(bool);

async fn work(cx: NodeContext, _order: Draft<Order>) -> NodeResult<Order> {
    let (node, process) = (cx.node(), std::process::id());
    if node.as_str() == "check" && cx.resource::<Dies>().0 {
        println!("process {process}: dies in `{node}`");
        std::process::abort();
    }
    println!("process {process}: `{node}`");
    Ok(Order::update().done([format!("`{node}` by process {process}")]).into())
}

fn graph() -> Result<Graph<Order>, Box<dyn Error>> {
    let mut builder = Graph::builder("crash_and_resume").entry(CHAIN[0]);
    for node in CHAIN {
        builder = builder.node(node, work);
    }
    for pair in CHAIN.windows(2) {
        builder = builder.edge(pair[0], pair[1]);
    }
    Ok(builder.build()?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (graph, store) = (graph()?, ferrata::connect("file:.ferrata")?);
    if let Some(id) = std::env::args().nth(1) {
        let runtime = Runtime::builder_with(store).resource(Dies(true)).build().await?;
        runtime.start(&graph, Order::default()).id(id).await?.wait().await?;
        return Err("this process was to die".into());
    }
    let id = format!("crash-{}", RandomIds::new().next(SystemClock::new().now()));
    let status = Command::new(std::env::current_exe()?).arg(&id).status()?;
    println!("the child ended with {status}; process {} goes on", std::process::id());

    let runtime = Runtime::builder_with(store).resource(Dies(false)).build().await?;
    let run = runtime.resume(&graph, id.as_str()).await?;
    let order = run.wait().await?.completed().ok_or("the run did not complete")?;
    println!("\nwhat the run recorded:");
    for line in order.done {
        println!("  {line}");
    }
    Ok(())
}
