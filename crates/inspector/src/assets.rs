//! The files of the built page. The crate contains them.

use std::sync::Arc;

use axum::extract::{OriginalUri, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::app::AppContext;
use crate::problem::Problem;

/// A file of the page.
struct Asset {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

/// The files that `cargo xtask ui` builds from `ui/`. The gate checks that they are current.
const ASSETS: [Asset; 5] = [
    Asset {
        name: "index.html",
        kind: "text/html; charset=utf-8",
        bytes: include_bytes!("../assets/index.html"),
    },
    Asset {
        name: "app.js",
        kind: "text/javascript; charset=utf-8",
        bytes: include_bytes!("../assets/app.js"),
    },
    Asset {
        name: "layout.js",
        kind: "text/javascript; charset=utf-8",
        bytes: include_bytes!("../assets/layout.js"),
    },
    Asset { name: "app.css", kind: "text/css; charset=utf-8", bytes: include_bytes!("../assets/app.css") },
    Asset { name: "icon.svg", kind: "image/svg+xml", bytes: include_bytes!("../assets/icon.svg") },
];

/// Serves the page, or one of its files.
pub(crate) async fn serve(
    State(_): State<Arc<AppContext>>,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
) -> Response {
    let name = match uri.path().rsplit_once('/') {
        Some((_, "")) | None => "index.html",
        Some((_, name)) => name,
    };
    match ASSETS.iter().find(|asset| asset.name == name) {
        Some(asset) => answer(asset.kind, asset.bytes, &headers),
        None => Problem::not_found("cannot find the page").into_response(),
    }
}

/// Serves the page at the root of a nested router. Without a trailing slash in the address, relative paths of the page's files must begin with the
/// last segment of the address.
pub(crate) async fn root(OriginalUri(uri): OriginalUri, headers: HeaderMap) -> Response {
    let page = &ASSETS[0];
    let last = uri.path().rsplit('/').next().unwrap_or_default();
    // The router matched this segment, but check it, because the code writes it into HTML.
    let is_plain = last.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte));
    if last.is_empty() || !is_plain {
        return answer(page.kind, page.bytes, &headers);
    }
    let text = String::from_utf8_lossy(page.bytes).replace("\"./", &format!("\"./{last}/"));
    answer(page.kind, text.into_bytes(), &headers)
}

fn answer(kind: &'static str, bytes: impl AsRef<[u8]> + IntoResponse, headers: &HeaderMap) -> Response {
    let tag = format!("\"{:x}\"", checksum(bytes.as_ref()));
    let known = headers.get(header::IF_NONE_MATCH).and_then(|known| known.to_str().ok());
    let is_known = known == Some(tag.as_str());
    let fresh = [(header::ETAG, tag), (header::CACHE_CONTROL, "no-cache".to_owned())];
    if is_known {
        return (StatusCode::NOT_MODIFIED, fresh).into_response();
    }
    (fresh, [(header::CONTENT_TYPE, kind)], bytes).into_response()
}

/// Computes an FNV-1a hash, which only needs to distinguish one build from another.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
