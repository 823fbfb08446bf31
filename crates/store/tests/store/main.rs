//! Code that all stores share, on the logs and headers of `ferrata-testing`.

mod check;
mod codec;
mod listing;
