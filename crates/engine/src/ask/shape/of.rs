//! Computes the shape of a type.

use std::any::TypeId;

use serde::de::DeserializeOwned;

use super::{Shape, ShapeField, ShapeForm};

/// The nesting limits of recursive types. The first limit is for most types. If the shape of a type becomes too large, the lower limits are tried.
const LEVELS: [usize; 4] = [8, 4, 2, 1];
/// The maximum number of types in one shape. The record of each question contains the shape, so the shape must not become too large.
pub(super) const PLACES: usize = 400;

/// A type that can be the answer to a question, because it describes the shape of its JSON.
///
/// Derive the trait with `#[derive(AnswerShape)]` together with `Deserialize`. The derive macro follows serde's attributes. UUIDs, JSON values, and
/// those types of the standard library that serde can write as JSON implement the trait. If the `Deserialize` of a type is written by hand, implement
/// this trait by hand too, usually with the shape of another type:
///
/// ```
/// use ferrata_core::ask::{AnswerShape, Shape, Shapes};
///
/// #[derive(serde::Deserialize)]
/// #[serde(try_from = "u32")]
/// struct Even(u32);
///
/// impl TryFrom<u32> for Even {
///     type Error = &'static str;
///
///     fn try_from(number: u32) -> Result<Self, Self::Error> {
///         if number % 2 == 0 { Ok(Self(number)) } else { Err("odd") }
///     }
/// }
///
/// impl AnswerShape for Even {
///     fn shape(shapes: &mut Shapes) -> Shape {
///         shapes.of::<u32>()
///     }
/// }
///
/// assert!(Shape::of::<Vec<Even>>().check("[2, -4]").is_err());
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not describe the JSON of its answers",
    label = "is not `AnswerShape`",
    note = "derive it: `#[derive(Deserialize, AnswerShape)]`; for a type of another crate, ask with `Ask::shaped`, or put it into a \
            field with `#[answer(as = String)]`, naming a type that takes the same JSON"
)]
pub trait AnswerShape: DeserializeOwned + 'static {
    /// Whether a field of this type is optional in an object. It is true for `Option`.
    const OPTIONAL: bool = false;

    /// Returns the shape. `shapes` provides the shapes of inner types.
    fn shape(shapes: &mut Shapes) -> Shape;
}

impl Shape {
    /// Returns the shape of a type.
    ///
    /// The shape of a recursive type describes at most eight levels, and fewer levels if the type contains itself more than once. Deeper parts of the
    /// shape accept anything. After 400 types, all further parts accept anything.
    #[must_use]
    pub fn of<T: AnswerShape>() -> Self {
        Self::within::<T>(PLACES)
    }

    pub(super) fn within<T: AnswerShape>(places: usize) -> Self {
        let mut shape = Self::any();
        for levels in LEVELS {
            let mut shapes = Shapes { open: Vec::new(), levels, places, is_cut: false };
            shape = shapes.of::<T>();
            if !shapes.is_cut {
                break;
            }
        }
        shape
    }
}

/// Computes the shapes of types inside a type, for implementations of [`AnswerShape`]. It limits the depth of recursive types.
#[derive(Debug)]
pub struct Shapes {
    /// The types whose shape is being computed. Each type contains the next type.
    open: Vec<TypeId>,
    levels: usize,
    places: usize,
    /// Whether the limit on the number of types was exceeded.
    is_cut: bool,
}

impl Shapes {
    /// Returns the shape of a type.
    pub fn of<T: AnswerShape>(&mut self) -> Shape {
        let id = TypeId::of::<T>();
        if self.open.iter().filter(|open| **open == id).count() >= self.levels {
            return Shape::any();
        }
        let Some(places) = self.places.checked_sub(1) else {
            self.is_cut = true;
            return Shape::any();
        };
        self.places = places;
        self.open.push(id);
        let shape = T::shape(self);
        self.open.pop();
        shape
    }

    /// Returns a field for [`Shape::object`]. The field is optional if its type is [optional](AnswerShape::OPTIONAL).
    pub fn field<T: AnswerShape>(&mut self, name: &str) -> (String, Shape) {
        let shape = self.of::<T>();
        (ShapeField::key(name, !T::OPTIONAL), shape)
    }
}

impl ShapeField {
    /// Returns the name with its marker for optional or required.
    pub(super) fn key(name: &str, required: bool) -> String {
        let mark = match required {
            false => "?",
            true if name.ends_with(['?', '!']) => "!",
            true => "",
        };
        format!("{name}{mark}")
    }

    /// Decodes a name with its marker.
    pub(super) fn from_key(key: &str, form: ShapeForm) -> (String, Self) {
        let (name, required) = match (key.strip_suffix('?'), key.strip_suffix('!')) {
            (Some(name), _) => (name, false),
            (_, Some(name)) => (name, true),
            _ => (key, true),
        };
        (name.to_owned(), Self { form, required })
    }
}
