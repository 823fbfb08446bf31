//! The routes: the page, and the JSON API below `api/v1`.

mod acts;
mod bulk;
mod diff;
mod events;
mod family;
mod fleet;
mod meta;
mod openapi;
mod questions;
mod queue_acts;
mod records;
mod repeats;
mod report;
mod run;
mod run_poller;
mod runs;
pub(crate) mod schedules;
mod state;

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Router, middleware};

use crate::app::AppContext;
use crate::problem::Problem;
use crate::{assets, guard, redact};

/// Maximum size of the body of an act in bytes. The limit is the size of the largest edit that a store would accept.
const MOST: usize = 8 * 1024 * 1024;

/// Creates the routes.
pub(crate) fn routes(app: Arc<AppContext>) -> Router {
    let admitted = middleware::from_fn_with_state(Arc::clone(&app), guard::admit);
    let api = Router::new()
        .route("/api/v1", get(meta::meta))
        .route("/api/v1/runs", get(runs::list))
        .route("/api/v1/briefs", get(runs::briefs))
        .route("/api/v1/questions", get(questions::list))
        .route("/api/v1/fleet", get(fleet::fleet))
        .route("/api/v1/schedules", get(schedules::list))
        .route("/api/v1/runs/{tenant}/{run}", get(run::show))
        .route("/api/v1/runs/{tenant}/{run}/family", get(family::family))
        .route("/api/v1/runs/{tenant}/{run}/records", get(records::list))
        .route("/api/v1/runs/{tenant}/{run}/repeats", get(repeats::list))
        .route("/api/v1/runs/{tenant}/{run}/state", get(state::show))
        .route("/api/v1/runs/{tenant}/{run}/diff", get(diff::show))
        .route("/api/v1/runs/{tenant}/{run}/post-mortem", get(report::show))
        .route("/api/v1/runs/{tenant}/{run}/events", get(events::follow))
        .route("/api/v1/runs/{tenant}/{run}/acts/{act}", post(acts::act))
        .route("/api/v1/bulk/{act}", post(bulk::bulk))
        .route("/api/v1/queues/{queue}/acts/{act}", post(queue_acts::act))
        .route("/api/v1/openapi.json", get(openapi::show))
        .route("/api/{*rest}", get(missing).post(missing))
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(MOST))
        .layer(middleware::from_fn_with_state(Arc::clone(&app), redact::seal))
        .layer(admitted);
    let page = Router::new()
        .route("/", get(assets::root))
        .fallback(assets::serve)
        .layer(middleware::from_fn_with_state(Arc::clone(&app), guard::admit_to_page));
    page.merge(api).layer(middleware::from_fn(guard::seal)).with_state(app)
}

async fn missing(State(_): State<Arc<AppContext>>) -> Problem {
    Problem::not_found("the API has no such path; `api/v1/openapi.json` lists them")
}

async fn wrong_method(State(_): State<Arc<AppContext>>) -> impl IntoResponse {
    (
        StatusCode::METHOD_NOT_ALLOWED,
        axum::Json(
            serde_json::json!({ "code": "INVALID", "message": "this path does not support this method" }),
        ),
    )
}

#[cfg(test)]
mod tests {
    /// The OpenAPI document describes each route, and each described route exists.
    #[test]
    fn the_description_has_each_path_that_is_served() {
        let source = include_str!("mod.rs");
        let served: Vec<&str> = source
            .lines()
            .filter_map(|line| line.trim().strip_prefix(".route(\"/api/v1"))
            .filter_map(|rest| rest.split('"').next())
            .map(|path| if path.is_empty() { "/" } else { path })
            .filter(|path| *path != "/openapi.json")
            .collect();
        let described = super::openapi::document();
        let described: Vec<&str> =
            described["paths"].as_object().unwrap().keys().map(String::as_str).collect();
        let mut sorted = served;
        sorted.sort_unstable();
        assert_eq!(sorted, described);
    }
}
