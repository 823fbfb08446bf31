//! The runs that a verb is for: named one by one, or chosen by what is known of them.

use ferrata::runtime::is_spared;
use ferrata::store::{Page, RunHead};
use ferrata::{CheckpointStore, RunStatus};
use futures_util::TryStreamExt as _;

use crate::args::Filter;
use crate::commands::ls::{query, table};
use crate::context::Context;
use crate::each::each;
use crate::failure::Failure;
use crate::family;
use crate::find::shown;
use crate::input;
use crate::output::Format;

/// The runs that a verb is for.
pub(crate) struct Chosen {
    /// Their names, as the verb finds them.
    pub(crate) names: Vec<String>,
    /// Whether they were chosen and not named.
    pub(crate) by_filter: bool,
}

impl Chosen {
    /// Says which runs are meant, in a few words.
    pub(crate) fn told(&self) -> String {
        match (self.by_filter, self.names.len()) {
            (false, _) => self.names.join(" "),
            (true, 1) => "1 run".to_owned(),
            (true, runs) => format!("{runs} runs"),
        }
    }
}

impl Context {
    /// Returns the runs that are meant. Chosen without a status, they are those that stand as the verb is for.
    pub(crate) async fn chosen(
        &self,
        store: &dyn CheckpointStore,
        named: &[String],
        filter: &Filter,
        is_for: &[RunStatus],
    ) -> Result<Chosen, Failure> {
        if !named.is_empty() {
            return Ok(Chosen { names: input::runs(named)?, by_filter: false });
        }
        let heads = self.matching(store, filter, is_for).await?;
        if heads.is_empty() && self.out.format == Format::Table {
            self.out.note("no such runs");
        }
        Ok(Chosen { names: heads.iter().map(|head| shown(&head.run)).collect(), by_filter: true })
    }

    /// Prints the runs that are meant, and does nothing.
    pub(crate) async fn print_chosen(
        &self,
        store: &dyn CheckpointStore,
        chosen: &Chosen,
    ) -> Result<(), Failure> {
        let heads: Vec<_> =
            each(&chosen.names, |name| Box::pin(self.find(store, name))).try_collect().await?;
        let (now, time) = (self.now(), self.out.time);
        self.out.all(
            &heads,
            |head| shown(&head.run),
            |heads| table(heads.iter().map(|head| (head, &[][..])), |at| time.write(at, now)),
        )?;
        self.out.note("nothing was done; leave out --dry-run to do it");
        Ok(())
    }

    async fn matching(
        &self,
        store: &dyn CheckpointStore,
        filter: &Filter,
        is_for: &[RunStatus],
    ) -> Result<Vec<RunHead>, Failure> {
        let mut query = query(self, store, filter).await?;
        if query.statuses.is_empty() && !filter.orphaned {
            query.statuses = is_for.to_vec();
        }
        let (mut heads, mut page) = (Vec::new(), Page::first(Page::MAX));
        loop {
            let found = store.runs(&query, page).await?;
            heads.extend(found.items);
            let Some(next) = found.next else { break };
            page = Page::first(Page::MAX).with_cursor(next);
        }
        if filter.roots {
            heads.retain(family::is_root);
        }
        // A verb for all runs is not meant for queues and schedules.
        heads.retain(|head| filter.workflow.is_some() || !is_spared(head));
        Ok(heads)
    }
}
