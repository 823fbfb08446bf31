//! Unknown attributes of a shape are rejected, each with a remedy.

use ferrata::AnswerShape;
use serde::Deserialize;

#[derive(Deserialize, AnswerShape)]
struct Fields {
    #[serde(alias = "other")]
    one: u8,
}

#[derive(Deserialize, AnswerShape)]
struct Flattened {
    #[serde(flatten)]
    rest: std::collections::BTreeMap<String, u8>,
}

#[derive(Deserialize, AnswerShape)]
struct Read {
    #[serde(deserialize_with = "read")]
    one: u8,
}

fn read<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u8, D::Error> {
    u8::deserialize(deserializer)
}

#[derive(Deserialize, AnswerShape)]
enum Others {
    One,
    #[serde(other)]
    Rest,
}

#[derive(Deserialize, AnswerShape)]
enum Mixed {
    One,
    #[serde(untagged)]
    Text(String),
}

#[derive(Deserialize, AnswerShape)]
#[serde(variant_identifier)]
enum Names {
    One,
}

#[derive(Deserialize, AnswerShape)]
struct Misspelt {
    #[answer(az = u8)]
    one: u8,
}

#[derive(Deserialize, AnswerShape)]
enum OnVariant {
    #[answer(as = u8)]
    One(u16),
}

#[derive(Deserialize, AnswerShape)]
struct Borrowed<'a> {
    one: &'a str,
}

fn main() {}
