//! The runtime through its public API, with one module per capability.
//!
//! All modules form one program, because each program would compile the driver again, which takes 4 s of CPU time.

mod answerers;
mod awake;
mod away;
mod brittle_values;
mod bulk;
mod cached;
mod cancelling;
mod cells;
mod child_pauses;
mod children;
mod choices;
mod commit_constraints;
mod cost;
mod counted;
mod crash_tests;
mod cursors;
#[expect(
    dead_code,
    clippy::unwrap_used,
    reason = "other suites draw more, and a failed helper is a failed test"
)]
#[path = "../support/dice.rs"]
mod dice;
mod endings;
mod extremes;
mod family;
mod flavors;
mod gathering;
mod interruptions;
mod late_words;
mod letters;
mod letters_of_two;
mod message_keys;
mod message_limits;
mod start_options;

mod data_loss;
mod go_to;
mod levels;
mod logged_graph;
mod many;
mod maps;
mod moved;
mod named_receives;
mod noted;
mod once;
mod operator;
mod overdue;
mod parents;
mod past;
mod pauses;
mod progress;
mod prompt;
mod queue_holds;
mod reasons;
mod recovery;
mod refusals;
mod removal;
mod repeated_starts;
mod replans;
mod rests;
mod retries;
mod rounds;
mod runs;
mod sentences;
mod spelling;
mod streaming;
mod streaming_far;
mod streaming_slow;
mod subgraphs;
mod subgraphs_flat;
mod timeouts;
mod transactional_steps;
mod transactions;
mod write_conflicts;

mod unfinished;
mod values;
mod waits;
mod watching;
mod watching_families;
mod watching_live;
mod world;
mod worlds;
