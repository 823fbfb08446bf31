//! The smallest durable run. A second start with the same id returns the same run.
#![expect(clippy::print_stdout, reason = "it says hello")]

use ferrata::prelude::*;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let graph = Graph::<Context>::builder("hello")
        .node("greet", async |_cx, mut s| {
            s.set("greeting", format!("hello from process {}", std::process::id()))?;
            Ok(s)
        })
        .entry("greet")
        .build()?;
    let runtime = Runtime::builder_with(ferrata::connect("file:.ferrata")?).build().await?;
    let run = runtime.start(&graph, Context::new()).id("hello").await?;
    if let Outcome::Completed(state) = run.wait().await? {
        println!("{}", state.get::<String>("greeting")?.unwrap_or_default());
    }
    Ok(())
}
