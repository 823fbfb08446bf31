//! Converts caught panics into errors and messages.

use std::any::Any;

use crate::error::{Error, ErrorKind};

/// Returns the message of a panic, if the message is a text.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

/// Creates the error of a request during which code of the application panicked.
pub(crate) fn request_panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic_text(panic);
    let message = format!(
        "the request panicked: {text}; fix the code of the state that panicked, such as its `Serialize`, or report the panic"
    );
    tracing::error!(text, "a request panicked");
    Error::new(ErrorKind::Closed, message)
}
