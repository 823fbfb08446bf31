//! The names serde gives to fields under `rename_all`.

use syn::LitStr;

use crate::suggest::nearest;

/// How serde spells the fields of a struct.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Rule {
    /// As it is written; also what serde does to fields for `lowercase` and `snake_case`.
    #[default]
    Same,
    Upper,
    Pascal,
    Camel,
    Kebab,
    ScreamingKebab,
}

const RULES: [(&str, Rule); 8] = [
    ("lowercase", Rule::Same),
    ("UPPERCASE", Rule::Upper),
    ("PascalCase", Rule::Pascal),
    ("camelCase", Rule::Camel),
    ("snake_case", Rule::Same),
    ("SCREAMING_SNAKE_CASE", Rule::Upper),
    ("kebab-case", Rule::Kebab),
    ("SCREAMING-KEBAB-CASE", Rule::ScreamingKebab),
];

impl Rule {
    pub(crate) fn parse(text: &LitStr) -> syn::Result<Self> {
        let given = text.value();
        if let Some((_, rule)) = RULES.iter().find(|(name, _)| *name == given) {
            return Ok(*rule);
        }
        let names = RULES.map(|(name, _)| name);
        let hint =
            nearest(&given, &names).map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
        Err(syn::Error::new(text.span(), format!("serde knows no spelling `{given}`{hint}")))
    }

    pub(crate) fn apply(self, field: &str) -> String {
        match self {
            Self::Same => field.to_owned(),
            Self::Upper => field.to_ascii_uppercase(),
            Self::Pascal => pascal(field),
            Self::Camel => {
                let name = pascal(field);
                let mut chars = name.chars();
                let first = chars.next().map(|c| c.to_ascii_lowercase());
                first.into_iter().chain(chars).collect()
            }
            Self::Kebab => field.replace('_', "-"),
            Self::ScreamingKebab => field.to_ascii_uppercase().replace('_', "-"),
        }
    }
}

fn pascal(field: &str) -> String {
    let mut name = String::new();
    let mut capital = true;
    for c in field.chars() {
        if c == '_' {
            capital = true;
        } else if capital {
            name.push(c.to_ascii_uppercase());
            capital = false;
        } else {
            name.push(c);
        }
    }
    name
}
