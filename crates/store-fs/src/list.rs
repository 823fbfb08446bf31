//! Lists runs. A listing looks at every log of the folder, reads those that changed since the last listing, and keeps at most about two pages of heads.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use ferrata_store::{
    Clock as _, ExecutorId, Listing, Order, Page, Paged, RunHead, RunKey, RunPlace, RunQuery, SystemClock,
    TenantId, Timestamp,
};

use crate::error::{FileOperation, FsStoreError};
use crate::fd_limits::with_room;
use crate::inner::FsInner;
use crate::layout::FsLayout;
use crate::listed::{FileStamp, ListedLog};
use crate::slots::RunSlots;

/// The maximum number of restarts of a listing because a name in the root changed. The store itself creates a name there only once.
const LISTINGS: usize = 3;

/// The first heads of a listing, in its order: one more than a page has.
struct TopHeads {
    order: Order,
    after: Option<RunPlace>,
    limit: usize,
    /// The candidates so far, at most twice `limit`. Sorting only when it is full keeps the cost of each insertion low.
    heads: Vec<(RunPlace, RunHead)>,
}

impl FsInner {
    /// Lists the runs that meet the query.
    pub(crate) fn runs(&self, query: &RunQuery, page: &Page) -> Result<Paged<RunHead>, FsStoreError> {
        let listing = Listing::of_runs(query, page.order);
        let after = listing.after(page).map_err(|_| FsStoreError::Cursor)?;
        let now = self.clock.now();
        // The times of files are those of the machine, whatever clock the store has.
        let begun = SystemClock::new().now();
        self.listed.begin_listing();
        for _ in 0..LISTINGS {
            let stamp = self.stamp(query.tenant.as_ref())?;
            let mut alive = HashMap::new();
            let after = after.clone();
            let mut best =
                TopHeads { order: page.order, after, limit: page.max_items() + 1, heads: Vec::new() };
            self.for_each_log(query, |run| {
                if let Some(head) = self.readable_head(run, query, &best, &mut alive, begun)?
                    && query.matches(&head, now)
                {
                    best.add(head);
                }
                Ok(())
            })?;
            // If a folder was away for a moment, the listing may have missed its runs.
            if self.stamp(query.tenant.as_ref())? == stamp {
                best.trim();
                return Ok(listing.cut(page, best.heads.into_iter().map(|(_, head)| head).collect()));
            }
        }
        Err(FsStoreError::Restless { path: self.layout.root().into() })
    }

    /// Reads the head of a run, unless the run cannot be on the page. Skips an unreadable run with a warning, unless the listing must be complete.
    fn readable_head(
        &self,
        run: &RunKey,
        query: &RunQuery,
        best: &TopHeads,
        alive: &mut HashMap<ExecutorId, bool>,
        begun: Timestamp,
    ) -> Result<Option<RunHead>, FsStoreError> {
        match self.listed_log(run, begun) {
            Ok(seen) => {
                let is_wanted = |log: &ListedLog| {
                    best.wants(&RunPlace { created: log.opening.facts.created, run: run.clone() })
                };
                let Some(ListedLog { opening, head }) = seen.filter(is_wanted) else { return Ok(None) };
                let is_alive = match head.owner {
                    None => false,
                    Some(owner) => match alive.entry(owner) {
                        Entry::Occupied(known) => *known.get(),
                        Entry::Vacant(unknown) => *unknown.insert(self.is_alive(&owner)?),
                    },
                };
                Ok(Some(RunHead::after(run.clone(), opening.first, &head, is_alive, opening.facts.clone())))
            }
            Err(fault) if fault.is_exhaustion() => Err(fault),
            Err(fault) if query.fails_without(run) => {
                Err(FsStoreError::Refused(fault.of_run("store.runs", run)))
            }
            Err(fault) => {
                tracing::warn!(
                    path = %self.layout.log(run).display(), error = %fault,
                    "skipped an unreadable run in a listing"
                );
                Ok(None)
            }
        }
    }

