//! A wrapper that makes a store fail on purpose: at a given operation, or at random from a seed.

mod plan;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::collections::{BTreeMap, HashSet};
use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_store::{
    AnyTransaction, At, CheckpointStore, Error, ErrorKind, ExecutorId, HeadRef, HeaderRange, Headers,
    Notices, Page, Paged, PruneCut, Record, Removed, Resealing, Result, RunAppend, RunHead, RunKey, RunQuery,
    Transactions, delegate, refusal,
};

pub use self::plan::{Fault, FaultOdds, FaultPlan};

/// A store that fails on purpose, for tests of code that uses stores.
///
/// The store counts the operations that write durable data (see [`FaultPlan`]). For each operation, the plan decides: the operation succeeds, fails
/// before anything is written, loses its reply, or crashes the whole process. Run a test once without faults to learn the number of operations.
/// Then run it once for each operation:
///
/// ```
/// use ferrata_store::{CheckpointStore, ErrorKind, MemoryStore};
/// use ferrata_testing::{Fault, FaultPlan, FaultStore};
/// # use ferrata_store::{RunId, RunKey};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let run = RunKey::from(RunId::new("r-1")?);
/// let work = async |store: &FaultStore<MemoryStore>| {
///     store.purge(&run, None).await?;
///     store.purge(&run, None).await
/// };
///
/// let calm = FaultStore::new(MemoryStore::new(), FaultPlan::new());
/// work(&calm).await?;
/// assert_eq!(calm.operations(), 2);
///
/// for operation in 0..calm.operations() {
///     let store = FaultStore::new(MemoryStore::new(), FaultPlan::new().with_fault(operation, Fault::Before));
///     assert_eq!(work(&store).await.unwrap_err().kind(), ErrorKind::Unavailable);
///     // What a new process would find is in the store inside.
///     assert!(store.inner().head(&run).await?.is_none());
/// }
/// # Ok::<(), ferrata_store::Error>(()) }).unwrap();
/// ```
///
/// An injected error follows the contract: only after `Indeterminate` is it unknown whether the store has written. If the process crashes within a
/// batch, the entries before the crash are written and their replies are lost, as in a real crash.
pub struct FaultStore<S> {
    inner: S,
    state: Mutex<State>,
}

struct State {
    plan: FaultPlan,
    operations: u64,
    reads: u64,
    is_crashed: bool,
    before: BTreeMap<u64, Hook>,
    after: BTreeMap<u64, Hook>,
}

type Hook = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The planned outcome of several operations that are called together.
struct OperationFate {
    /// The fault of each operation.
    faults: Vec<Option<Fault>>,
    before: Vec<Hook>,
    after: Vec<Hook>,
}

impl<S: CheckpointStore> FaultStore<S> {
    /// Wraps a store, with a plan of faults.
    pub fn new(inner: S, plan: FaultPlan) -> Self {
        let state = State {
            plan,
            operations: 0,
            reads: 0,
            is_crashed: false,
            before: BTreeMap::new(),
            after: BTreeMap::new(),
        };
        Self { inner, state: Mutex::new(state) }
    }

    /// Returns the inner store, without faults. It shows what a new process would find.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Returns the number of operations so far. It is also the number of the next operation.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Returns whether a crash has been injected.
    pub fn is_crashed(&self) -> bool {
        self.state().is_crashed
    }

    /// Simulates a crash of the process now: every later call fails with [`ErrorKind::Closed`].
    pub fn crash(&self) {
        self.state().is_crashed = true;
    }

    /// Plans a fault at a later operation.
    pub fn plan(&self, operation: u64, fault: Fault) {
        let mut state = self.state();
        state.plan = std::mem::take(&mut state.plan).with_fault(operation, fault);
    }

    /// Runs `hook` once, just before an operation. Use it for a race that the operation must lose, for example with another writer's append.
    ///
    /// The entries of a batch go to the store together, so a hook at any of them runs before all of them.
    pub fn before(&self, operation: u64, hook: impl Future<Output = ()> + Send + 'static) {
        self.state().before.insert(operation, Box::pin(hook));
    }

