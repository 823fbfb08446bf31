//! `#[derive(State)]` makes a struct the state of a run. `#[derive(AnswerShape)]` makes a type the answer to a question.
//!
//! This crate only generates code. The functions that this code calls are in `ferrata_core::state` and `ferrata_core::ask`.

mod answer;
mod builder;
mod channel;
mod expand;
mod fit;
mod model;
mod options;
mod rename;
mod serde_attr;
mod suggest;

use proc_macro::TokenStream;

/// Makes a struct with named fields the state of a run: each field is a channel.
///
/// The macro also generates the type `XUpdate` for a struct `X`, with one method for each field, and `X::update()`, which creates an `XUpdate`. The
/// struct must be `Clone`, `Serialize` and `Deserialize`, and its fields `PartialEq`. A channel has the name that serde gives the field.
///
/// The attribute on a field selects the channel's reducer, which joins updates to the current value. A node that edits a draft of the state
/// produces such an update, too:
///
/// | attribute | effect of an update | effect of an edited draft |
/// |---|---|---|
/// | none, or `#[state(last)]` | replaces the value | replaces the value if it differs |
/// | `#[state(append)]`, on `Vec`, `VecDeque` | adds items at the end | adds new items at the end, or replaces if earlier items differ |
/// | `#[state(merge)]`, on maps | adds entries, replaces entries with the same key | adds or replaces entries, removes missing keys |
/// | `#[state(max)]`, `#[state(min)]` | keeps the greater (lesser) value; any value replaces `None` | the same, or replaces: see below |
/// | `#[state(sum)]`, on numbers | adds the update to the value | adds the difference |
/// | `#[state(union)]`, on `Vec`, `BTreeSet` | adds missing items | adds new items, or replaces the value if items were removed |
/// | `#[state(first)]`, on `Option` | sets the value only if it is `None` | the same, but replaces a value that was set before |
/// | `#[state(with = path)]` | calls `path(&mut current, update)` | replaces the value if it differs |
///
/// With `max` and `min`, a draft whose value changed in the other direction replaces the value.
///
/// If the type of a field is `Eq`, the field counts as changed if `==` says that it differs. Other fields count as changed if their stored form
/// differs, so `-0.0` replaces `0.0`. If an `Eq` type treats values with different stored forms as equal, such a change is lost. `sum`, `union` and
/// `with` always compare with `==`.
///
/// If a method of `XUpdate` is called more than once, `last` uses the last value. The other reducers join all values.
///
/// `#[state(ephemeral)]` together with `#[serde(skip)]` makes a channel that is not stored. It may be combined with a reducer. The nodes of one
/// process pass the value to each other. No record, schema or fingerprint includes the channel, and its type need not be `Serialize`. Routes,
/// conditions, goals, and all code that reads the run from its log see the value that serde gives a skipped field. A node may see that value at any
/// time, too.
///
/// `#[state(secret)]` hides the channel's values: the library, the command and the inspector show `…` instead, in events, states, differences and
/// post-mortems. It may be combined with a reducer. The values are stored like any others. The application is responsible for the `Debug` output of
/// the struct.
///
/// A stored channel must have exactly one name, and its serialization must always include it. So the macro rejects `flatten`, `skip`,
/// `skip_serializing_if`, `alias`, and different names for reading and writing. These attributes are allowed inside the type of a field.
/// `testing::check_reads_back` then checks that the type reads back the value that it wrote.
///
/// On the struct, `#[state(version = 2)]` declares the version of its form (the default is 1), and `#[state(crate = "path")]` sets the path of
/// `ferrata` or `ferrata_core`.
#[proc_macro_derive(State, attributes(state))]
pub fn derive_state(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    model::Model::read(&input)
        .map(|model| expand::expand(&model))
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Describes the JSON that a type accepts as an answer, as serde reads it.
///
/// Supports structs, and enums in every representation of serde: externally tagged, internally tagged, adjacently tagged and untagged. The type
/// must be `Deserialize`, and the types inside it `AnswerShape`. The macro supports these attributes of serde: `rename`, `rename_all`,
/// `rename_all_fields`, `default`, `skip`, `tag`, `content`, `untagged`, `transparent`, `from`, `try_from`, `deny_unknown_fields`.
///
/// `#[answer(as = Type)]` on a field, or on the whole type, names another type that accepts the same JSON. Use it for a field whose type comes from
/// another crate, or for a field that a custom function deserializes (`with`, `deserialize_with`). `serde_json::Value` accepts anything.
///
/// The macro rejects attributes that would make the shape wrong, and the error says what to do instead: `alias`, `flatten`, `other`, and custom
/// deserializing functions without `#[answer(as = Type)]`. `#[answer(crate = "path")]` sets the path of `ferrata` or `ferrata_core`.
#[proc_macro_derive(AnswerShape, attributes(answer))]
pub fn derive_answer_shape(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    answer::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