    /// Returns the start facts and the last record of a run. Reads the log only if it changed since a listing has read it.
    fn listed_log(&self, run: &RunKey, begun: Timestamp) -> Result<Option<ListedLog>, FsStoreError> {
        let metadata = self.stat(&self.layout.log(run))?;
        if let Some(known) = metadata.as_ref().and_then(|found| self.listed.get(run, FileStamp::of(found))) {
            self.check_recovered(run)?;
            return Ok(Some(known));
        }
        self.read_log(run, |log, _| {
            let listed = ListedLog { opening: Arc::clone(&log.opening), head: log.tail.head.clone() };
            if let Some(found) = metadata.as_ref().filter(|found| log.is_as(found)) {
                self.listed.remember(run, FileStamp::of(found), begun, listed.clone());
            }
            Ok(listed)
        })
    }

    /// Passes every run that has a log to `see`, in no particular order. Passes only the tenant's runs if the query has a tenant.
    fn for_each_log(
        &self,
        query: &RunQuery,
        mut see: impl FnMut(&RunKey) -> Result<(), FsStoreError>,
    ) -> Result<(), FsStoreError> {
        let mut in_tenant = |tenant: &TenantId| {
            for_each_name(&self.slots, &self.layout.tenant(tenant), |name| match FsLayout::run_of(name) {
                Some(run) => see(&RunKey::new(tenant.clone(), run)),
                None => Ok(()),
            })
        };
        match &query.tenant {
            Some(tenant) => in_tenant(tenant),
            None => for_each_name(&self.slots, self.layout.runs(), |name| {
                // Not a folder of this store.
                let Ok(tenant) = TenantId::new(name) else { return Ok(()) };
                match in_tenant(&tenant) {
                    // A file with a name that a tenant could have does not belong to this store either.
                    Err(fault) if fault.is_of_listing() && fault.is_no_directory() => Ok(()),
                    Err(fault) if fault.is_of_listing() && !fault.is_exhaustion() && !query.complete => {
                        tracing::warn!(
                            path = %self.layout.tenant(&tenant).display(), error = %fault,
                            "skipped a tenant in a listing, because its folder is unreadable"
                        );
                        Ok(())
                    }
                    done => done,
                }
            }),
        }
    }
}

/// Passes every name in a directory to `see`; passes nothing if the directory does not exist.
fn for_each_name(
    slots: &RunSlots,
    path: &Path,
    mut see: impl FnMut(&str) -> Result<(), FsStoreError>,
) -> Result<(), FsStoreError> {
    let failed = |e| FsStoreError::io(FileOperation::List, path, e);
    let entries = match with_room(slots, || fs::read_dir(path)).map_err(failed) {
        Err(fault) if fault.is_absence() => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        if let Some(name) = entry.map_err(failed)?.file_name().to_str() {
            see(name)?;
        }
    }
    Ok(())
}

impl TopHeads {
    /// Returns whether a run may be on the page.
    fn wants(&self, place: &RunPlace) -> bool {
        self.after.as_ref().is_none_or(|after| self.is_before(after, place))
    }

    fn is_before(&self, a: &RunPlace, b: &RunPlace) -> bool {
        match self.order {
            Order::NewestFirst => a > b,
            Order::OldestFirst | Order::Any => a < b,
        }
    }

    fn add(&mut self, head: RunHead) {
        self.heads.push((RunPlace::of(&head), head));
        if self.heads.len() >= self.limit * 2 {
            self.trim();
        }
    }

    fn trim(&mut self) {
        let order = self.order;
        self.heads.sort_unstable_by(|(a, _), (b, _)| match order {
            Order::NewestFirst => b.cmp(a),
            Order::OldestFirst | Order::Any => a.cmp(b),
        });
        self.heads.truncate(self.limit);
    }
}
