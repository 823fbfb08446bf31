//! The runtime as its users see it, one module for each thing that it promises.
//!
//! One program, because each of its own would compile the driver of a run anew: four seconds of processor time.

mod answerers;
mod awake;
mod cancelling;
mod children;
mod choices;
mod crowds;
mod endings;
mod extremes;
mod family;
mod gathering;
mod losses;
mod once;
mod operator;
mod overdue;
mod parents;
mod past;
mod pauses;
mod recovery;
mod refusals;
mod refused;
mod removal;
mod replans;
mod rests;
mod retries;
mod rounds;
mod runs;
mod sentences;
mod unfinished;
mod values;
mod world;
