//! Queues and limits on the clock of a world: several processes on one store, crashes at every write, and clocks that step.

mod abandoned_slots;
mod chaos;
mod crashes;
mod deaf;
mod interruptions;
mod limits;
mod lives;
mod long;
mod looks;
mod nodes;
mod once;
mod others;
mod outages;
mod revivals;
mod shows;
mod starts;
mod steering;
mod support;
mod tags;
mod timeouts;
