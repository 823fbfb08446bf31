//! The inbox: the open questions of all runs that have not ended.

use std::collections::BTreeSet;

use axum::Json;
use ferrata_core::record::RunStatus;
use ferrata_core::store::{Cursor, Page, RunHead, RunQuery};
use ferrata_core::{ErrorKind, WorkflowName};
use serde_json::{Value, json};

use super::run::question;
use crate::app::ApiCall;
use crate::cache::CacheKey;
use crate::problem::Problem;
use crate::view::summary::summary;
use crate::view::unreadable::{UnreadableList, is_unreadable, why_unreadable};

/// Maximum number of logs that one answer reads. For other runs, the answer shows cached data until a later request reads their logs.
const READ: usize = 100;

/// The statuses of runs that may have open questions, the most likely status first. A run in progress may also have an open question, from one of its
/// branches.
const GROUPS: [&[RunStatus]; 2] =
    [&[RunStatus::Interrupted, RunStatus::AwaitingInput], &[RunStatus::InProgress]];

/// Answers `GET /api/v1/questions`.
pub(super) async fn list(call: ApiCall) -> Result<Json<Value>, Problem> {
    let params = call.params(&["tenant", "workflow", "limit", "cursor"])?;
    let mut query = RunQuery::default();
    query.tenant = call.tenant(params.one("tenant")?)?;
    query.workflow = params.one("workflow")?.map(WorkflowName::new).transpose()?;
    let (heads, next) = open(&call, query, params.limit(200, Page::MAX)?, params.one("cursor")?).await?;
    let (mut items, mut read, mut unread) = (Vec::new(), 0, 0);
    let mut unreadable = UnreadableList::default();
    for head in &heads {
        let about = CacheKey { run: head.run.clone(), head: head.id, what: "questions".into() };
        let open = match call.app.cache.get(&about) {
            Some(known) => known,
            None if read >= READ => {
                unread += 1;
                continue;
            }
            None => {
                read += 1;
                call.app.cache.put(about, of(&call, head).await?)
            }
        };
        if let Some(why) = open["unreadable"].as_str() {
            unreadable.add(&head.run, why);
        }
        for question in open["questions"].as_array().into_iter().flatten() {
            items.push(json!({ "run": summary(head, &call.viewer), "question": question }));
        }
    }
    Ok(Json(json!({
        "now": call.app.now(), "items": items, "next": next, "looked_at": heads.len(), "unread": unread,
        "unreadable": unreadable.shown(),
    })))
}

/// Lists the runs that have not ended. Idle runs come first, because they wait for a person, even if many active runs are newer.
async fn open(
    call: &ApiCall,
    mut query: RunQuery,
    limit: u32,
    cursor: Option<&str>,
) -> Result<(Vec<RunHead>, Option<String>), Problem> {
    let store = call.runtime().store();
    let mut before = Vec::new();
    let (mut group, mut cursor) = match cursor {
        Some(cursor) => {
            let at = cursor.split_once('.');
            let at = at.and_then(|(group, rest)| Some((group.parse::<usize>().ok()?, rest)));
            let at = at.filter(|(group, _)| *group < GROUPS.len());
            let (group, rest) = at.ok_or_else(|| {
                Problem::invalid("`cursor` does not fit this request; use `next` of its previous answer")
            })?;
            (group, Some(rest).filter(|rest| !rest.is_empty()).map(Cursor::new))
        }
        None => {
            // If there are few runs, one call suffices.
            query.statuses = GROUPS.concat();
            let mut all = store.runs(&query, Page::first(limit)).await?;
            if all.next.is_none() {
                all.items.sort_by_key(|head| GROUPS.iter().position(|group| group.contains(&head.status)));
                return Ok((all.items, None));
            }
            before = all.items;
            (0, None)
        }
    };
    let (mut heads, mut seen) = (Vec::new(), BTreeSet::new());
    loop {
        query.statuses = GROUPS[group].to_vec();
        let left = limit.saturating_sub(u32::try_from(heads.len()).unwrap_or(u32::MAX));
        let page = Page::first(left);
        let page = match cursor.take() {
            Some(cursor) => page.with_cursor(cursor),
            None => page,
        };
        let mut found = store.runs(&query, page).await?;
        if group + 1 == GROUPS.len() {
            // A run that became idle between these two listings is in neither of them. So the next page starts after the last run of this page.
            let place = |head: &RunHead| (head.facts.created, head.run.clone());
            let last = found.next.as_ref().and(found.items.last()).map(place);
            before.retain(|head| last.as_ref().is_none_or(|last| place(head) > *last));
            found.items.append(&mut before);
        }
        // A run that became active between these two listings is in both of them.
        heads.extend(found.items.into_iter().filter(|head| seen.insert(head.run.clone())));
        if let Some(next) = found.next {
            return Ok((heads, Some(format!("{group}.{}", next.as_str()))));
        }
        group += 1;
        if group == GROUPS.len() {
            return Ok((heads, None));
        }
        if heads.len() >= limit as usize {
            return Ok((heads, Some(format!("{group}."))));
        }
    }
}

/// Reads the questions that a run itself asked, or the reason why the run is unreadable. Questions of its descendants are listed with the
/// descendants.
async fn of(call: &ApiCall, head: &RunHead) -> Result<Value, Problem> {
    let hides = &call.app.redaction;
    match call.runtime().questions(&head.run).await {
        Ok(all) => {
            let own = all.iter().filter(|one| one.asked_by.is_none());
            Ok(json!({ "questions": own.map(|one| question(one, hides)).collect::<Vec<_>>() }))
        }
        // The run was purged after it was listed.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(json!({ "questions": [] })),
        Err(error) if is_unreadable(&error) => Ok(json!({ "unreadable": why_unreadable(&error, hides) })),
        Err(error) => Err(error.into()),
    }
}
