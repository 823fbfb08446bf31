//! Reducers on JSON values, and drafts of them.
