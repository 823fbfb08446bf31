//! What every store decides alike, on the logs and headers of `ferrata-testing`.

mod check;
mod codec;
mod listing;
