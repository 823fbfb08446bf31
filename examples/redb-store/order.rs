//! An order whose steps are stored in a `redb` file. Kill the program while it waits, and start it again.
//!
//! ```text
//! cargo run -p ferrata-example-redb-store --example redb_order
//! ```
//!
//! The second start reserves nothing again, and waits only for the remaining time.
#![expect(clippy::print_stdout, reason = "the steps are what the program shows")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use ferrata::SystemClock;
use ferrata::prelude::*;
use ferrata_example_redb_store::RedbStore;
use redb::Database;

async fn fulfil(cx: FlowContext, order: u64) -> Result<String, FlowError> {
    let reserve = || async {
        println!("reserve the stock of order {order}");
        Ok::<_, FlowError>(format!("stock-{order}"))
    };
    let stock = cx.step("reserve", reserve).await?;
    println!("wait ten seconds: kill the program now, and start it again");
    cx.sleep("grace period", Duration::from_secs(10)).await;
    let ship = || async {
        println!("ship {stock}");
        Ok::<_, FlowError>(format!("parcel-{order}"))
    };
    cx.step("ship", ship).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).unwrap_or_else(|| "orders.redb".into());
    let store = RedbStore::new(Arc::new(Database::create(path)?), Arc::new(SystemClock::new()));
    let fulfil = flow("fulfil", fulfil);
    let runtime = Runtime::builder(store).build().await?;
    runtime.serve(fulfil.graph()?)?;
    println!("the order is {}", runtime.call(&fulfil, 7).id("order-7").await?);
    runtime.shutdown(Duration::from_secs(1)).await?;
    Ok(())
}
