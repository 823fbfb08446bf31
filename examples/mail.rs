//! Mail for ten customers, through a provider that takes two letters at once and four a second, however many processes send.
//!
//! ```text
//! cargo run --example mail
//! ```
//!
//! Start it in as many terminals as you like, and kill any with `kill -9`: each mail is there once, never more than two are at the provider, and
//! what a dead process had begun is sent by another. `cargo run -p ferrata-cli -- --store file:.ferrata-mail state queue:provider` tells who
//! has a place and who waits.
#![expect(clippy::print_stdout, reason = "what is sent is what the program is for")]

use std::error::Error;
use std::time::Duration;

use ferrata::prelude::*;

/// Gives a mail to the provider.
async fn send(cx: NodeContext, mut s: Draft<Context>) -> Result<Draft<Context>, NodeError> {
    cx.sleep(Duration::from_millis(400)).await?; // the request, with `cx.idempotency_key()` as its key
    println!("process {}: {} is sent", std::process::id(), cx.run().run);
    s.set("sent", true)?;
    Ok(s)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mail =
        Graph::<Context>::builder("mail").node("send", send).limit("provider").entry("send").build()?;
    let runtime = Runtime::builder_with(ferrata::connect("file:.ferrata-mail")?).build().await?;
    runtime.serve(&mail)?;
    runtime.queue("provider").at_once(2).rate(4, Duration::from_secs(1)).declare().await?;
    runtime.queue("mail").at_once(6).at_once_per_key(1).declare().await?;

    let mut mails = Vec::new();
    for n in 0..20 {
        // Every process starts the same twenty, and each of them is one run.
        let start = runtime.start(&mail, Context::new()).id(format!("mail-{n}")).queue("mail");
        let urgent = if n == 19 { 5 } else { 0 };
        mails.push(start.key(format!("customer-{}", n % 10)).priority(urgent).await?);
    }
    for mail in mails {
        mail.wait().await?;
    }
    println!("all mails are sent");
    runtime.drain().await?;
    Ok(())
}
