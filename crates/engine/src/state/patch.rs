//! Patches, which contain the changes of an update as operations in JSON.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use std::borrow::Cow;

use super::op::Op;
use super::patch_parts::PatchPart;
use super::secret::{HIDDEN, Secrets};
use crate::compact::small_vec::SmallVec;
use crate::error::{Error, ErrorKind, Result};

/// A patch: the changes of an update, as a list of operations on channels. The operations are encoded once and kept as text.
///
/// In JSON: `[{"set":["draft","text"]},{"append":["notes",["checked"]]},{"merge":["scores",{"a":1}]}, {"remove":["scores",["k"]]}]`, see [`Op`]. A
/// patch from a log keeps its text. The text is parsed when the patch is applied, merged or listed. If the patch is damaged, this returns an error
/// and never panics. Clones share the text.
///
/// # Examples
///
/// ```
/// use ferrata_core::state::{Channels, Patch};
///
/// let patch: Patch = serde_json::from_str(r#"[{"append":["notes",["checked"]]}]"#).unwrap();
/// let mut state = Channels::from_json(r#"{"notes":["begun"]}"#)?;
/// state.apply(&patch)?;
/// assert_eq!(state.to_json()?, r#"{"notes":["begun","checked"]}"#);
/// # Ok::<(), ferrata_core::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Patch(Repr);

#[derive(Clone)]
enum Repr {
    /// The patch is text from a log or a caller, whose values are not checked.
    Text(Arc<RawValue>),
    /// The patch consists of checked values in the canonical spelling of records. They are joined to a text only when the text is needed.
    Parts(SmallVec<PatchPart>),
}

impl Default for Repr {
    fn default() -> Self {
        Self::Parts(SmallVec::new())
    }
}

impl Patch {
    /// Creates a patch from operations, for example to edit the state of a run.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if a value cannot be stored, see [`strict`](super::strict).
    pub fn from_ops(ops: &[Op]) -> Result<Self> {
        let mut parts = SmallVec::new();
        for op in ops {
            parts.push(PatchPart::from_op(op)?);
        }
        Ok(Self::from_parts(parts))
    }

    /// Creates a patch from JSON text, which must be an array of operations.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the text is not such an array.
    pub fn from_json(text: &str) -> Result<Self> {
        let bad = |source: serde_json::Error| {
            Error::new(ErrorKind::Invalid, format!("not a patch: {source}; see `Op` for its form"))
                .with_source(source)
        };
        let ops: Vec<Op> = serde_json::from_str(text).map_err(bad)?;
        Self::from_ops(&ops)
    }

    pub(super) fn from_parts(parts: SmallVec<PatchPart>) -> Self {
        Self(Repr::Parts(parts))
    }

    /// Returns the operations.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Corrupt`] if the text is not a list of operations.
    pub fn ops(&self) -> Result<Vec<Op>> {
        match &self.0 {
            Repr::Text(text) => serde_json::from_str(text.get()).map_err(corrupt),
            Repr::Parts(parts) => serde_json::from_str(render(parts)?.get()).map_err(corrupt),
        }
    }

    /// Returns whether the patch has no operations.
    pub fn is_empty(&self) -> bool {
        match &self.0 {
            Repr::Parts(parts) => parts.is_empty(),
            Repr::Text(text) => {
                let inside = text.get().strip_prefix('[').and_then(|text| text.strip_suffix(']'));
                inside.is_some_and(|inside| inside.trim_ascii().is_empty())
            }
        }
    }

