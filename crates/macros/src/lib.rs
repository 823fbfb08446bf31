//! `#[derive(State)]` makes a struct the state of a run, `#[derive(AnswerShape)]` a type an answer to a question.
//!
//! This crate only writes code; what the code calls is in `ferrata_core::state` and `ferrata_core::ask`.

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
/// It also writes `XUpdate`, with one method per field, and `X::update()`, which makes one. The struct must be `Clone`,
/// `Serialize` and `Deserialize`, its fields `PartialEq`. Channels are named as serde names the fields.
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
/// Whether a draft differs is decided by `==` for a field whose type is `Eq`, and by what is stored of it for any other, so `-0.0` over
/// `0.0` is kept. An `==` that takes values for the same which are stored differently hides such a change if its type is `Eq`; `sum`,
/// `union` and `with` go by `==` in any case.
///
/// Where a method of `XUpdate` is called again, `last` keeps the later value and the others join.
///
/// `#[state(ephemeral)]` beside `#[serde(skip)]`, alone or with a reducer, makes a channel that is not stored: nodes of one process hand
/// it on, no record holds it, it is in no schema and no fingerprint, and its type needs no `Serialize`. Routes, conditions and goals see the
/// value that serde gives a skipped field, as whatever reads the run from its log does; so may any node, at any time.
///
/// `#[state(secret)]`, alone or with a reducer, has the library, the command and the inspector show `…` in the place of the channel's values: in
/// events, states, differences and post-mortems. The values are stored as any other, and `Debug` of the struct is the application's.
///
/// A channel that is not ephemeral has one name and is always stored: `flatten`, `skip`, `skip_serializing_if`, `alias` and unequal renames are refused.
/// Inside the type of a field they are allowed. `testing::check_reads_back` then tells whether what is written there is also
/// what is read.
///
/// On the struct: `#[state(version = 2)]` declares the version of its shape (1 if absent), `#[state(crate = "path")]` the
/// path under which `ferrata` or `ferrata_core` is known.
#[proc_macro_derive(State, attributes(state))]
pub fn derive_state(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    model::Model::read(&input)
        .map(|model| expand::expand(&model))
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Has a type say what JSON it takes as an answer, as serde reads it.
///
/// For structs and enums of every representation: with variants as keys, with a tag, with tag and content, untagged. The type must be
/// `Deserialize`, and the types inside it `AnswerShape`. These attributes of serde are honoured: `rename`, `rename_all`, `rename_all_fields`,
/// `default`, `skip`, `tag`, `content`, `untagged`, `transparent`, `from`, `try_from`, `deny_unknown_fields`.
///
/// `#[answer(as = Type)]` on a field, or on the whole type, names another type that takes the same JSON: for a field whose type is of
/// another crate, or that a function reads (`with`, `deserialize_with`). `serde_json::Value` takes anything.
///
/// What would make the shape wrong is refused, with a remedy: `alias`, `flatten`, `other`, and reading by functions of one's own without
/// `#[answer(as = Type)]`. `#[answer(crate = "path")]` is the path under which `ferrata` or `ferrata_core` is known.
#[proc_macro_derive(AnswerShape, attributes(answer))]
pub fn derive_answer_shape(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    answer::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
