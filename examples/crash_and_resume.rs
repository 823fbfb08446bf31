//! A process is killed in the middle of a chain. The next process continues after the last recorded node.
//!
//! ```text
//! cargo run --example crash_and_resume [-- --store URL]
//! ```
//!
//! The program starts itself as a child process, kills it with `kill -9`, and then claims its run.
#![expect(clippy::print_stdout, reason = "it shows what happens")]
#![expect(clippy::print_stderr, reason = "errors of a command go there")]

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};

use ferrata::prelude::*;
use ferrata::{Clock, IdSource, RandomIds, SystemClock};
use serde::{Deserialize, Serialize};

const USAGE: &str = "\
usage: crash_and_resume [--store URL]

  --store URL  where the run is recorded (default: file:.ferrata)";

const STORE: &str = "file:.ferrata";

const CHAIN: [&str; 5] = ["fetch", "parse", "check", "store", "notify"];

/// The line by which the child asks to be killed.
const KILL_ME: &str = "stops in `check` and waits for its end";

#[derive(Clone, Debug, Default, Serialize, Deserialize, State)]
struct Order {
    #[state(append)]
    done: Vec<String>,
}

/// Whether this process is the one that is killed.
struct Dies(bool);

async fn work(cx: NodeContext, _order: Draft<Order>) -> NodeResult<Order> {
    let (node, process) = (cx.node(), std::process::id());
    if node.as_str() == "check" && cx.resource::<Dies>().0 {
        println!("process {process}: {KILL_ME}");
        std::future::pending::<()>().await;
    }
    println!("process {process}: `{node}`");
    Ok(Order::update().done([format!("`{node}` by process {process}")]).into())
}

fn graph() -> Result<Graph<Order>, GraphError> {
    let mut builder = Graph::builder("crash_and_resume").entry(CHAIN[0]);
    for node in CHAIN {
        builder = builder.node(node, work);
    }
    for pair in CHAIN.windows(2) {
        builder = builder.edge(pair[0], pair[1]);
    }
    builder.build()
}

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let ended = match args[..] {
        ["-h" | "--help"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        [] => crash_and_resume(STORE).await,
        ["--store", url] => crash_and_resume(url).await,
        // The program starts its child with this argument.
        ["--store", url, "--child", id] => child(url, id).await,
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn child(url: &str, id: &str) -> Result<(), Box<dyn Error>> {
    let store = ferrata_examples::open(url)?;
    let runtime = Runtime::builder_with(store).resource(Dies(true)).build().await?;
    runtime.start(&graph()?, Order::default()).id(id).await?.wait().await?;
    Err("this process was to be killed".into())
}

async fn crash_and_resume(url: &str) -> Result<(), Box<dyn Error>> {
    let store = ferrata_examples::open(url)?;
    let id = format!("crash-{}", RandomIds::new().next(SystemClock::new().now()));
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--store", url, "--child", &id])
        .stdout(Stdio::piped())
        .spawn()?;
    let said = child.stdout.take().ok_or("the child has no output")?;
    for line in BufReader::new(said).lines() {
        let line = line?;
        println!("{line}");
        if line.ends_with(KILL_ME) {
            // SIGKILL: the child cannot catch it.
            child.kill()?;
        }
    }
    println!("the child ended with {}; process {} continues", child.wait()?, std::process::id());

    let runtime = Runtime::builder_with(store).resource(Dies(false)).build().await?;
    // This process knows that the child is dead. Most stores only miss its heartbeats, so a resume would wait some seconds.
    let run = runtime.resume(&graph()?, id.as_str()).take_over().await?;
    let order = run.wait().await?.completed().ok_or("the run did not complete")?;
    println!("\nwhat the run recorded:");
    for line in order.done {
        println!("  {line}");
    }
    runtime.shutdown(std::time::Duration::ZERO).await?;
    Ok(())
}
