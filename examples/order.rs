//! An order as a durable function. Kill the program while it waits, and start it again.
//!
//! ```text
//! cargo run --example order -- 7
//! ```
//!
//! The second start replays the records of the first. The second start makes no second reservation, and waits only for the remaining time.
#![expect(clippy::print_stdout, reason = "the steps are what the program shows")]

use std::error::Error;
use std::time::Duration;

use ferrata::prelude::*;

async fn reserve(order: u64) -> Result<String, FlowError> {
    println!("reserve the stock of order {order}");
    Ok(format!("stock-{order}"))
}

async fn fulfil(cx: FlowContext, order: u64) -> Result<String, FlowError> {
    let stock = cx.step("reserve", || reserve(order)).retry(RetryPolicy::standard()).await?;
    let reserved = stock.clone();
    cx.compensate("release", move || {
        println!("release {reserved}");
        std::future::ready(Ok::<_, FlowError>(()))
    });

    println!("wait ten seconds: kill the program now, and start it again");
    cx.sleep("grace period", Duration::from_secs(10)).await;

    let pay = || async {
        println!("pay order {order}");
        Ok::<_, FlowError>(order * 10)
    };
    let paid = cx.step("pay", pay).external().await?;
    Ok(format!("{stock} is sold for {paid} EUR"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let order: u64 = args.next().unwrap_or_else(|| "7".to_owned()).parse()?;
    let store = args.next().unwrap_or_else(|| "file:.ferrata-order".to_owned());
    let fulfil = flow("fulfil", fulfil);
    let runtime = Runtime::builder_with(ferrata::connect(&store)?).build().await?;
    runtime.serve(fulfil.graph()?)?;
    println!("{}", runtime.call(&fulfil, order).id(format!("order-{order}")).await?);
    Ok(())
}
