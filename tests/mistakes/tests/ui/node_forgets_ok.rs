//! A node that returns its draft instead of `Ok` with the draft.

use ferrata::prelude::*;

fn main() {
    let _ = Graph::<Context>::builder("g").node("count", async |_cx, s| s);
}
