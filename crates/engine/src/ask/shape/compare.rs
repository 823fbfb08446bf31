//! Compares the shape that the code declares with the shape that a log contains.

use super::{Shape, ShapeForm};

impl Shape {
    /// Returns whether a recorded question with the shape `stored` can continue as a question with this shape.
    ///
    /// A part of a shape that accepts anything fits every other shape, because its details are unknown: the shape of a recursive type has such parts,
    /// and so may shapes that earlier versions of Ferrata stored. If an answer has the stored shape but the type cannot decode it, the run asks
    /// again.
    #[doc(hidden)]
    pub fn continues(&self, stored: &Self) -> bool {
        self.0.continues(&stored.0)
    }
}

impl ShapeForm {
    fn continues(&self, stored: &Self) -> bool {
        match (self, stored) {
            (Self::Any, _) | (_, Self::Any) => true,
            (Self::Nullable(now), Self::Nullable(then))
            | (Self::List(now), Self::List(then))
            | (Self::Map(now), Self::Map(then)) => now.continues(then),
            (Self::Tuple { forms: now, least }, Self::Tuple { forms: then, least: least_then }) => {
                least_then <= least && all(now, then)
            }
            (Self::AnyOf(now), Self::AnyOf(then)) => all(now, then),
            (Self::Variants(now), Self::Variants(then)) => {
                now.keys().eq(then.keys())
                    && now.values().zip(then.values()).all(|(now, then)| now.continues(then))
            }
            (Self::Tagged { tag, variants: now }, Self::Tagged { tag: tag_then, variants: then }) => {
                tag == tag_then
                    && now.keys().eq(then.keys())
                    && now.values().zip(then.values()).all(|(now, then)| now.continues(then))
            }
            // Distinctions that earlier versions did not make, and their form of a tagged enum.
            (Self::Int(_), Self::Number) | (Self::Char, Self::Text) => true,
            (Self::Tagged { tag, .. }, Self::Object { fields, .. }) => fields.contains_key(tag),
            (Self::Object { fields: now, .. }, Self::Object { fields: then, .. }) => {
                now.keys().eq(then.keys())
                    && now
                        .values()
                        .zip(then.values())
                        .all(|(now, then)| (now.required || !then.required) && now.form.continues(&then.form))
            }
            (now, then) => now == then,
        }
    }
}

fn all(now: &[ShapeForm], then: &[ShapeForm]) -> bool {
    now.len() == then.len() && now.iter().zip(then).all(|(now, then)| now.continues(then))
}
