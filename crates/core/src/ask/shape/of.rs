//! What says the shape of a type.

use std::any::TypeId;

use serde::de::DeserializeOwned;

use super::{Field, Form, Shape};

/// How often a type may stand inside itself, and with how often less a type too wide for that is tried.
const LEVELS: [usize; 4] = [8, 4, 2, 1];
/// Types in one shape: it stands in every question's record, so it is not to outgrow the question.
pub(super) const PLACES: usize = 400;

/// A type that an answer can be read into: it says what JSON it takes.
///
/// Derived with `#[derive(AnswerShape)]` beside `Deserialize`, whose attributes it honours. Implemented for the types of the standard
/// library that JSON has a form for, for UUIDs and for JSON itself. A type whose own code reads it says by hand what it takes, mostly that of another
/// type:
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
    message = "`{Self}` does not say what JSON an answer of it is",
    label = "is not `AnswerShape`",
    note = "derive it: `#[derive(Deserialize, AnswerShape)]`; for a type of another crate, ask with `Ask::shaped`, or put it into a \
            field with `#[answer(as = String)]`, naming a type that takes the same JSON"
)]
pub trait AnswerShape: DeserializeOwned + 'static {
    /// Whether a field of this type may be left out of an object, as one of an `Option` may.
    const OPTIONAL: bool = false;

    /// Returns the shape; that of each type inside is asked of `shapes`.
    fn shape(shapes: &mut Shapes) -> Shape;
}

impl Shape {
    /// Returns what JSON a type takes.
    ///
    /// A type that holds itself is followed eight times, less often if it holds itself more than once; what lies deeper is taken as anything,
    /// and so is what comes after 400 types.
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

/// The shapes of the types inside a type: see [`AnswerShape`]. It ends those that hold themselves.
#[derive(Debug)]
pub struct Shapes {
    /// The types whose shape is being asked for, each inside the one before.
    open: Vec<TypeId>,
    levels: usize,
    places: usize,
    /// Whether there were more types than places.
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

    /// Returns a field for [`Shape::object`], which may be left out if its type [may](AnswerShape::OPTIONAL).
    pub fn field<T: AnswerShape>(&mut self, name: &str) -> (String, Shape) {
        let shape = self.of::<T>();
        (Field::key(name, !T::OPTIONAL), shape)
    }
}

impl Field {
    /// Returns the name with the mark that says whether it may be left out.
    pub(super) fn key(name: &str, required: bool) -> String {
        let mark = match required {
            false => "?",
            true if name.ends_with(['?', '!']) => "!",
            true => "",
        };
        format!("{name}{mark}")
    }

    /// Reads a name with its mark.
    pub(super) fn from_key(key: &str, form: Form) -> (String, Self) {
        let (name, required) = match (key.strip_suffix('?'), key.strip_suffix('!')) {
            (Some(name), _) => (name, false),
            (_, Some(name)) => (name, true),
            _ => (key, true),
        };
        (name.to_owned(), Self { form, required })
    }
}
