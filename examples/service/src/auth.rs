//! Who asks: the hook that every request but `/health` passes before a route sees it.
//!
//! Put your own in the place of [`Keys`]: a session, a JWT, a certificate. What the routes need is a [`Caller`].

use std::path::Path;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::http::Refusal;

/// Who sent a request. Routes take it from here and never from the body, which says what the sender likes.
#[derive(Clone, Debug)]
pub(crate) struct Caller(pub(crate) String);

/// Who may ask, each with a key.
pub(crate) enum Keys {
    /// Every client that reaches the replica: for a machine of one's own.
    Open,
    /// Whoever sends one of these keys, by name.
    Of(Vec<(String, String)>),
}

impl std::fmt::Debug for Keys {
    /// Never shows a key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Open => f.write_str("Open"),
            Self::Of(keys) => f.debug_list().entries(keys.iter().map(|(name, _)| name)).finish(),
        }
    }
}

impl Keys {
    /// Reads a file of `NAME KEY` lines.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is not that; the error names the line and no key.
    pub(crate) fn read(file: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut keys = Vec::new();
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let Some((name, key)) = line.split_once(' ').filter(|(_, key)| key.trim().len() >= LEAST) else {
                return Err(format!(
                    "{}: line {} is no `NAME KEY` with a key of {LEAST} characters at least",
                    file.display(),
                    at + 1
                ));
            };
            keys.push((name.to_owned(), key.trim().to_owned()));
        }
        Ok(Self::Of(keys))
    }

    /// Returns who has the key that a request was sent with.
    pub(crate) fn caller(&self, sent: Option<&str>) -> Option<Caller> {
        match self {
            Self::Open => Some(Caller("anybody".to_owned())),
            Self::Of(keys) => {
                let sent = sent?.strip_prefix("Bearer ")?;
                // All are looked at, so that the time taken tells nothing of where one is.
                let found = keys
                    .iter()
                    .fold(None, |found, (name, key)| if is_same(key, sent) { Some(name) } else { found });
                found.cloned().map(Caller)
            }
        }
    }
}

/// The fewest characters of a key: less is guessed.
const LEAST: usize = 16;

/// Compares in a time that does not depend on where the two differ.
fn is_same(one: &str, other: &str) -> bool {
    let differ = one.bytes().zip(other.bytes()).fold(0, |differ, (one, other)| differ | (one ^ other));
    one.len() == other.len() && differ == 0
}

/// Refuses who has no key, and tells the routes who has.
pub(crate) async fn authenticate(
    State(keys): State<Arc<Keys>>,
    mut request: Request,
    next: Next,
) -> Response {
    let sent = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    match keys.caller(sent) {
        Some(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        None => {
            let message = "send a key: `authorization: Bearer KEY`";
            Refusal::new(StatusCode::UNAUTHORIZED, "UNAUTHORIZED", message).into_response()
        }
    }
}
