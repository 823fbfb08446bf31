//! The answer to a client whose request was rejected.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ferrata_core::{Error, ErrorKind, RunKey};
use serde_json::json;

/// The reason why a request was rejected.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl Problem {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, ErrorKind::Invalid.code(), message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, ErrorKind::NotFound.code(), message)
    }

    /// Creates the answer for a run that does not exist or that the viewer may not see. The text is the same in both cases.
    pub(crate) fn no_run(run: &RunKey) -> Self {
        Self::not_found(format!("cannot find the run {run}"))
    }

    pub(crate) fn unauthorized() -> Self {
        let message = "this inspector requires a token, or the login of the service";
        Self::new(StatusCode::UNAUTHORIZED, "UNAUTHORIZED", message)
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "FORBIDDEN", message)
    }

    pub(crate) fn wrong_host(message: impl Into<String>) -> Self {
        Self::new(StatusCode::MISDIRECTED_REQUEST, "WRONG_HOST", message)
    }

    pub(crate) fn not_json() -> Self {
        let message = "send JSON, with `content-type: application/json`";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, ErrorKind::Invalid.code(), message)
    }

    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, ErrorKind::TooLarge.code(), message)
    }

    pub(crate) fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL", "the inspector failed to build the answer")
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::AlreadyExists
            | ErrorKind::Conflict
            | ErrorKind::WrongStatus
            | ErrorKind::Fenced
            | ErrorKind::GraphChanged => StatusCode::CONFLICT,
            ErrorKind::Invalid => StatusCode::BAD_REQUEST,
            ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorKind::Unavailable | ErrorKind::Indeterminate | ErrorKind::Closed => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            ErrorKind::Unsupported => StatusCode::NOT_IMPLEMENTED,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.kind().code(), error.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self { status, code, message } = self;
        (status, Json(json!({ "code": code, "message": message }))).into_response()
    }
}
