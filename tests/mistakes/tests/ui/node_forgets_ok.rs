//! A node that ends with its draft, and not with `Ok` of it.

use ferrata::prelude::*;

fn main() {
    let _ = Graph::<Context>::builder("g").node("count", async |_cx, s| s);
}
