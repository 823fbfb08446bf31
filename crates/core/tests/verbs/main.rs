//! Every verb that copies or revives a run, combined with every resource outside the run's log.
//!
//! Each cell has the expected result: nothing happens twice, nothing is lost, and no run is stuck. The test of a cell applies the verb at each record
//! of a run, or at each write of its process, and drives every run to its end. In all cells the verb does not change other runs, every log is valid,
//! no process keeps a run, and no run is `stalled`.
//!
//! | | fork | retry | go_to | import in another store | import under another id | purge and start | take-over |
//! |---|---|---|---|---|---|---|---|
//! | child that is awaited | the fork starts its own, unless the source's had completed: then it has the result | finds the same child | refused while the child is active; afterwards the next visit starts another | goes on with the imported child | as a fork | the new run starts its own; the old child ends | finds the same child |
//! | child that is noted and not started | starts its own | starts it, once | moves; nothing is started of the note | starts it, once | each of the two starts its own | starts its own | starts it, once |
//! | child that is left | starts its own, unless the node has ended | finds the same child | the child goes on; the next visit starts another | finds the imported child | as a fork | starts its own; the old child goes on | finds the same child |
//! | spawned run | what was spawned stays spawned, once | spawns no second | the next visit spawns another | spawns no second | as a fork | spawns its own | spawns no second |
//! | outbox messages | the source delivers its own, the fork those of its nodes, under new keys | each once | one for each end of a node | what was not delivered is; the rest at most once more, under its key | under the same keys | refused while messages wait; then new keys | each once |
//! | blobs named in the state | named by the records of both | the same name | a new name for the next visit | the same name | the same name | a new name | one name |
//! | results of cached nodes | taken from the process | taken from the process | taken from the process | made again in the other process | taken from the process | taken from the process | made again in the other process |
//! | durable streams | begin again, from the first chunk | begin again | begin again | begin again, behind what was sent | as in another store | begin again | begin again |
//! | owner and heartbeat | the fork has no owner until a process claims it | the retried run is claimed once | the moved run has no owner | the imported run has no owner, whoever owned the source | no owner | a new generation, in its first epoch | the process of before is fenced |
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
