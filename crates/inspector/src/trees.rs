//! Counts the runs below the roots of a list, by status. One listing of the store serves all roots of a page for several seconds.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use ferrata_core::record::RunStatus;
use ferrata_core::runtime::RunOrigin;
use ferrata_core::store::{Page, RunHead, RunQuery};
use ferrata_core::{Clock as _, RunKey, TenantId, Timestamp};
use serde::Serialize;
use tokio::sync::Mutex;

use crate::app::ApiCall;
use crate::problem::Problem;

/// Maximum age of a count.
const AGE: Duration = Duration::from_secs(5);

/// Maximum number of pages of runs that one count reads.
const PAGES: usize = 3;

/// Maximum clock skew in milliseconds: the time by which a parent may seem to have started later than its child.
const SKEW_MS: i64 = 60_000;

/// The runs below a root, counted by status.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct RunsBelow {
    count: usize,
    statuses: BTreeMap<String, usize>,
    /// Whether there may be more runs: the count did not reach back to the start of the root.
    more: bool,
}

/// The last counts of a tenant's roots.
#[derive(Default)]
pub(crate) struct TreeBoard(Mutex<Option<TreeCount>>);

struct TreeCount {
    tenant: Option<TenantId>,
    /// The time since which runs are counted.
    from: Timestamp,
    at: Duration,
    below: BTreeMap<RunKey, RunsBelow>,
    /// The start time of the oldest counted run, if the count is incomplete.
    end: Option<Timestamp>,
}

impl fmt::Debug for TreeBoard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TreeBoard")
    }
}

impl TreeBoard {
    /// Counts the runs below each of these roots. Roots without such runs are omitted.
    pub(crate) async fn below(
        &self,
        call: &ApiCall,
        query: &RunQuery,
        roots: &[RunHead],
    ) -> Result<BTreeMap<RunKey, RunsBelow>, Problem> {
        let Some(oldest) = roots.iter().map(|head| head.facts.created).min() else {
            return Ok(BTreeMap::new());
        };
        let mut known = self.0.lock().await;
        let now = call.app.clock.monotonic();
        let holds = |known: &TreeCount| {
            known.tenant == query.tenant && known.from <= oldest && now.saturating_sub(known.at) < AGE
        };
        let counted = match known.take().filter(holds) {
            Some(counted) => known.insert(counted),
            None => known.insert(count(call, query.tenant.clone(), oldest, now).await?),
        };
        let of = |head: &RunHead| {
            let mut below = counted.below.get(&head.run).cloned().unwrap_or_default();
            below.more = counted.end.is_some_and(|end| head.facts.created < end);
            (below.count > 0).then(|| (head.run.clone(), below))
        };
        Ok(roots.iter().filter_map(of).collect())
    }
}

async fn count(
    call: &ApiCall,
    tenant: Option<TenantId>,
    oldest: Timestamp,
    at: Duration,
) -> Result<TreeCount, Problem> {
    let from = Timestamp::from_unix_ms(oldest.unix_ms().saturating_sub(SKEW_MS));
    let mut query = RunQuery::default();
    (query.tenant, query.created_from) = (tenant.clone(), Some(from));
    let mut below: BTreeMap<RunKey, RunsBelow> = BTreeMap::new();
    let (mut page, mut end) = (Page::first(Page::MAX), None);
    for left in (0..PAGES).rev() {
        let found = call.runtime().store().runs(&query, page).await?;
        for head in found.items.iter().filter(|head| !RunOrigin::is_root(head)) {
            let tree = below.entry(RunOrigin::root_of(head)).or_default();
            tree.count += 1;
            *tree.statuses.entry(word(head.status)).or_default() += 1;
        }
        let Some(next) = found.next else { break };
        if left == 0 {
            end = found.items.last().map(|head| head.facts.created);
        }
        page = Page::first(Page::MAX).with_cursor(next);
    }
    Ok(TreeCount { tenant, from: oldest, at, below, end })
}

fn word(status: RunStatus) -> String {
    serde_json::json!(status).as_str().unwrap_or_default().to_owned()
}
