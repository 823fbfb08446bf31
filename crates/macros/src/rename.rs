//! Computes the names that serde gives to fields and variants under `rename_all`.

use syn::LitStr;

use crate::suggest::nearest;

/// The rule by which serde renames the fields of a struct, or the variants of an enum.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum RenameRule {
    /// Names stay unchanged.
    #[default]
    Same,
    Lower,
    Upper,
    Pascal,
    Camel,
    Snake,
    ScreamingSnake,
    Kebab,
    ScreamingKebab,
}

const RULES: [(&str, RenameRule); 8] = [
    ("lowercase", RenameRule::Lower),
    ("UPPERCASE", RenameRule::Upper),
    ("PascalCase", RenameRule::Pascal),
    ("camelCase", RenameRule::Camel),
    ("snake_case", RenameRule::Snake),
    ("SCREAMING_SNAKE_CASE", RenameRule::ScreamingSnake),
    ("kebab-case", RenameRule::Kebab),
    ("SCREAMING-KEBAB-CASE", RenameRule::ScreamingKebab),
];

impl RenameRule {
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

    /// Converts the name of a field, which is in snake case. As in serde, `lowercase` leaves it unchanged.
    pub(crate) fn apply(self, field: &str) -> String {
        match self {
            Self::Same | Self::Lower | Self::Snake => field.to_owned(),
            Self::Upper | Self::ScreamingSnake => field.to_ascii_uppercase(),
            Self::Pascal => pascal(field),
            Self::Camel => small(&pascal(field)),
            Self::Kebab => field.replace('_', "-"),
            Self::ScreamingKebab => field.to_ascii_uppercase().replace('_', "-"),
        }
    }

    /// Converts the name of a variant, which is in Pascal case.
    pub(crate) fn apply_to_variant(self, variant: &str) -> String {
        match self {
            Self::Same | Self::Pascal => variant.to_owned(),
            Self::Lower => variant.to_ascii_lowercase(),
            Self::Upper => variant.to_ascii_uppercase(),
            Self::Camel => small(variant),
            Self::Snake => snake(variant),
            Self::ScreamingSnake => snake(variant).to_ascii_uppercase(),
            Self::Kebab => snake(variant).replace('_', "-"),
            Self::ScreamingKebab => snake(variant).to_ascii_uppercase().replace('_', "-"),
        }
    }
}

/// Converts the first letter to lower case.
fn small(name: &str) -> String {
    let mut chars = name.chars();
    let first = chars.next().map(|c| c.to_ascii_lowercase());
    first.into_iter().chain(chars).collect()
}

fn snake(variant: &str) -> String {
    let mut name = String::new();
    for c in variant.chars() {
        if c.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(c.to_ascii_lowercase());
    }
    name
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
