//! A store with a yield before and after every call, like a store over a network.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use ferrata_core::store::{AnyTransaction, CheckpointStore, Notices, RunAppend, Transactions, delegate};
use ferrata_core::{HeadRef, Result, RunKey};
use ferrata_testing::{FaultStore, LedgerStore};

use crate::support::dice::Dice;

/// Maximum number of yields before a call, and again before its reply.
const TURNS: u64 = 6;

pub(crate) struct Yielding {
    pub(crate) inner: FaultStore<LedgerStore>,
    pub(crate) dice: Arc<Dice>,
    /// Whether the store sends notices. Otherwise the runtime polls.
    pub(crate) tells: bool,
}

impl fmt::Debug for Yielding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Yielding").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Yielding {
    async fn slowly<T>(&self, done: impl Future<Output = T>) -> T {
        self.dice.give_way(TURNS).await;
        let done = done.await;
        self.dice.give_way(TURNS).await;
        done
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl CheckpointStore for Yielding {
    fn transactions(&self) -> Option<&dyn Transactions> {
        Some(self)
    }

    fn resealing(&self) -> Option<&dyn ferrata_store::Resealing> {
        None
    }

    fn relay(&self) -> Option<&dyn ferrata_core::store::Relay> {
        None
    }

    fn subscribe(&self) -> Option<Notices> {
        if self.tells { self.inner.subscribe() } else { None }
    }

    delegate! { |this| this.inner; capabilities, setup, heartbeat, part }
    delegate! {
        |this| this.inner, |call| this.slowly(call);
        append, load, load_since, headers, head, runs, prune, purge, is_alive
    }
}

#[async_trait]
impl Transactions for Yielding {
    async fn begin(&self, run: &RunKey) -> Result<AnyTransaction> {
        self.slowly(self.inner.begin(run)).await
    }

    async fn commit(&self, transaction: AnyTransaction, append: RunAppend) -> Result<HeadRef> {
        self.slowly(self.inner.commit(transaction, append)).await
    }

    async fn append_in(&self, connection: &mut (dyn Any + Send), append: RunAppend) -> Result<HeadRef> {
        self.inner.append_in(connection, append).await
    }

    fn is_transient(&self, error: &(dyn StdError + 'static)) -> bool {
        self.inner.is_transient(error)
    }
}
