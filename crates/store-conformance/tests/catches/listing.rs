//! Faults of listings: the wrong runs, order or page.

use ferrata_store::{
    CheckpointStore, Clock, Cursor, Error, ErrorKind, Order, Page, Paged, Result, RunFilter, RunHead,
    RunQuery, RunStatus, Timestamp,
};

use super::liar::Liar;
use super::lie::Lie;

impl Liar {
    /// Whether the fault is about pages. Then this store builds the pages itself.
    pub(super) fn pages_falsely(&self) -> bool {
        [
            Lie::IgnoresOrder,
            Lie::IgnoresLimits,
            Lie::HasNoCap,
            Lie::AlwaysHasMore,
            Lie::CountsOffsets,
            Lie::IgnoresBadCursors,
            Lie::KeepsCursorsToItself,
            Lie::TurnsRound,
        ]
        .contains(&self.shared.lie)
    }

    /// Cuts a page from entries that are sorted by age, oldest first.
    pub(super) fn page<T: Clone>(
        &self,
        mut all: Vec<T>,
        page: &Page,
        kind: &str,
        name: impl Fn(&T) -> String,
    ) -> Result<Paged<T>> {
        let turns_round = page.order == Order::Any && page.cursor.is_some() && self.tells(Lie::TurnsRound);
        if page.order == Order::NewestFirst && !self.tells(Lie::IgnoresOrder) || turns_round {
            all.reverse();
        }
        let prefix = match self.shared.lie {
            Lie::KeepsCursorsToItself => format!("{}/{kind}/", self.instance),
            _ => format!("{kind}/"),
        };
        let names: Vec<_> = all.iter().map(&name).collect();
        let found = page.cursor.as_ref().map(|cursor| {
            let rest = cursor.as_str().strip_prefix(&prefix)?;
            if self.tells(Lie::CountsOffsets) {
                return rest.parse().ok();
            }
            names.iter().position(|name| name == rest).map(|place| place + 1)
        });
        let from = match found {
            None => 0,
            Some(Some(place)) => place,
            Some(None) if self.tells(Lie::IgnoresBadCursors) => 0,
            Some(None) => return Err(Error::new(ErrorKind::Invalid, "no cursor of this listing")),
        };
        let wanted = match self.shared.lie {
            Lie::IgnoresLimits => Page::MAX as usize,
            Lie::HasNoCap => page.limit.get() as usize,
            _ => page.max_items(),
        };
        let from = from.min(all.len());
        let to = from.saturating_add(wanted).min(all.len());
        let more = to < all.len() || self.tells(Lie::AlwaysHasMore);
        let next = match self.shared.lie {
            Lie::CountsOffsets => format!("{prefix}{to}"),
            _ => format!("{prefix}{}", to.checked_sub(1).map_or("", |last| &names[last])),
        };
        Ok(Paged { items: all[from..to].to_vec(), next: more.then(|| Cursor::new(next)) })
    }

    pub(super) async fn runs_falsely(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        let store = &self.shared.store;
        if self.tells(Lie::Honest) {
            return store.runs(query, page).await;
        }
        if self.tells(Lie::CountsOffsets) {
            self.pause().await;
        }
        let mut all = Vec::new();
        let mut every = RunQuery::default();
        every.complete = query.complete;
        let mut next = Some(Page::first(Page::MAX).with_order(Order::OldestFirst));
        while let Some(page) = next.take() {
            let listed = store.runs(&every, page.clone()).await?;
            all.extend(listed.items.into_iter().map(|head| self.told(head)));
            next = listed.next.map(|cursor| page.with_cursor(cursor));
        }
        if self.tells(Lie::DamageHidesAll) {
            let written: Vec<_> = self.shared.notes().written.keys().cloned().collect();
            for run in written {
                store.load(&run, <_>::default()).await?;
            }
        }
        if self.tells(Lie::ListsStaleHeads) {
            let mut notes = self.shared.notes();
            for head in &mut all {
                *head = notes.listed.entry(head.run.clone()).or_insert_with(|| head.clone()).clone();
            }
        }
        match self.shared.lie {
            Lie::OrdersById => all.sort_by_key(|head| head.run.clone()),
            Lie::OrdersByUpdate => all.sort_by_key(|head| head.updated),
            _ => {}
        }
        all.retain(|head| self.meets(query, head));
        if self.pages_falsely() {
            return self.page(all, &page, "run", |head| format!("{} {}", head.facts.created, head.run));
        }
        // For faults about something else, page correctly: the cursor is the last returned run.
        let place = |head: &RunHead| head.run.to_string();
        let after = page.cursor.as_ref().map(|cursor| cursor.as_str().to_owned());
        if page.order == Order::NewestFirst {
            all.reverse();
        }
        let from = match after {
            None => 0,
            Some(run) => match all.iter().position(|head| place(head) == run) {
                Some(last) => last + 1,
                None => return store.runs(query, page).await,
            },
        };
        let to = from.saturating_add(page.max_items()).min(all.len());
        let next = (to < all.len()).then(|| Cursor::new(place(&all[to - 1])));
        Ok(Paged { items: all[from..to].to_vec(), next })
    }

