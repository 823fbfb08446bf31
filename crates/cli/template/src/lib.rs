//! A durable function. Its runs survive the end of the process.

use std::time::Duration;

use ferrata::prelude::*;

/// The time for the approval of an order.
const APPROVAL_TIME: Duration = Duration::from_secs(3 * 86_400);

/// Reserves a slot, asks for approval, and pays.
///
/// # Errors
///
/// Fails if the order is not approved in time. The reservation is then released.
pub async fn order(cx: FlowContext, amount: u32) -> Result<String, FlowError> {
    // A step records its result. After a crash it returns the result and does not run again.
    let slot = cx.step("reserve", || async { Ok::<_, FlowError>("shelf 7".to_owned()) }).await?;
    // Runs if the function fails later, or if the run is cancelled.
    cx.compensate("release", || async { Ok::<_, FlowError>(()) });
    // The process may end during the wait. Any process that serves the function continues the run.
    let is_approved = tokio::select! {
        answer = cx.ask::<bool>("approve", format!("Pay {amount} EUR?")) => answer?,
        () = cx.sleep("give up", APPROVAL_TIME) => false,
    };
    if !is_approved {
        return Err(FlowError::fatal("not approved"));
    }
    // A crash may repeat a step that was at work. Add `.external()` if that must not happen.
    let receipt = format!("paid {amount} EUR for {slot}");
    cx.step("pay", || std::future::ready(Ok::<_, FlowError>(receipt.clone()))).await
}
