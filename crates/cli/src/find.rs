//! Which run is meant: its id, or a beginning of it that no other run has.

use ferrata::store::{Order, Page, RunHead, RunQuery};
use ferrata::{CheckpointStore, RunId, RunKey, TenantId};

use crate::context::Context;
use crate::failure::Failure;
use crate::output::quoted;

/// How many runs are named when several could be meant.
const NAMED: usize = 10;

impl Context {
    /// Finds the run that is meant by `name`: an id, a beginning of one, or either after a tenant and a slash.
    pub(crate) async fn find(&self, store: &dyn CheckpointStore, name: &str) -> Result<RunHead, Failure> {
        let unfit = |error| Failure::from(error).or_type("ferrata ls");
        let (tenant, id) = match name.split_once('/') {
            Some((tenant, id)) => (Some(TenantId::new(tenant).map_err(unfit)?), id),
            None => (self.global.tenant.clone(), name),
        };
        // What is no id is no beginning of one either.
        let whole = RunId::new(id).map_err(unfit)?;
        let exact = RunKey::new(tenant.clone().unwrap_or_default(), whole);
        if let Some(head) = store.head(&exact).await? {
            return Ok(head);
        }
        let mut found = begins_with(store, tenant, id).await?;
        let same: Vec<usize> = found
            .iter()
            .enumerate()
            .filter(|(_, head)| head.run.run.as_str() == id)
            .map(|(at, _)| at)
            .collect();
        match (found.len(), same.as_slice()) {
            (0, _) => Err(Failure::from(
                ferrata::Error::new(
                    ferrata::ErrorKind::NotFound,
                    "there is no such run, nor one whose id begins so",
                )
                .with_run(&exact),
            )
            .or_type("ferrata ls")),
            (1, _) => Ok(found.remove(0)),
            (_, &[at]) => Ok(found.swap_remove(at)),
            (count, _) => Err(ambiguous(name, count, &found)),
        }
    }
}

async fn begins_with(
    store: &dyn CheckpointStore,
    tenant: Option<TenantId>,
    id: &str,
) -> Result<Vec<RunHead>, Failure> {
    let mut query = RunQuery::default();
    query.tenant = tenant;
    let mut page = Page::first(Page::MAX).with_order(Order::NewestFirst);
    let mut found = Vec::new();
    loop {
        let listed = store.runs(&query, page).await?;
        found.extend(listed.items.into_iter().filter(|head| head.run.run.as_str().starts_with(id)));
        match listed.next {
            Some(next) => page = Page::first(Page::MAX).with_cursor(next),
            None => return Ok(found),
        }
    }
}

fn ambiguous(name: &str, count: usize, found: &[RunHead]) -> Failure {
    let message =
        format!("{count} runs have an id that begins with `{}`; write more of it", name.escape_debug());
    let mut details: Vec<String> = found
        .iter()
        .take(NAMED)
        .map(|head| format!("{}  {}  {}", shown(&head.run), head.status, head.facts.workflow))
        .collect();
    if count > NAMED {
        details.push(format!("and {} more", count - NAMED));
    }
    let next = found
        .first()
        .map_or("ferrata ls".into(), |head| format!("ferrata show {}", quoted(&shown(&head.run))));
    Failure::usage(message, next).with_details(details)
}

/// Writes a run's key as people type it: with its tenant only if that is not the default.
pub(crate) fn shown(run: &RunKey) -> String {
    if run.tenant == TenantId::default() { run.run.to_string() } else { run.to_string() }
}
