//! A node that returns neither its draft nor an update.

use ferrata::prelude::*;

fn main() {
    let _ = Graph::<Context>::builder("g").node("count", async |_cx, _s| Ok(7));
}
