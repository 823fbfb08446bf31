//! Queues and limits on the clock of a world: several processes on one store, crashes at every write, and clocks that step.

mod chaos;
mod crashes;
mod deaf;
mod interruptions;
mod lives;
mod long;
mod looks;
mod nodes;
mod others;
mod outages;
mod shows;
mod starts;
mod steering;
mod support;
mod tags;