    /// Returns the JSON text.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Corrupt`] if the patch is a merge with a patch that had a damaged value.
    pub(crate) fn as_raw_json(&self) -> Result<Cow<'_, RawValue>> {
        match &self.0 {
            Repr::Text(text) => Ok(Cow::Borrowed(text)),
            Repr::Parts(parts) => render(parts).map(Cow::Owned),
        }
    }

    /// Combines two patches into one patch with the same effect. It is used when one checkpoint contains several updates.
    ///
    /// If the later patch sets or removes a channel, the earlier operations on this channel are dropped. Appended items are concatenated, and merged
    /// entries are combined. The cost depends only on the size of `later`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Corrupt`] if the text of a patch is not a list of operations, or has a value that cannot be stored.
    pub fn merge(self, later: Self) -> Result<Self> {
        if let (Repr::Parts(none), Repr::Parts(SmallVec::One(_))) = (&self.0, &later.0)
            && none.is_empty()
        {
            return Ok(later);
        }
        let mut parts = self.into_parts()?;
        for part in later.into_parts()? {
            super::patch_parts::join(&mut parts, part);
        }
        Ok(Self::from_parts(parts))
    }

    /// Checks the values of the patch, and returns the patch in its stored form, which has the canonical spelling of records.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Corrupt`] if the text is not a list of operations, [`ErrorKind::Invalid`] if a value in it cannot be stored.
    #[doc(hidden)]
    pub fn into_stored(self) -> Result<Self> {
        let Repr::Text(text) = &self.0 else { return Ok(self) };
        let mut parts = SmallVec::new();
        for part in PatchPart::parse_all(text.get()).map_err(corrupt)? {
            parts.push(part.into_stored()?);
        }
        Ok(Self::from_parts(parts))
    }

    /// Appends the JSON text in serde's form.
    pub(crate) fn write(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
        let parts = match &self.0 {
            Repr::Text(text) => {
                out.extend_from_slice(text.get().as_bytes());
                return Ok(());
            }
            Repr::Parts(parts) => parts,
        };
        out.push(b'[');
        for (at, part) in parts.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            part.write(out)?;
        }
        out.push(b']');
        Ok(())
    }

    /// Returns the patch with [`HIDDEN`] in place of the values of secret channels.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Corrupt`] if the text is not a list of operations.
    #[doc(hidden)]
    pub fn hiding(&self, secrets: &Secrets) -> Result<Self> {
        if secrets.is_empty() {
            return Ok(self.clone());
        }
        let hidden = |op: Op| match secrets.contains(op.channel()) {
            true => Op::Set(op.channel().to_owned(), HIDDEN.into()),
            false => op,
        };
        Self::from_ops(&self.ops()?.into_iter().map(hidden).collect::<Vec<_>>())
    }

    fn into_parts(self) -> Result<SmallVec<PatchPart>> {
        match self.0 {
            Repr::Parts(parts) => Ok(parts),
            Repr::Text(text) => {
                let mut parts = SmallVec::new();
                for part in PatchPart::parse_all(text.get()).map_err(corrupt)? {
                    let part = part.into_stored().map_err(|error| {
                        let message = format!("not a patch: {}", error.message());
                        Error::new(ErrorKind::Corrupt, message).with_source(error)
                    })?;
                    super::patch_parts::join(&mut parts, part);
                }
                Ok(parts)
            }
        }
    }
}

fn render(parts: &[PatchPart]) -> Result<Box<RawValue>> {
    serde_json::value::to_raw_value(parts).map_err(corrupt)
}

pub(super) fn corrupt(source: serde_json::Error) -> Error {
    Error::new(ErrorKind::Corrupt, format!("not a patch: {source}")).with_source(source)
}

impl PartialEq for Patch {
    /// Compares the operations.
    fn eq(&self, other: &Self) -> bool {
        match (self.ops(), other.ops()) {
            (Ok(left), Ok(right)) => left == right,
            _ => false,
        }
    }
}

impl Serialize for Patch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Repr::Text(text) => text.serialize(serializer),
            Repr::Parts(parts) => parts.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Patch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        if !text.get().starts_with('[') {
            return Err(serde::de::Error::custom("a patch is an array of operations"));
        }
        Ok(Self(Repr::Text(Arc::from(text))))
    }
}

impl fmt::Debug for Patch {
    /// Shows the size without payloads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Text(text) => write!(f, "Patch({} bytes)", text.get().len()),
            Repr::Parts(parts) => write!(f, "Patch({} operations)", parts.len()),
        }
    }
}

#[cfg(test)]
mod tests;
