//! Whether code asks what a log says was asked.

use super::{Form, Shape};

impl Shape {
    /// Returns whether a question that was asked with `stored` goes on as one with this shape.
    ///
    /// Where either takes anything, nothing more was known: a type that holds itself ends somewhere, and earlier versions found shapes by
    /// playing dummy values to `Deserialize`. An answer that fits what is stored, and that the type does not read, is asked for again.
    pub(crate) fn continues(&self, stored: &Self) -> bool {
        self.0.continues(&stored.0)
    }
}

impl Form {
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
            // What earlier versions could not tell apart, and what they found of an enum with a tag.
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

fn all(now: &[Form], then: &[Form]) -> bool {
    now.len() == then.len() && now.iter().zip(then).all(|(now, then)| now.continues(then))
}
