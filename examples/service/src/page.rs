//! The page that shows the progress of an order. Its two files are compiled in, and its policy lets the browser run no other script.

use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// The browser loads scripts only from this replica, even if the page showed a text of a customer as markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Creates the routes of the page. The routes contain no data of orders, which the script requests separately.
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
