//! An async closure that captures a client is not `Fn`; pass the client as a resource.

use ferrata::prelude::*;

struct Client;

impl Client {
    async fn call(&self) {}
}

fn main() {
    let client = Client;
    let _ = Graph::<Context>::builder("g").node("call", async move |_cx, s| {
        client.call().await;
        Ok(s)
    });
}
