//! Reads the ends of children, and notifies their parents.

pub(crate) mod notify_parent;
pub(crate) mod read_end;
