//! The server's time, from its responses. Ages use this clock only, never a client's.

use std::cell::Cell;
use std::future::Future;

use aws_sdk_s3::primitives::{DateTime, DateTimeFormat};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::context::BeforeDeserializationInterceptorContextRef;
use aws_smithy_runtime_api::client::interceptors::{Intercept, dyn_dispatch_hint};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::ConfigBag;

/// Milliseconds since 1970, to the second.
pub(crate) type ServerTime = i64;

tokio::task_local! {
    /// The time of the pending response. The SDK returns only the parts of a response that its operation knows, and an interceptor for each request
    /// would rebuild the configuration each time.
    static ANSWERED: Cell<Option<ServerTime>>;
}

/// Waits for an answer, and says when the server gave it; `None` if it did not say. For futures on the heap: the SDK's are large,
/// and would be copied.
pub(crate) async fn timed<T>(answer: impl Future<Output = T> + Unpin) -> (T, Option<ServerTime>) {
    let timed = async {
        let answer = answer.await;
        (answer, ANSWERED.with(Cell::get))
    };
    ANSWERED.scope(Cell::new(None), timed).await
}

pub(crate) fn millis(time: &DateTime) -> ServerTime {
    time.to_millis().unwrap_or(i64::MAX)
}

/// Reads the time from every answer.
#[derive(Debug)]
pub(crate) struct DateInterceptor;

#[dyn_dispatch_hint]
impl Intercept for DateInterceptor {
    fn name(&self) -> &'static str {
        "Dates"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let date = context.response().headers().get("date");
        if let Some(date) = date.and_then(|date| DateTime::from_str(date, DateTimeFormat::HttpDate).ok()) {
            // Not every request asks for it.
            let _asked = ANSWERED.try_with(|at| at.set(Some(millis(&date))));
        }
        Ok(())
    }
}
