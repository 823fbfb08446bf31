//! The checks of every request: an allowed host, the page's own origin, the token, and the service's own authentication.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::app::AppContext;
use crate::problem::Problem;

/// The content security policy: only the page's own scripts and styles run, and no other site may frame the page. Style attributes of elements are
/// not trusted.
const POLICY: &str = "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The host names under which a machine reaches itself.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// The rules that decide which requests are admitted.
#[derive(Clone, Default)]
pub(crate) struct Guard {
    pub(crate) hosts: BTreeSet<String>,
    pub(crate) any_host: bool,
    pub(crate) token: Option<String>,
}

impl fmt::Debug for Guard {
    /// Does not print the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.as_ref().map(|_| "…");
        f.debug_struct("Guard")
            .field("hosts", &self.hosts)
            .field("any_host", &self.any_host)
            .field("token", &token)
            .finish()
    }
}

impl Guard {
    /// Rejects requests that the page of another site could send, across origins or through a host name that resolves to this machine.
    fn check_sender(&self, parts: &Parts) -> Result<(), Problem> {
        let authority = authority(parts);
        let host = authority.as_deref().map(host_of).unwrap_or_default();
        let is_meant = self.any_host || LOOPBACK.contains(&host) || self.hosts.contains(host);
        if !is_meant {
            let message = "this name is not a host of the inspector; open it as localhost, or add the host with `--host` or `allow_host`";
            return Err(Problem::wrong_host(message));
        }
        let of_others = Problem::forbidden("requests from pages of other origins are rejected");
        if let Some(origin) = parts.headers.get(header::ORIGIN) {
            let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
            let is_own = origin.is_some_and(|(_, origin)| {
                authority.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(origin))
            });
            if !is_own {
                return Err(of_others);
            }
        }
        // A browser may follow a link to this page, but the page of another site cannot read the answer.
        let is_followed = parts.method == Method::GET && is(&parts.headers, "sec-fetch-mode", "navigate");
        let site = parts.headers.get("sec-fetch-site").and_then(|site| site.to_str().ok());
        match site {
            Some("cross-site" | "same-site") if !is_followed => Err(of_others),
            _ => Ok(()),
        }
    }

    fn check_token(&self, parts: &Parts) -> Result<(), Problem> {
        let Some(token) = &self.token else { return Ok(()) };
        let sent = parts.headers.get(header::AUTHORIZATION).and_then(|sent| sent.to_str().ok());
        match sent.and_then(|sent| sent.strip_prefix("Bearer ")) {
            Some(sent) if is_same(token, sent) => Ok(()),
            _ => Err(Problem::unauthorized()),
        }
    }
}

/// Admits an authorized request, and passes its viewer to the routes.
pub(crate) async fn admit(State(app): State<Arc<AppContext>>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let admitted = app
        .guard
        .check_sender(&parts)
        .and_then(|()| app.guard.check_token(&parts))
        .and_then(|()| app.access.viewer(&parts).ok_or_else(Problem::unauthorized));
    match admitted {
        Ok(viewer) => {
            parts.extensions.insert(viewer);
            next.run(Request::from_parts(parts, body)).await
        }
        Err(problem) => problem.into_response(),
    }
}

/// Admits requests for the page itself. The page contains no data of any run.
pub(crate) async fn admit_to_page(
    State(app): State<Arc<AppContext>>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    match app.guard.check_sender(&parts) {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(problem) => problem.into_response(),
    }
}

/// Adds the security headers for browsers to every response.
pub(crate) async fn seal(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let said = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    for (name, value) in said {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let own =
        [("cross-origin-resource-policy", "same-origin"), ("cross-origin-opener-policy", "same-origin")];
    for (name, value) in own {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

fn is(headers: &HeaderMap, name: &str, value: &str) -> bool {
    headers.get(name).is_some_and(|sent| sent == value)
}

/// Returns the host name and port of the request.
fn authority(parts: &Parts) -> Option<String> {
    let sent = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok()).map(str::to_owned);
    sent.or_else(|| parts.uri.authority().map(ToString::to_string)).map(|host| host.to_ascii_lowercase())
}

/// Returns the host name without the port.
fn host_of(authority: &str) -> &str {
    match authority.rfind(']') {
        Some(end) => &authority[..=end],
        None => authority.split_once(':').map_or(authority, |(host, _)| host),
    }
}

/// Compares two texts in constant time.
fn is_same(one: &str, other: &str) -> bool {
    let differ = one.bytes().zip(other.bytes()).fold(0, |differ, (one, other)| differ | (one ^ other));
    one.len() == other.len() && differ == 0
}
