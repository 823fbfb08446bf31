//! The post-mortem of a run, as Markdown.

use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use ferrata_core::runtime::Position;

use super::state::read;
use crate::app::Call;
use crate::problem::Problem;

/// What stands before the state, which is the last thing of a post-mortem. Texts of others are single lines, so they cannot hold it.
const STATE: &str = "\n## The state\n";

/// Answers `GET /api/v1/runs/{tenant}/{run}/post-mortem`.
pub(super) async fn show(call: Call, Path(name): Path<(String, String)>) -> Result<Response, Problem> {
    call.params(&[])?;
    let run = call.run(&name)?;
    let mut text = call.runtime().post_mortem(&run).await?;
    if !call.app.redaction.is_empty() {
        // It is handed on: also a viewer who may see what is secret gets none of it.
        let state = read(&call, &run, Position::Latest, false).await?;
        text.truncate(text.rfind(STATE).unwrap_or(0));
        let hidden: Vec<_> = text.lines().map(|line| call.app.redaction.text(line)).collect();
        text = hidden.join("\n");
        text.push_str(&format!("\n{STATE}\n```json\n{state:#}\n```\n"));
    }
    Ok(([(header::CONTENT_TYPE, "text/markdown; charset=utf-8")], text).into_response())
}
