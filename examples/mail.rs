//! Mails for ten customers, through a provider that accepts two mails at once and four per second, for all processes together.
//!
//! ```text
//! cargo run --example mail
//! ```
//!
//! Start it in several terminals, and kill any of them with `kill -9`. Each mail is sent once, the provider never has more than two at once, and
//! other processes send the mails of a dead process. `cargo run -p ferrata-cli -- --store file:.ferrata-mail state queue:provider` lists the holders
//! of slots and the waiters.
#![expect(clippy::print_stdout, reason = "what is sent is what the program is for")]

use std::error::Error;
use std::time::Duration;

use ferrata::prelude::*;

/// Sends a mail through the provider.
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
        // Every process starts the same ids, and each id stands for one run.
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