    /// Runs `hook` once, just after an operation succeeded and before its reply. In a batch, it runs after all entries.
    pub fn after(&self, operation: u64, hook: impl Future<Output = ()> + Send + 'static) {
        self.state().after.insert(operation, Box::pin(hook));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock; a poisoned count would only hide the first failure of a test.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts `count` operations. Fails if the process has crashed.
    fn begin(&self, operation: &'static str, count: usize) -> Result<OperationFate> {
        let mut state = self.state();
        if state.is_crashed {
            return Err(Fault::CrashBefore.error(operation));
        }
        let first = state.operations;
        state.operations += count as u64;
        let numbers = first..state.operations;
        let mut faults: Vec<_> = numbers.clone().map(|number| state.plan.fault(number)).collect();
        if let Some(crash) = faults.iter().position(|fault| fault.is_some_and(Fault::is_crash)) {
            state.is_crashed = true;
            // Earlier entries of the batch are written, unless they have their own fault. No caller gets their replies.
            for fault in &mut faults[..crash] {
                *fault = (*fault).or(Some(Fault::CrashAfter));
            }
            faults[crash + 1..].fill(Some(Fault::CrashBefore));
        }
        let take =
            |hooks: &mut BTreeMap<u64, Hook>| numbers.clone().filter_map(|n| hooks.remove(&n)).collect();
        let before = take(&mut state.before);
        let after = take(&mut state.after);
        Ok(OperationFate { faults, before, after })
    }

    /// Executes one operation with its planned fault.
    async fn operate<T>(
        &self,
        operation: &'static str,
        run: Option<&RunKey>,
        done: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let name = |error: Error| match run {
            Some(run) => error.with_run(run),
            None => error,
        };
        let fate = self.begin(operation, 1).map_err(name)?;
        for hook in fate.before {
            hook.await;
        }
        let fault = fate.faults.into_iter().next().flatten();
        if let Some(fault) = fault.filter(|fault| !fault.is_done()) {
            return Err(name(fault.error(operation)));
        }
        let result = done.await;
        for hook in fate.after {
            hook.await;
        }
        match fault {
            Some(fault) => Err(name(fault.error(operation))),
            None => result,
        }
    }

    /// Executes a call that writes no durable data.
    async fn read<T>(&self, operation: &'static str, done: impl Future<Output = Result<T>>) -> Result<T> {
        let fault = {
            let mut state = self.state();
            let number = state.reads;
            state.reads += 1;
            match state.is_crashed {
                true => Some(Fault::CrashBefore),
                false => state.plan.fails_read(number).then_some(Fault::Before),
            }
        };
        match fault {
            Some(fault) => Err(fault.error(operation)),
            None => done.await,
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for FaultStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("FaultStore")
            .field("inner", &self.inner)
            .field("plan", &state.plan)
            .field("operations", &state.operations)
            .field("is_crashed", &state.is_crashed)
            .finish_non_exhaustive()
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: CheckpointStore> CheckpointStore for FaultStore<S> {
    async fn setup(&self) -> Result<()> {
        self.read("store.setup", self.inner.setup()).await
    }

    async fn append(&self, batch: Vec<RunAppend>) -> Vec<Result<HeadRef>> {
        const OPERATION: &str = "store.append";
        let fate = match self.begin(OPERATION, batch.len()) {
            Ok(fate) => fate,
            Err(_) => {
                let closed =
                    |append: &RunAppend| Err(Fault::CrashBefore.error(OPERATION).with_run(&append.run));
                return batch.iter().map(closed).collect();
            }
        };
        for hook in fate.before {
            hook.await;
        }
        let (mut results, mut passed) = (Vec::with_capacity(batch.len()), Vec::new());
        let mut named = HashSet::new();
        for (append, fault) in batch.into_iter().zip(fate.faults) {
            // If a faulty entry is not sent, the store cannot see that a second entry has the same run. So refuse the second entry here.
            let is_doubled = !named.insert(append.run.clone());
            match fault {
                Some(fault) if !fault.is_done() => {
                    results.push(Some(Err(fault.error(OPERATION).with_run(&append.run))));
                }
                _ if is_doubled => results.push(Some(Err(refusal::doubled(&append.run)))),
                fault => {
                    results.push(None);
                    passed.push((append, fault));
                }
            }
        }
        let lost: Vec<_> = passed
            .iter()
            .map(|(append, fault)| fault.map(|fault| fault.error(OPERATION).with_run(&append.run)))
            .collect();
        let done = self.inner.append(passed.into_iter().map(|(append, _)| append).collect()).await;
        for hook in fate.after {
            hook.await;
        }
        let mut replies = done.into_iter().zip(lost).map(|(reply, lost)| lost.map_or(reply, Err));
        let missing = || Err(Error::new(ErrorKind::Indeterminate, "the store returned too few results"));
        results
            .into_iter()
            .map(|held| held.unwrap_or_else(|| replies.next().unwrap_or_else(missing)))
            .collect()
    }

    async fn load(&self, run: &RunKey, at: At) -> Result<Option<Vec<Record>>> {
        self.read("store.load", self.inner.load(run, at)).await
    }

    async fn load_since(&self, run: &RunKey, known: HeadRef) -> Result<Option<Vec<Record>>> {
        self.read("store.load", self.inner.load_since(run, known)).await
    }

    async fn headers(&self, run: &RunKey, range: HeaderRange) -> Result<Headers> {
        self.read("store.headers", self.inner.headers(run, range)).await
    }

    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        self.read("store.head", self.inner.head(run)).await
    }

    async fn runs(&self, query: &RunQuery, page: Page) -> Result<Paged<RunHead>> {
        self.read("store.runs", self.inner.runs(query, page)).await
    }

    async fn prune(&self, run: &RunKey, cut: PruneCut) -> Result<Removed> {
        self.operate("store.prune", Some(run), self.inner.prune(run, cut)).await
    }

    async fn purge(&self, run: &RunKey, expected: Option<HeadRef>) -> Result<Removed> {
        self.operate("store.purge", Some(run), self.inner.purge(run, expected)).await
    }

    async fn heartbeat(&self, executor: &ExecutorId, ttl: Duration) -> Result<()> {
        let beat = self.inner.heartbeat(executor, ttl);
        let is_counted = self.state().plan.counts_heartbeats();
        if is_counted {
            return self.operate("store.heartbeat", None, beat).await;
        }
        match self.is_crashed() {
            true => Err(Fault::CrashBefore.error("store.heartbeat")),
            false => beat.await,
        }
    }

    async fn is_alive(&self, executor: &ExecutorId) -> Result<bool> {
        self.read("store.is_alive", self.inner.is_alive(executor)).await
    }

    /// Returns the transactions of the inner store. A commit counts as an operation, like an append.
    fn transactions(&self) -> Option<&dyn Transactions> {
        self.inner.transactions().is_some().then_some(self)
    }

    fn resealing(&self) -> Option<&dyn Resealing> {
        self.inner.resealing().is_some().then_some(self)
    }

    fn relay(&self) -> Option<&dyn ferrata_store::Relay> {
        if self.is_crashed() { None } else { self.inner.relay() }
    }

    /// Returns the notices of the inner store; none after a crash.
    fn subscribe(&self) -> Option<Notices> {
        if self.is_crashed() { None } else { self.inner.subscribe() }
    }

    delegate! { |this| this.inner; capabilities, part }
}

#[async_trait]
impl<S: CheckpointStore> Resealing for FaultStore<S> {
    /// Counts as an operation, like a prune.
    async fn reseal(&self, run: &RunKey, records: &[Record]) -> Result<u64> {
        let inside = self.inner.resealing().ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "the store inside cannot put records in other envelopes")
        })?;
        self.operate("store.reseal", Some(run), inside.reseal(run, records)).await
    }
}

impl<S: CheckpointStore> FaultStore<S> {
    fn transactions_inside(&self) -> Result<&dyn Transactions> {
        let missing = || Error::new(ErrorKind::Unsupported, "the inner store does not support transactions");
        self.inner.transactions().ok_or_else(missing)
    }
}

#[async_trait]
impl<S: CheckpointStore> Transactions for FaultStore<S> {
    async fn begin(&self, run: &RunKey) -> Result<AnyTransaction> {
        let inner = self.transactions_inside()?;
        self.read("store.begin", inner.begin(run)).await
    }

    async fn commit(&self, transaction: AnyTransaction, append: RunAppend) -> Result<HeadRef> {
        let (inner, run) = (self.transactions_inside()?, append.run.clone());
        self.operate("store.commit", Some(&run), inner.commit(transaction, append)).await
    }

    async fn append_in(&self, connection: &mut (dyn Any + Send), append: RunAppend) -> Result<HeadRef> {
        let inner = self.transactions_inside()?;
        self.read("store.append", inner.append_in(connection, append)).await
    }

    fn is_transient(&self, error: &(dyn StdError + 'static)) -> bool {
        self.inner.transactions().is_some_and(|inner| inner.is_transient(error))
    }
}
