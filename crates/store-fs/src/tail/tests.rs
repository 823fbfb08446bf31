//! Incomplete and damaged ends of logs.
