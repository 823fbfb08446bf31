//! The names of objects in the object store, and the conversion of its errors.
//!
//! An id in a name is a UUIDv7 in 32 hex digits. A hash is the BLAKE3 hash of the value. With a key, the hash is keyed with
//! `derive_key("ferrata blob 1 content", ..)` of the tenant's key for blobs. An object in `index`, `condemned` or `clock` is empty.

use ferrata_store::{Error, ErrorKind, TenantId};
use object_store::path::Path;
use uuid::Uuid;

use crate::blob::Blob;

/// The kinds of objects of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ObjectKind {
    /// `<tenant>/data/<id>`: a value.
    Data,
    /// `<tenant>/index/<hash>/<id>`: the index entry that finds a value by its hash.
    Index,
    /// `<tenant>/condemned/<id>`: a note of the time at which no record named this value. A collection removes the index entries of the value before
    /// it writes the note, so that later puts do not find the value.
    Condemned,
    /// `<tenant>/clock/<id>`: an object that is written only to read the clock of the object store.
    Clock,
}

impl ObjectKind {
    const ALL: [Self; 4] = [Self::Data, Self::Index, Self::Condemned, Self::Clock];

    fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Index => "index",
            Self::Condemned => "condemned",
            Self::Clock => "clock",
        }
    }
}

/// Returns the name of an object. The tenant's part contains only characters that every object store and file system accepts.
pub(crate) fn path(tenant: &TenantId, kind: ObjectKind, rest: &[&str]) -> Path {
    Path::from_iter([tenant.as_str(), kind.name()].iter().chain(rest).copied())
}

/// Parses the name of an object into its tenant, kind and value id.
pub(crate) fn read(path: &Path) -> Option<(TenantId, ObjectKind, Uuid)> {
    let mut parts = path.parts();
    let tenant = TenantId::new(parts.next()?.as_ref()).ok()?;
    let kind = parts.next()?;
    let kind = ObjectKind::ALL.into_iter().find(|known| known.name() == kind.as_ref())?;
    Some((tenant, kind, id_of(path)?))
}

/// Parses the id at the end of a name.
pub(crate) fn id_of(path: &Path) -> Option<Uuid> {
    Uuid::try_parse(path.filename()?).ok()
}

/// Converts an error of the object store.
pub(crate) fn failed(error: object_store::Error) -> Error {
    use object_store::Error as E;
    let (kind, message) = match &error {
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => (
            ErrorKind::Invalid,
            "the object store for blobs denied access; correct the credentials and permissions of this process",
        ),
        E::NotSupported { .. } | E::NotImplemented { .. } => {
            (ErrorKind::Unsupported, "the object store cannot store blobs; choose another one")
        }
        _ => (ErrorKind::Unavailable, "a request to the object store for blobs failed; retry"),
    };
    Error::new(kind, message).with_source(error)
}

/// Converts an error of the object store that occurred while reading a value.
pub(crate) fn failed_to_read(error: object_store::Error, blob: &Blob) -> Error {
    match error {
        object_store::Error::NotFound { .. } => {
            let message = format!(
                "cannot find {blob} in this object store for this tenant: it was collected, or put elsewhere; restore it from a backup, or \
                 read it with the object store and the tenant of its put"
            );
            Error::new(ErrorKind::NotFound, message).with_source(error)
        }
        error => failed(error),
    }
}

/// Creates the error for a damaged value.
pub(crate) fn corrupt(blob: &Blob) -> Error {
    Error::new(ErrorKind::Corrupt, format!("{blob} is damaged; restore it from a backup"))
}
