//! Schedules on a simulated clock: times compared with a separate calculation, crashes, policies, versions, and clock steps.

mod chaos;
mod crashes;
mod overlaps;
mod schedule_control;
mod support;
mod times;
mod versions;
mod years;
