//! Rejects types of the standard library that a reducer cannot join, by their names.
//!
//! The traits behind the reducers reject these types, too, but once for each use, and one mistake should cause only one message. Types that are not
//! known here are left to the traits.

use syn::Type;

use crate::options::ReducerKind;

const SEQUENCES: [&str; 2] = ["Vec", "VecDeque"];
const MAPS: [&str; 2] = ["BTreeMap", "HashMap"];
const SETS: [&str; 2] = ["BTreeSet", "HashSet"];
const NUMBERS: [&str; 14] =
    ["u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize", "f32", "f64"];
const OTHERS: [&str; 5] = ["String", "bool", "char", "Option", "Duration"];

/// Returns the error for a field's type if the name of the type already shows that it does not fit.
pub(crate) fn check(kind: &ReducerKind, ty: &Type) -> syn::Result<()> {
    let (reducer, fits, remedy): (_, &[&[&str]], _) = match kind {
        ReducerKind::Append => ("append", &[&SEQUENCES], "make it a `Vec` or a `VecDeque`"),
        ReducerKind::Merge => ("merge", &[&MAPS], "make it a `BTreeMap`, a `HashMap` or a `serde_json::Map`"),
        ReducerKind::Sum => {
            ("sum", &[&NUMBERS, &["Duration"]], "make it an integer, a float or a `Duration`")
        }
        ReducerKind::Union => (
            "union",
            &[&["Vec", "BTreeSet"]],
            "make it a `Vec` or a `BTreeSet`, whose items have an order that can be stored",
        ),
        ReducerKind::First => {
            ("first", &[&["Option"]], "make it an `Option` of its type, which is unset while it is `None`")
        }
        ReducerKind::Last | ReducerKind::Max | ReducerKind::Min | ReducerKind::Custom(_) => return Ok(()),
    };
    let Type::Path(path) = ty else { return Ok(()) };
    let Some(last) = path.path.segments.last() else { return Ok(()) };
    let is_in = |names: &[&str]| names.iter().any(|name| last.ident == name);
    let known = [&SEQUENCES[..], &MAPS, &SETS, &NUMBERS, &OTHERS].into_iter().any(is_in);
    if !known || fits.iter().any(|names| is_in(names)) {
        return Ok(());
    }
    let message = format!(
        "`{}` cannot be a channel with `#[state({reducer})]`; {remedy}, or choose another reducer",
        last.ident
    );
    Err(syn::Error::new_spanned(ty, message))
}