    /// Whether this faulty store counts a run as a match of the query.
    fn meets(&self, query: &RunQuery, head: &RunHead) -> bool {
        let now = self.shared.clock.now();
        let mut asked = query.clone();
        let later = |time: Timestamp| time.plus(std::time::Duration::from_millis(1));
        match self.shared.lie {
            Lie::IgnoresTenantFilter => asked.tenant = None,
            Lie::IgnoresWorkflow => asked.workflow = None,
            Lie::IgnoresStatus => asked.statuses.clear(),
            Lie::IgnoresUser => asked.user = None,
            Lie::IgnoresLabels => asked.labels.clear(),
            Lie::StrictFrom => asked.created_from = asked.created_from.map(later),
            Lie::LenientBefore => asked.created_before = asked.created_before.map(later),
            Lie::IgnoresParent => asked.parent = None,
            Lie::IgnoresOwner => asked.owner = None,
            Lie::LabelsAsPatterns => {
                asked.labels.clear();
                let labels = &head.facts.labels;
                let is_like = |(key, value): &(String, String)| {
                    labels.get(key).is_some_and(|text| is_like(text, value))
                };
                if !query.labels.iter().all(is_like) {
                    return false;
                }
            }
            Lie::AnyCondition => return any(query, head, now),
            _ => {}
        }
        let mut told = head.clone();
        match (self.shared.lie, query.filter) {
            (Lie::OrphansAnyStatus, RunFilter::Orphaned) => told.status = RunStatus::InProgress,
            (Lie::OrphansThoseToBeWoken, RunFilter::Orphaned) => told.wake_at = None,
            (Lie::WakesTooEarly, RunFilter::Due) => told.wake_at = told.wake_at.map(|_| now),
            (Lie::ForgetsTheFinished, RunFilter::Due) if told.status.is_finished() => told.wake_at = None,
            (Lie::WakesDespiteOwner, RunFilter::Due) => told.owner_alive = false,
            _ => {}
        }
        asked.matches(&told, now)
    }
}

/// Compares like SQL's `LIKE` if the pattern is a single wildcard.
fn is_like(text: &str, pattern: &str) -> bool {
    match pattern {
        "%" => true,
        "_" => text.chars().count() == 1,
        _ => text == pattern,
    }
}

/// Whether any condition of the query matches.
fn any(query: &RunQuery, head: &RunHead, now: Timestamp) -> bool {
    let conditions = [
        (query.tenant.is_some(), {
            let mut one = RunQuery::default();
            one.tenant.clone_from(&query.tenant);
            one
        }),
        (query.workflow.is_some(), {
            let mut one = RunQuery::default();
            one.workflow.clone_from(&query.workflow);
            one
        }),
        (!query.statuses.is_empty(), {
            let mut one = RunQuery::default();
            one.statuses.clone_from(&query.statuses);
            one
        }),
    ];
    let mut asked = conditions.iter().filter(|(is_asked, _)| *is_asked).peekable();
    asked.peek().is_none() || asked.any(|(_, one)| one.matches(head, now))
}
