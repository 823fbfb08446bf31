//! What is refused, how it is named, and that everything else comes back equal.
