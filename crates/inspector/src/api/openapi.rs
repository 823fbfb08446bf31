//! The OpenAPI 3.1 document of the API.

use axum::Json;
use serde_json::{Map, Value, json};

use crate::app::ApiCall;
use crate::problem::Problem;

/// Answers `GET /api/v1/openapi.json`.
pub(super) async fn show(call: ApiCall) -> Result<Json<Value>, Problem> {
    call.params(&[])?;
    Ok(Json(document()))
}

/// A parameter: its name, its type, and its description.
type Parameter = (&'static str, &'static str, &'static str);

const LIMIT: Parameter = ("limit", "integer", "Maximum number of entries.");
const CURSOR: Parameter = ("cursor", "string", "Where to continue: `next` of the previous page.");
const TENANT: Parameter = ("tenant", "string", "Only runs of this tenant.");
const WORKFLOW: Parameter = ("workflow", "string", "Only runs of this workflow.");
const PLACE: &str = "A position in the log: `latest`, a number, a record id, or `node@visit`.";

/// Each path that a client can read: the path, the description of its answer, and its parameters.
const READS: [(&str, &str, &[Parameter]); 14] = [
    ("/", "Returns the settings of this inspector, and the permissions of the viewer.", &[]),
    (
        "/runs",
        "Lists runs by filters and a search, the newest first, from their heads only.",
        &[
            TENANT,
            WORKFLOW,
            ("status", "string", "Statuses, separated by commas."),
            ("label", "string", "KEY=VALUE; repeatable."),
            ("user", "string", "Only runs for this user."),
            ("since", "integer", "Started at this time or later, in milliseconds since 1970."),
            ("before", "integer", "Started before this time."),
            ("forked_from", "string", "Only forks of this run, as TENANT/ID."),
            ("below", "string", "Only runs in the run tree below this first run, as TENANT/ID."),
            (
                "roots",
                "boolean",
                "Only the first run of each run tree, each with `below`: how many runs are below it.",
            ),
            (
                "system",
                "boolean",
                "Include the runs that are queues and schedules; a `workflow` or a `label` lists them without it.",
            ),
            ("owner", "string", "Only runs that this executor owns."),
            ("filter", "string", "`orphaned` or `due`."),
            ("q", "string", "Words in the id, the workflow, the user or a label."),
            ("order", "string", "`newest` or `oldest` first."),
            LIMIT,
            CURSOR,
        ],
    ),
    (
        "/briefs",
        "Returns where runs failed, and what they wait for.",
        &[("run", "string", "A run, as TENANT/ID; repeatable, at most 50.")],
    ),
    ("/questions", "Lists the open questions of unfinished runs.", &[TENANT, WORKFLOW, LIMIT, CURSOR]),
    ("/fleet", "Returns processes, runs without one, queues, and the capabilities of the store.", &[TENANT]),
    ("/schedules", "Lists schedules with their next and latest ticks.", &[TENANT]),
    (
        "/runs/{tenant}/{run}",
        "Returns a run as of a record: graph, activations, questions.",
        &[
            ("at", "string", PLACE),
            (
                "end",
                "integer",
                "Only the ended activations before this one; use `older` of the previous answer to page back.",
            ),
            ("visit", "string", "Only the page of activations that contains this one, as NODE@VISIT."),
        ],
    ),
    ("/runs/{tenant}/{run}/family", "Returns the lineage, forks, parent and children of a run.", &[LIMIT]),
    (
        "/runs/{tenant}/{run}/records",
        "Describes the records in words: the last ones, or those from a given one on.",
        &[("from", "integer", "The number of the first record."), LIMIT],
    ),
    (
        "/runs/{tenant}/{run}/repeats",
        "Returns the work that a fork from a position may repeat, by node.",
        &[("at", "string", PLACE), ("start_at", "string", "A node that the fork starts at; repeatable.")],
    ),
    (
        "/runs/{tenant}/{run}/state",
        "Returns the state, one level at a time; large parts are cut, and `next` continues.",
        &[
            ("at", "string", PLACE),
            ("path", "string", "A JSON pointer to the value."),
            ("offset", "integer", "The first entry, or the first character of a text."),
            LIMIT,
        ],
    ),
    (
        "/runs/{tenant}/{run}/diff",
        "Compares two states.",
        &[
            ("from", "string", PLACE),
            ("to", "string", PLACE),
            ("of", "string", "The run of `to`, as TENANT/ID, if it is another."),
        ],
    ),
    ("/runs/{tenant}/{run}/post-mortem", "Returns a report of events and causes, as Markdown.", &[]),
    (
        "/runs/{tenant}/{run}/events",
        "Streams events as server-sent events; `Last-Event-ID` continues after the last event of a stream.",
        &[
            ("after", "string", "The id of the last received event; by default the stream starts now."),
            (
                "words",
                "boolean",
                "Include the output of nodes: streams, progress and custom events; omitted if the inspector redacts anything.",
            ),
        ],
    ),
];

/// Builds the document.
pub(super) fn document() -> Value {
    let mut paths = Map::new();
    for (path, about, parameters) in READS {
        let mut all = in_path(path);
        all.extend(parameters.iter().map(|(name, kind, about)| {
            json!({ "name": name, "in": "query", "description": about, "schema": { "type": kind } })
        }));
        let kind = match path.rsplit_once('/') {
            Some((_, "post-mortem")) => "text/markdown",
            Some((_, "events")) => "text/event-stream",
            _ => "application/json",
        };
        let mut answer = Map::new();
        answer.insert(kind.to_owned(), json!({}));
        let get = json!({
            "summary": about,
            "parameters": all,
            "responses": { "200": { "description": about, "content": answer }, "default": { "$ref": "#/components/responses/Problem" } },
        });
        paths.insert(path.to_owned(), json!({ "get": get }));
    }
    let act = "/runs/{tenant}/{run}/acts/{act}";
    paths.insert(act.to_owned(), json!({ "post": acts(act) }));
    let act = "/bulk/{act}";
    paths.insert(act.to_owned(), json!({ "post": bulk(act) }));
    let act = "/queues/{queue}/acts/{act}";
    paths.insert(act.to_owned(), json!({ "post": queue_acts(act) }));
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Ferrata inspector", "version": env!("CARGO_PKG_VERSION"), "description": "Reads runs, and acts on them if the \
            inspector allows it." },
        "servers": [{ "url": "api/v1" }],
        "paths": paths,
        "components": {
            "responses": {
                "Problem": {
                    "description": "Why the request was rejected.",
                    "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Problem" } } },
                }
            },
            "schemas": {
                "Problem": {
                    "type": "object",
                    "required": ["code", "message"],
                    "properties": {
                        "code": { "type": "string", "description": "A code of docs/reference/errors, UNAUTHORIZED, FORBIDDEN, WRONG_HOST or INTERNAL." },
                        "message": { "type": "string" },
                    },
                },
            },
        },
    })
}

