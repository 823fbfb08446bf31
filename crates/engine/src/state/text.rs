//! The JSON text of a value, which clones share.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// JSON text of one value.
///
/// It is similar to a `RawValue`, but the two copies that are needed to make a shared `RawValue` are avoided.
#[derive(Clone)]
pub(crate) struct JsonText(Arc<str>);

/// The capacity of the buffer that is retained for the next value. Memory for a larger value is freed.
const KEPT: usize = 16 * 1024;

thread_local! {
    /// The buffer for a value whose length is not known yet. It is taken out of this variable while it is used, because an encoder may encode other
    /// values.
    static DESK: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Passes a reusable buffer to `work`, and returns the result.
pub(crate) fn on_desk<R>(work: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    let mut desk = DESK.take();
    desk.clear();
    let result = work(&mut desk);
    if desk.capacity() <= KEPT {
        DESK.set(desk);
    }
    result
}

impl JsonText {
    /// Encodes a value.
    pub(super) fn of<T: ?Sized + Serialize>(value: &T) -> serde_json::Result<Self> {
        on_desk(|desk| {
            serde_json::to_writer(&mut *desk, value)?;
            std::str::from_utf8(desk).map(|text| Self(text.into())).map_err(serde_json::Error::custom)
        })
    }

    pub(super) fn get(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for JsonText {
    /// Shows the size without payloads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl From<&RawValue> for JsonText {
    fn from(text: &RawValue) -> Self {
        Self(text.get().into())
    }
}

impl Serialize for JsonText {
    /// Embeds the text, with one more scan. [`Patch::write`](super::Patch) is the fast path without the scan.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serde_json::from_str::<&RawValue>(&self.0).map_err(S::Error::custom)?.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::strict;

    /// A value that encodes another while it is encoded.
    struct Nested(u8);

    impl Serialize for Nested {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let inner = if self.0 == 0 {
                "0".to_owned()
            } else {
                JsonText::of(&Self(self.0 - 1)).unwrap().get().to_owned()
            };
            (self.0, inner).serialize(serializer)
        }
    }

    #[test]
    fn nested_encodings_use_separate_buffers() {
        assert_eq!(JsonText::of(&Nested(2)).unwrap().get(), r#"[2,"[1,\"[0,\\\"0\\\"]\"]"]"#);
    }

    #[test]
    fn a_large_value_does_not_hold_its_memory() {
        assert_eq!(JsonText::of(&"x".repeat(KEPT)).unwrap().get().len(), KEPT + 2);
        let kept = on_desk(|desk| desk.capacity());
        assert!(kept <= KEPT, "the buffer keeps {kept} bytes");
    }

    #[test]
    fn failed_encoding_leaves_nothing_for_next_value() {
        strict::channel_to_text("c", &(1, f64::NAN)).unwrap_err();
        assert_eq!(JsonText::of(&1).unwrap().get(), "1");
    }
}
