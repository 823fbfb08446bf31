//! Finds a run by its id, or by the beginning of its id if only one run matches.

use std::sync::atomic::{AtomicBool, Ordering};

use ferrata::store::{Order, Page, RunHead, RunQuery};
use ferrata::{CheckpointStore, RunId, RunKey, TenantId};

use crate::choose::RunSelector;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::output::quoted;

/// Maximum number of candidates that a message lists.
const NAMED: usize = 10;

impl CommandContext {
    /// Finds the run that a selector names.
    pub(crate) async fn find_meant(
        &self,
        store: &dyn CheckpointStore,
        meant: &RunSelector,
    ) -> Result<RunHead, CommandFailure> {
        match meant {
            RunSelector::Named(name) => self.find(store, name).await,
            RunSelector::Exactly(run) => head(store, run).await,
        }
    }

    /// Returns the key of the run with this full id. For a directory, it is the run of the directory with its tenant. Otherwise the tenant is in the
    /// name before a slash, or it is the tenant of `--tenant`.
    pub(crate) fn parse_full_id(&self, name: &str) -> Result<RunKey, CommandFailure> {
        if let Some(run) = self.global.of_directory.as_ref().filter(|run| display_key(run) == name) {
            return Ok(run.clone());
        }
        let unfit = |error| CommandFailure::from(error).or_type("ferrata ls");
        let (tenant, id) = match name.split_once('/') {
            Some((tenant, id)) => (TenantId::new(tenant).map_err(unfit)?, id),
            None => (self.global.tenant.clone().unwrap_or_default(), name),
        };
        // A text that is not a valid id cannot be the beginning of one either.
        Ok(RunKey::new(tenant, RunId::new(id).map_err(unfit)?))
    }

    /// Finds the run that `name` stands for: an id or the beginning of one, with or without a tenant and a slash before it.
    pub(crate) async fn find(
        &self,
        store: &dyn CheckpointStore,
        name: &str,
    ) -> Result<RunHead, CommandFailure> {
        let exact = self.parse_full_id(name)?;
        if self.global.of_directory.as_ref() == Some(&exact) {
            return head(store, &exact).await;
        }
        if let Some(head) = store.head(&exact).await? {
            return Ok(head);
        }
        // If no tenant is given, the search covers all tenants.
        let is_of_one = self.global.tenant.is_some() || name.contains('/');
        let (tenant, id) = (is_of_one.then(|| exact.tenant.clone()), exact.run.as_str());
        let mut found = begins_with(store, tenant, id).await?;
        let same: Vec<usize> = found
            .iter()
            .enumerate()
            .filter(|(_, head)| head.run.run.as_str() == id)
            .map(|(at, _)| at)
            .collect();
        match (found.len(), same.as_slice()) {
            (0, _) => Err(missing(&exact, "cannot find the run, or a run with this prefix of an id")),
            (1, _) => Ok(found.remove(0)),
            (_, &[at]) => Ok(found.swap_remove(at)),
            (count, _) => Err(ambiguous(name, count, &found)),
        }
    }
}

/// Returns the head of the run with this key.
async fn head(store: &dyn CheckpointStore, run: &RunKey) -> Result<RunHead, CommandFailure> {
    let gone = || missing(run, "cannot find the run; its full id is required here");
    store.head(run).await?.ok_or_else(gone)
}

fn missing(run: &RunKey, why: &str) -> CommandFailure {
    let error = ferrata::Error::new(ferrata::ErrorKind::NotFound, why.to_owned()).with_run(run);
    CommandFailure::from(error).or_type("ferrata ls")
}

async fn begins_with(
    store: &dyn CheckpointStore,
    tenant: Option<TenantId>,
    id: &str,
) -> Result<Vec<RunHead>, CommandFailure> {
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

fn ambiguous(name: &str, count: usize, found: &[RunHead]) -> CommandFailure {
    let message =
        format!("{count} runs have an id that begins with `{}`; use a longer prefix", name.escape_debug());
    let mut details: Vec<String> = found
        .iter()
        .take(NAMED)
        .map(|head| format!("{}  {}  {}", display_key(&head.run), head.status, head.facts.workflow))
        .collect();
    if count > NAMED {
        details.push(format!("and {} more", count - NAMED));
    }
    let next = found
        .first()
        .map_or("ferrata ls".into(), |head| format!("ferrata show {}", quoted(&display_key(&head.run))));
    CommandFailure::usage(message, next).with_details(details)
}

/// Whether the command line or the environment sets a tenant. If so, names without a tenant belong to it.
static OF_A_TENANT: AtomicBool = AtomicBool::new(false);

/// Records whether a tenant is set. All later output depends on it.
pub(crate) fn note_tenant(tenant: Option<&TenantId>) {
    OF_A_TENANT.store(tenant.is_some(), Ordering::Relaxed);
}

/// Returns whether a name without a tenant refers to this tenant.
pub(crate) fn is_default_tenant(tenant: &TenantId) -> bool {
    *tenant == TenantId::default() && !OF_A_TENANT.load(Ordering::Relaxed)
}

/// Formats the key of a run in the form that people type: with its tenant, unless the tenant is implied.
pub(crate) fn display_key(run: &RunKey) -> String {
    if is_default_tenant(&run.tenant) { run.run.to_string() } else { run.to_string() }
}
