//! The server's time, from its responses. The store compares ages only by this clock, never by a client's clock.

use std::cell::Cell;
use std::future::Future;

use aws_sdk_s3::primitives::{DateTime, DateTimeFormat};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::context::BeforeDeserializationInterceptorContextRef;
use aws_smithy_runtime_api::client::interceptors::{Intercept, dyn_dispatch_hint};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::ConfigBag;

/// Milliseconds since 1970, with a precision of one second.
pub(crate) type ServerTime = i64;

tokio::task_local! {
    /// The time of the last response. The SDK returns only the parts of a response that its operation knows. An interceptor per request would
    /// rebuild the configuration for each request.
    static ANSWERED: Cell<Option<ServerTime>>;
}

/// Awaits an answer. Also returns the server's time; `None` if the server did not send it. `answer` should be boxed: the futures of the SDK are
/// large, and would be copied.
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

/// Reads the time from every response.
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
            // Fails if the request did not come through `timed`.
            let _asked = ANSWERED.try_with(|at| at.set(Some(millis(&date))));
        }
        Ok(())
    }
}
