//! `#[derive(State)]` makes a struct the state of a run, `#[derive(AnswerShape)]` makes a type the answer to a question.
//!
//! This crate only generates code; the called functions are in `ferrata_core::state` and `ferrata_core::ask`.

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
/// It also generates `XUpdate`, with one method per field, and `X::update()`, which creates one. The struct must be `Clone`, `Serialize` and
/// `Deserialize`, its fields `PartialEq`. Channels have the names that serde gives the fields.
///
/// | on a field | an update | a draft |
/// |---|---|---|
/// | nothing, or `#[state(last)]` | replaces the value | replaces it if it differs |
/// | `#[state(append)]`, on `Vec`, `VecDeque` | adds items at the end | adds its suffix, or replaces if earlier items differ |
/// | `#[state(merge)]`, on maps | replaces entries of the same key | puts changed entries, removes missing keys |
/// | `#[state(max)]`, `#[state(min)]` | replaces if greater, lesser; `None` gives way to any value | the same, or replaces if it went the other way |
/// | `#[state(sum)]`, on numbers | is added | adds the difference |
/// | `#[state(union)]`, on `Vec`, `BTreeSet` | adds what is not there | adds what is new, or replaces if items are gone |
/// | `#[state(first)]`, on `Option` | replaces `None` only | the same, or replaces if it was set before |
/// | `#[state(with = path)]` | calls `path(&mut current, update)` | replaces it if it differs |
///
/// A field whose type is `Eq` counts as changed if `==` says so. Other fields count as changed if their stored form differs, so `-0.0` replaces
/// `0.0`. If an `Eq` type considers values with different stored forms equal, the change is lost. `sum`, `union` and `with` always use `==`.
///
/// If a method of `XUpdate` is called again, `last` replaces the value and the other reducers join both.
///
/// `#[state(ephemeral)]` with `#[serde(skip)]`, alone or with a reducer, makes a channel that is not stored. Nodes of one process pass it on. No
/// record, schema or fingerprint includes it, and its type needs no `Serialize`. Routes, conditions and goals see the value that serde gives a
/// skipped field, as does all code that reads the run from its log. A node may see that value at any time, too.
///
/// `#[state(secret)]`, alone or with a reducer, makes the library, the command and the inspector show `…` instead of the channel's values: in events,
/// states, differences and post-mortems. The values are stored like any other, and `Debug` of the struct belongs to the application.
///
/// A channel that is not ephemeral has one name and is always stored, so the macro rejects `flatten`, `skip`, `skip_serializing_if`, `alias` and
/// unequal renames. They are allowed inside the type of a field. `testing::check_reads_back` then checks that such a type reads back the value that
/// it wrote.
///
/// On the struct: `#[state(version = 2)]` declares the version of its shape (1 by default), `#[state(crate = "path")]` the path of `ferrata` or
/// `ferrata_core`.
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
/// Supports structs and enums of every representation: with variants as keys, with a tag, with tag and content, untagged. The type must be
/// `Deserialize`, and the types inside it `AnswerShape`. Supported attributes of serde are `rename`, `rename_all`, `rename_all_fields`, `default`,
/// `skip`, `tag`, `content`, `untagged`, `transparent`, `from`, `try_from`, `deny_unknown_fields`.
///
/// `#[answer(as = Type)]` on a field, or on the whole type, names another type that accepts the same JSON. Use it for a field with a type of another
/// crate, or with a function that reads it (`with`, `deserialize_with`). `serde_json::Value` accepts anything.
///
/// Attributes that would make the shape wrong are rejected, with a remedy: `alias`, `flatten`, `other`, and custom reading functions without
/// `#[answer(as = Type)]`. `#[answer(crate = "path")]` is the path of `ferrata` or `ferrata_core`.
#[proc_macro_derive(AnswerShape, attributes(answer))]
pub fn derive_answer_shape(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    answer::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
