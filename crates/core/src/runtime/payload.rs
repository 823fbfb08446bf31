//! Encodes values that the application sends to a run: its configuration and messages.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Serialize;

use crate::error::{Error, ErrorKind, Result};
use crate::panics::request_panicked;
use crate::record::body::FanOutItem;
use crate::state::strict;

/// Serializes a value of the application. If its `Serialize` panics, the request fails, and the caller does not panic.
pub(crate) fn encode_payload(value: &impl Serialize) -> Result<FanOutItem> {
    let text = catch_unwind(AssertUnwindSafe(|| strict::to_raw_value(value)))
        .unwrap_or_else(|panic| Err(request_panicked(&*panic)))?;
    Ok(FanOutItem(text.into()))
}

/// Returns an error if a value is larger than the limit.
pub(crate) fn check_payload_size(what: &str, text: Result<FanOutItem>, most: usize) -> Result<FanOutItem> {
    let text = text?;
    match text.0.get().len() {
        bytes if bytes > most => {
            let message = format!(
                "the {what} has {bytes} bytes, and at most {most} are allowed; send a reference instead"
            );
            Err(Error::new(ErrorKind::TooLarge, message))
        }
        _ => Ok(text),
    }
}
