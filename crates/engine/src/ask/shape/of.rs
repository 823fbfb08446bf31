//! The shape of a type.

use std::any::TypeId;

use serde::de::DeserializeOwned;

use super::{Shape, ShapeField, ShapeForm};

/// The nesting limits of recursive types: the first for most types, the lower ones for types that become too wide.
const LEVELS: [usize; 4] = [8, 4, 2, 1];
/// The maximum number of types in one shape. Each question's record contains the shape, which must not outgrow the question.
pub(super) const PLACES: usize = 400;

/// The type of an answer, with the shape of its JSON.
///
/// Derive it with `#[derive(AnswerShape)]` next to `Deserialize`; it honors serde's attributes. The types of the standard library with a JSON form,
/// UUIDs and JSON values implement it. A type with a hand-written `Deserialize` implements it by hand, usually with the shape of another type:
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
    /// Whether a field of this type is optional in an object, as a field of an `Option` is.
    const OPTIONAL: bool = false;

    /// Returns the shape. `shapes` provides the shapes of inner types.
    fn shape(shapes: &mut Shapes) -> Shape;
}

impl Shape {
    /// Returns the shape of a type.
    ///
    /// A recursive type is followed up to eight levels, and fewer if it contains itself more than once. Deeper parts accept anything, and so do all
    /// parts after 400 types.
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

/// The shapes of the types inside a type: see [`AnswerShape`]. It cuts off recursive types.
#[derive(Debug)]
pub struct Shapes {
    /// The types in progress, each inside the one before.
    open: Vec<TypeId>,
    levels: usize,
    places: usize,
    /// Whether the number of types exceeded the limit.
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

    /// Returns a field for [`Shape::object`], which is optional if its type [is](AnswerShape::OPTIONAL).
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
