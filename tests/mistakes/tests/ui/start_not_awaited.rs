//! A start that is not awaited does not start a run.

use ferrata::prelude::*;

async fn run(runtime: &Runtime, graph: &Graph<Context>) {
    let _ = runtime.start(graph, Context::new()).completed().await;
}

fn main() {}
