//! Stored enumerations. Each value has a word, a letter and an index, which never change.

/// Declares an enumeration with the word and the letter that stores write for each value. Add new values at the end.
macro_rules! words {
    (
        $(#[$about:meta])*
        pub enum $name:ident {
            $($(#[$doc:meta])* $value:ident = $word:literal, $letter:literal;)*
        }
    ) => {
        $(#[$about])*
        pub enum $name {
            $($(#[$doc])* #[serde(rename = $word)] $value,)*
        }

        impl $name {
            /// All values, in the order of declaration. The index of a value never changes, so a store may write it.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$value),*];

            /// Returns the stored and displayed name.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)*
                }
            }

            /// Returns the letter of the value, for stores that write one readable byte.
            #[doc(hidden)]
            pub const fn letter(self) -> char {
                match self {
                    $(Self::$value => $letter,)*
                }
            }

            /// Returns the value with this letter; `None` if this version does not know the letter.
            #[doc(hidden)]
            pub fn from_letter(letter: char) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.letter() == letter)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

pub(super) use words;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use crate::record::{RecordKind, RunStatus};

    #[test]
    fn kinds_and_statuses_have_unique_words_and_letters() {
        let letters: HashSet<char> = RecordKind::ALL.into_iter().map(RecordKind::letter).collect();
        let words: HashSet<&str> = RecordKind::ALL.into_iter().map(RecordKind::as_str).collect();
        assert_eq!((letters.len(), words.len()), (RecordKind::ALL.len(), RecordKind::ALL.len()));
        for kind in RecordKind::ALL {
            assert_eq!(RecordKind::from_letter(kind.letter()), Some(kind));
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        }
        let letters: HashSet<char> = RunStatus::ALL.into_iter().map(RunStatus::letter).collect();
        assert_eq!(letters.len(), RunStatus::ALL.len());
        for status in RunStatus::ALL {
            assert_eq!(RunStatus::from_letter(status.letter()), Some(status));
            assert_eq!(serde_json::to_string(&status).unwrap(), format!("\"{status}\""));
        }
        assert_eq!((RecordKind::from_letter('z'), RunStatus::from_letter('\0')), (None, None));
    }
}
