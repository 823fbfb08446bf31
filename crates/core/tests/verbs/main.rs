//! Every verb that copies or revives a run, combined with every resource outside the run's log.
//!
//! Each cell has the expected result: nothing happens twice, nothing is lost, and no run is stuck. The test of a cell applies the verb at each record
//! of a run, or at each write of its process, and drives every run to its end. In all cells the verb does not change other runs, every log is valid,
//! no process keeps a run, and no run is `stalled`.
//!
//! | | fork | retry | go_to | import in another store | import under another id | purge and start | take-over |
//! |---|---|---|---|---|---|---|---|
//! | child that is awaited | the fork starts its own, or has the result if the source's child had completed | finds the same child | refused while the child is active; afterwards the next visit starts another | continues with the imported child | as for a fork | the new run starts its own; the old child ends | finds the same child |
//! | child that is noted and not started | starts its own | starts it, once | moves; the noted child is not started | starts it, once | each of the two starts its own | starts its own | starts it, once |
//! | child that is left | starts its own, unless the node has ended | finds the same child | the child stays active; the next visit starts another | finds the imported child | as for a fork | starts its own; the old child stays active | finds the same child |
//! | spawned run | a run that was spawned stays spawned, once | spawns no second | the next visit spawns another | spawns no second | as for a fork | spawns its own | spawns no second |
//! | outbox messages | the source delivers its own, the fork those of its nodes, under new keys | each once | one for each end of a node | undelivered ones are delivered; the others at most once more, under the same key | under the same keys | refused while messages wait; then new keys | each once |
//! | blobs named in the state | named by the records of both | the same name | a new name for the next visit | the same name | the same name | a new name | one name |
//! | results of cached nodes | from the process cache | from the process cache | from the process cache | computed again in the other process | from the process cache | from the process cache | computed again in the other process |
//! | durable streams | restart, from the first chunk | restart | restart | restart, after the chunks that were sent | as in another store | restart | restart |
//! | owner and heartbeat | the fork has no owner until a process claims it | the retried run is claimed once | the moved run has no owner | the imported run has no owner, even if the source has one | no owner | a new generation, in its first epoch | the former owner is fenced |
//!
//! The crates of queues and schedules test slots and ticks.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fork;
mod go_to;
mod import;
mod owner;
mod restart;
mod retry;
mod takeover;
mod things;
mod world;
