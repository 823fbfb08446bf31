//! Queues and limits on the clock of a world: several processes on one store, crashes at every write, and clocks that step.

mod abandoned_slots;
mod chaos;
mod children;
mod costs;
mod crashes;
mod full_queue;
mod interruptions;
mod limits;
mod no_notices;
mod nodes;
mod once;
mod others;
mod outages;
mod polling;
mod queue_settings;
mod reused_ids;
mod revivals;
mod starts;
mod support;
mod tags;
mod timeouts;
mod wait_visibility;
