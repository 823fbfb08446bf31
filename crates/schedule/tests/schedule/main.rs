//! Schedules on the clock of a world: times against a calculation of their own, crashes, policies, versions, and clocks that step.

mod chaos;
mod crashes;
mod overlaps;
mod schedule_control;
mod support;
mod times;
mod versions;
mod years;
