//! The page that shows an order as it goes on: two files that are compiled in, and a policy that lets the browser run nothing else.

use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// The browser loads scripts from here and nothing from elsewhere, also if the page were to show what a customer wrote as markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Makes the routes of the page. They show nothing of an order: the script asks for that.
pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/", get(async || file("text/html; charset=utf-8", include_str!("page.html"))))
        .route("/page.js", get(async || file("text/javascript; charset=utf-8", include_str!("page.js"))))
}

fn file(kind: &'static str, text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (headers, text).into_response()
}
