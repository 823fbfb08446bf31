//! The post-mortem of a run, as Markdown.

use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use ferrata_core::runtime::Position;

use super::state::read;
use crate::app::ApiCall;
use crate::problem::Problem;

/// The heading before the state, which is the last part of a post-mortem. Untrusted texts have only one line each, so they cannot contain this
/// heading.
const STATE: &str = "\n## The state\n";

/// Answers `GET /api/v1/runs/{tenant}/{run}/post-mortem`.
pub(super) async fn show(call: ApiCall, Path(name): Path<(String, String)>) -> Result<Response, Problem> {
    call.params(&[])?;
    let run = call.run(&name)?;
    let mut text = call.runtime().post_mortem(&run).await?;
    if !call.app.redaction.is_empty() {
        // People pass the report on, so it contains no secrets, even if the viewer may see them.
        let state = read(&call, &run, Position::Latest, false).await?;
        text.truncate(text.rfind(STATE).unwrap_or(0));
        let hidden: Vec<_> = text.lines().map(|line| call.app.redaction.text(line)).collect();
        text = hidden.join("\n");
        text.push_str(&format!("\n{STATE}\n```json\n{state:#}\n```\n"));
    }
    Ok(([(header::CONTENT_TYPE, "text/markdown; charset=utf-8")], text).into_response())
}
