//! What an update changed, as plain operations in JSON.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use std::borrow::Cow;

use super::op::Op;
use super::parts::Part;
use super::secret::{HIDDEN, Secrets};
use crate::compact::few::SmallVec;
use crate::error::{Error, ErrorKind, Result};

/// What an update changed, as plain operations on channels, encoded once and kept as text.
///
/// In JSON: `[{"set":["draft","text"]},{"append":["notes",["checked"]]},{"merge":["scores",{"a":1}]},
/// {"remove":["scores",["k"]]}]`, see [`Op`]. Text that was read is kept exactly, and not looked into before it is
/// folded, merged or listed: a damaged patch is an error there, never a panic. Cloning copies no text.
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
    /// Text from a log, or from a caller, whose values nobody has checked yet.
    Text(Arc<RawValue>),
    /// Checked values in the one spelling of records: joined to text when a caller asks, not at every merge.
    Parts(SmallVec<Part>),
}

impl Default for Repr {
    fn default() -> Self {
        Self::Parts(SmallVec::new())
    }
}

impl Patch {
    /// Makes a patch of operations, as an operator's edit does.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if a value cannot be stored, see [`strict`](super::strict).
    pub fn from_ops(ops: &[Op]) -> Result<Self> {
        let mut parts = SmallVec::new();
        for op in ops {
            parts.push(Part::from_op(op)?);
        }
        Ok(Self::from_parts(parts))
    }

    /// Makes a patch of JSON text, which must be an array of operations.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if it is not.
    pub fn from_json(text: &str) -> Result<Self> {
        let bad = |source: serde_json::Error| {
            Error::new(ErrorKind::Invalid, format!("not a patch: {source}; see `Op` for its form"))
                .with_source(source)
        };
        let ops: Vec<Op> = serde_json::from_str(text).map_err(bad)?;
        Self::from_ops(&ops)
    }

    pub(super) fn from_parts(parts: SmallVec<Part>) -> Self {
        Self(Repr::Parts(parts))
    }

    /// Returns the operations.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if the text is no list of operations.
    pub fn ops(&self) -> Result<Vec<Op>> {
        match &self.0 {
            Repr::Text(text) => serde_json::from_str(text.get()).map_err(corrupt),
            Repr::Parts(parts) => serde_json::from_str(render(parts)?.get()).map_err(corrupt),
        }
    }

    /// Tells whether there is no operation in it.
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
    /// [`ErrorKind::Corrupt`] if this is a merge of patches of which one was damaged inside a value.
    pub fn as_raw_json(&self) -> Result<Cow<'_, RawValue>> {
        match &self.0 {
            Repr::Text(text) => Ok(Cow::Borrowed(text)),
            Repr::Parts(parts) => render(parts).map(Cow::Owned),
        }
    }

    /// Composes two patches into one that folds the same, for checkpoints that are further apart than the updates.
    ///
    /// A later `Set` or removal of a channel supersedes what came before on it; appended items join, merged entries join.
    /// The cost is that of looking through `later`, not through everything merged so far.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if the text of one of them is no list of operations, or has a value that cannot be stored.
    pub fn merge(self, later: Self) -> Result<Self> {
        if let (Repr::Parts(none), Repr::Parts(SmallVec::One(_))) = (&self.0, &later.0)
            && none.is_empty()
        {
            return Ok(later);
        }
        let mut parts = self.into_parts()?;
        for part in later.into_parts()? {
            super::parts::join(&mut parts, part);
        }
        Ok(Self::from_parts(parts))
    }

    /// Returns the patch as a record may hold it: with values that can be read back, in the one spelling of records.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if the text is no list of operations, [`ErrorKind::Invalid`] if a value in it cannot be stored.
    pub(crate) fn checked(self) -> Result<Self> {
        let Repr::Text(text) = &self.0 else { return Ok(self) };
        let mut parts = SmallVec::new();
        for part in Part::parse_all(text.get()).map_err(corrupt)? {
            parts.push(part.checked()?);
        }
        Ok(Self::from_parts(parts))
    }

    /// Appends the JSON text, as serde would write it.
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

    /// Returns the patch with [`HIDDEN`] in the place of what it changes in secret channels.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if the text is no list of operations.
    pub(crate) fn hiding(&self, secrets: &Secrets) -> Result<Self> {
        if secrets.is_empty() {
            return Ok(self.clone());
        }
        let hidden = |op: Op| match secrets.contains(op.channel()) {
            true => Op::Set(op.channel().to_owned(), HIDDEN.into()),
            false => op,
        };
        Self::from_ops(&self.ops()?.into_iter().map(hidden).collect::<Vec<_>>())
    }

    fn into_parts(self) -> Result<SmallVec<Part>> {
        match self.0 {
            Repr::Parts(parts) => Ok(parts),
            Repr::Text(text) => {
                let mut parts = SmallVec::new();
                for part in Part::parse_all(text.get()).map_err(corrupt)? {
                    let part = part.checked().map_err(|error| {
                        let message = format!("not a patch: {}", error.message());
                        Error::new(ErrorKind::Corrupt, message).with_source(error)
                    })?;
                    super::parts::join(&mut parts, part);
                }
                Ok(parts)
            }
        }
    }
}

fn render(parts: &[Part]) -> Result<Box<RawValue>> {
    serde_json::value::to_raw_value(parts).map_err(corrupt)
}

pub(super) fn corrupt(source: serde_json::Error) -> Error {
    Error::new(ErrorKind::Corrupt, format!("not a patch: {source}")).with_source(source)
}

impl PartialEq for Patch {
    /// Equal if the operations are.
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
    /// Shows the size, never a payload.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Text(text) => write!(f, "Patch({} bytes)", text.get().len()),
            Repr::Parts(parts) => write!(f, "Patch({} operations)", parts.len()),
        }
    }
}

#[cfg(test)]
mod tests;