fn in_path(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    names
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect()
}

fn acts(path: &str) -> Value {
    let mut parameters = in_path(path);
    for parameter in parameters.iter_mut().filter(|parameter| parameter["name"] == "act") {
        parameter["schema"]["enum"] =
            json!(["answer", "send", "retry", "pause", "unpause", "cancel", "edit", "goto", "fork", "purge"]);
    }
    let text = json!({ "type": "string" });
    let patch = json!({ "type": "array", "items": { "type": "object" }, "description": "Operations, as in docs/reference/format.md." });
    json!({
        "summary": "Acts on a run, and records the author; only if the inspector allows it.",
        "parameters": parameters,
        "requestBody": { "content": { "application/json": { "schema": { "oneOf": [
            { "title": "answer", "type": "object", "required": ["question"], "properties": {
                "question": text, "accept": {}, "reject": text, "cancel": text, "resolve": {} } },
            { "title": "send", "type": "object", "required": ["message"], "properties": { "message": {} } },
            { "title": "retry, unpause, purge", "type": "object", "maxProperties": 0 },
            { "title": "pause, cancel", "type": "object", "properties": { "reason": text } },
            { "title": "edit", "type": "object", "required": ["patch"], "properties": { "patch": patch } },
            { "title": "goto", "type": "object", "required": ["nodes", "reason"], "properties": {
                "nodes": { "type": "array", "items": text }, "reason": text } },
            { "title": "fork", "type": "object", "properties": {
                "at": { "type": "string", "description": PLACE }, "id": text,
                "start_at": { "type": "array", "items": text }, "patch": patch } },
        ] } } } },
        "responses": {
            "200": { "description": "The run, or the fork.", "content": { "application/json": {} } },
            "default": { "$ref": "#/components/responses/Problem" },
        },
    })
}

fn queue_acts(path: &str) -> Value {
    let mut parameters = in_path(path);
    parameters[1]["schema"]["enum"] = json!(["pause", "unpause", "set"]);
    let limit = json!({ "type": ["integer", "null"] });
    let rate = json!({ "type": ["object", "null"], "properties": {
        "starts": { "type": "integer" }, "period_ms": { "type": "integer" }, "burst": { "type": "integer" } } });
    json!({
        "summary": "Pauses or unpauses a queue, or overrides its limits; only if the inspector allows it.",
        "parameters": parameters,
        "requestBody": { "content": { "application/json": { "schema": { "oneOf": [
            { "title": "pause", "type": "object", "properties": { "reason": { "type": "string" } } },
            { "title": "unpause", "type": "object", "maxProperties": 0 },
            { "title": "set", "type": "object", "description": "An omitted limit stays; null removes an override.", "properties": {
                "at_once": limit, "at_once_per_key": limit, "rate": rate, "rate_per_key": rate } },
        ] } } } },
        "responses": {
            "200": { "description": "The queue, and whether it is paused.", "content": { "application/json": {} } },
            "default": { "$ref": "#/components/responses/Problem" },
        },
    })
}

fn bulk(path: &str) -> Value {
    let mut parameters = in_path(path);
    parameters[0]["schema"]["enum"] = json!(["cancel", "retry", "purge"]);
    let (text, time) = (json!({ "type": "string" }), json!({ "type": "integer" }));
    let texts = json!({ "type": "array", "items": text });
    let filter = json!({ "type": "object", "properties": {
        "tenant": text, "workflow": text, "user": text, "status": texts, "label": texts, "since": time, "before": time } });
    json!({
        "summary": "Acts on all runs that match a filter, at most 1,000 per request; only if the inspector allows it.",
        "parameters": parameters,
        "requestBody": { "content": { "application/json": { "schema": { "type": "object", "properties": {
            "filter": filter, "reason": text,
            "all": { "type": "boolean", "description": "Confirms that a filter without a condition selects every run." },
            "dry_run": { "type": "boolean", "description": "Only report what would be done." },
            "cursor": { "type": "string", "description": "Where to continue: `next` of the previous answer." },
            "limit": { "type": "integer", "description": "Maximum number of runs of one answer, at most 1,000." },
        } } } } },
        "responses": {
            "200": {
                "description": "The numbers of runs that accepted and rejected the act, the first of each, and where to continue.",
                "content": { "application/json": {} },
            },
            "default": { "$ref": "#/components/responses/Problem" },
        },
    })
}
