//! Authentication: every request except `/health` passes this hook before a route sees it.
//!
//! Replace [`Keys`] by your own check: a session, a JWT or a certificate. The routes only need a [`Caller`].

use std::path::Path;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::http::Refusal;

/// The sender of a request. Routes use this name, and never a name in the body, which the sender can choose.
#[derive(Clone, Debug)]
pub(crate) struct Caller(pub(crate) String);

/// The clients that may send requests.
pub(crate) enum Keys {
    /// Every client that can reach the replica. Use it on your own machine.
    Open,
    /// Clients that send one of these keys. Each key has a name.
    Of(Vec<(String, String)>),
}

impl std::fmt::Debug for Keys {
    /// Writes the value without its keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Open => f.write_str("Open"),
            Self::Of(keys) => f.debug_list().entries(keys.iter().map(|(name, _)| name)).finish(),
        }
    }
}

impl Keys {
    /// Reads a file with lines of the form `NAME KEY`.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, or a line has another form. The error names the line, but contains no key.
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

    /// Returns the caller whose key the request contains.
    pub(crate) fn caller(&self, sent: Option<&str>) -> Option<Caller> {
        match self {
            Self::Open => Some(Caller("anybody".to_owned())),
            Self::Of(keys) => {
                let sent = sent?.strip_prefix("Bearer ")?;
                // Compare with all keys, so that the duration does not show which key matched.
                let found = keys
                    .iter()
                    .fold(None, |found, (name, key)| if is_same(key, sent) { Some(name) } else { found });
                found.cloned().map(Caller)
            }
        }
    }
}

/// Minimum number of characters of a key. A shorter key could be guessed.
const LEAST: usize = 16;

/// Compares two texts in a time that does not depend on the position of their first difference.
fn is_same(one: &str, other: &str) -> bool {
    let differ = one.bytes().zip(other.bytes()).fold(0, |differ, (one, other)| differ | (one ^ other));
    one.len() == other.len() && differ == 0
}

/// Rejects a request without a valid key, and tells the routes who sent a valid one.
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
