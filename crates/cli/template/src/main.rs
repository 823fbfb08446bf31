//! Starts one run, or continues it if the program was killed.

use ferrata::prelude::*;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = std::env::var("FERRATA_STORE").unwrap_or_else(|_| "file:.ferrata/store".to_owned());
    let runtime = Runtime::builder_with(ferrata::connect(&store)?).build().await?;
    println!("order-1 asks for approval; in another terminal: ferrata answer order-1 yes");
    let receipt = runtime.call(&flow("order", starter::order), 120).id("order-1").await?;
    println!("{receipt}");
    Ok(())
}
