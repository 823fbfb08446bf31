//! Large values in tables of the store's database: an object store that needs no other service.
//!
//! A writer writes the chunks of a value under its own tag, and then one statement gives the value its name. So a name always belongs to a complete
//! value, and a reader gets one whole value.

mod read;
mod upload;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use ferrata_store::{Clock as _, Error as StoreFault, IdSource as _, RandomIds, SystemClock};
use futures_util::stream::{BoxStream, StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{
    Attributes, CopyMode, CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use uuid::Uuid;

use crate::db::{PostgresDb, Sql, query};
use crate::error::PostgresStoreError;
use crate::names::Names;
use crate::store::PostgresStore;
use upload::ObjectUpload;

/// The store's name in errors of the object store.
const STORE: &str = "postgres";

/// The maximum size of a chunk in bytes. A chunk is one row, which can be read alone.
const CHUNK: usize = 256 << 10;

/// Inserts chunks of a value that has no name yet.
const WRITE: &str = "\
    INSERT INTO {chunks} (tag, start, at, body) \
    SELECT $1, c.start, {now}, c.body FROM unnest($2::int8[], $3::bytea[]) AS c(start, body)";

/// Copies the chunks of a value to a new value that has no name yet.
const COPY: &str = "\
    INSERT INTO {chunks} (tag, start, at, body) SELECT $1, start, {now}, body FROM {chunks} WHERE tag = $2";

/// Tests whether the whole value was written.
const WHOLE: &str = "\
    whole AS MATERIALIZED (SELECT coalesce(sum(octet_length(body)), 0) = $3 AS yes FROM {chunks} WHERE tag = $2)";

/// Returns whether the value was complete, and the number of named values.
const SAID: &str = "SELECT whole.yes, (SELECT count(*) FROM named) FROM whole";

/// Removes some chunks that have had no name for a long time.
const SWEEP: &str = "\
    DELETE FROM {chunks} WHERE (tag, start) IN (SELECT c.tag, c.start FROM {chunks} c WHERE c.at < {now} - $1 \
    AND NOT EXISTS (SELECT FROM {objects} o WHERE o.tag = c.tag) LIMIT 1000) RETURNING tag";

/// Removes the chunks of a value whose name was refused.
const FORGET: &str = "\
    DELETE FROM {chunks} WHERE tag = $1 AND NOT EXISTS (SELECT FROM {objects} o WHERE o.tag = $1)";

const REMOVE: &str = "\
    WITH gone AS (DELETE FROM {objects} WHERE path = $1 RETURNING tag), \
    emptied AS (DELETE FROM {chunks} c USING gone WHERE c.tag = gone.tag) SELECT count(*) FROM gone";

/// Returns the statement that gives a value a name which no other value has.
fn name_free() -> String {
    format!(
        "WITH {WHOLE}, named AS (INSERT INTO {{objects}} (path, tag, size, at) SELECT $1, $2, $3, {{now}} FROM whole WHERE yes \
         ON CONFLICT DO NOTHING RETURNING tag) {SAID}"
    )
}

/// Returns the statement that gives a value a name, whether or not another value has the name.
fn name_over() -> String {
    // The statement finds the old value before it renames: the server skips rows that the same statement has changed.
    format!(
        "WITH {WHOLE}, before AS MATERIALIZED (SELECT o.tag FROM {{objects}} o, whole WHERE yes AND o.path = $1 FOR UPDATE OF o), \
         named AS (INSERT INTO {{objects}} (path, tag, size, at) SELECT $1, $2, $3, {{now}} FROM whole, (SELECT count(*) FROM before) b \
         WHERE yes ON CONFLICT (path) DO UPDATE SET tag = EXCLUDED.tag, size = EXCLUDED.size, at = EXCLUDED.at RETURNING tag), \
         emptied AS (DELETE FROM {{chunks}} c USING before WHERE c.tag = before.tag) {SAID}"
    )
}

/// Returns the statement that gives a value a name which a certain other value has.
fn name_instead() -> String {
    format!(
        "WITH {WHOLE}, named AS (UPDATE {{objects}} o SET tag = $2, size = $3, at = {{now}} FROM whole \
         WHERE yes AND o.path = $1 AND o.tag = $4 RETURNING o.tag), \
         emptied AS (DELETE FROM {{chunks}} c USING named WHERE c.tag = $4) {SAID}"
    )
}

/// The condition for naming a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NamePrecondition {
    /// No value has the name.
    Nothing,
    Anything,
    /// This value has the name.
    This(Uuid),
}

/// Large values in tables of a [`PostgresStore`]. Use it as the object store of `Blobs` if the processes share a database but no bucket and no
/// folder.
///
/// The type implements [`ObjectStore`] of the crate `object_store`. [`setup`](ferrata_store::CheckpointStore::setup) creates its tables. A `put` or
/// `complete` is as durable as a record. Values are written and read in parts of 8 MiB, and a reader can read a part of a value alone. The store
/// does not keep attributes or old versions.
///
/// # Examples
///
/// ```no_run
/// use ferrata_store::CheckpointStore as _;
/// use ferrata_store_postgres::{PostgresOptions, PostgresStore};
/// use object_store::ObjectStoreExt as _;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = PostgresStore::from_url("postgres://me@localhost/app", PostgresOptions::default())?;
/// store.setup().await?;
/// let objects = store.objects();
/// objects.put(&"letters/1".into(), "dear reader".into()).await?;
/// assert_eq!(objects.get_range(&"letters/1".into(), 5..11).await?, "reader");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PostgresObjects {
    inner: Arc<Inner>,
}

struct Inner {
    db: PostgresDb,
    ids: RandomIds,
    write: Sql,
    copy: Sql,
    name_free: Sql,
    name_over: Sql,
    name_instead: Sql,
    remove: Sql,
    sweep: Sql,
    forget: Sql,
    find: Sql,
    list: Sql,
    read: Sql,
}

impl PostgresStore {
    /// Returns the object store for large values in the database of this store. It uses the same connections.
    pub fn objects(&self) -> PostgresObjects {
        PostgresObjects::new(self.db().clone(), self.names())
    }
}

impl PostgresObjects {
    fn new(db: PostgresDb, names: &Names) -> Self {
        let sql = |template: &str| -> Sql { names.fill(template).into() };
        let inner = Inner {
            db,
            ids: RandomIds::new(),
            write: sql(WRITE),
            copy: sql(COPY),
            name_free: sql(&name_free()),
            name_over: sql(&name_over()),
            name_instead: sql(&name_instead()),
            remove: sql(REMOVE),
            sweep: sql(SWEEP),
            forget: sql(FORGET),
            find: sql(read::FIND),
            list: sql(read::LIST),
            read: sql(read::READ),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Removes chunks that are older than `longest` and belong to no named value, such as those of abandoned uploads. Returns the number of removed
    /// rows. An upload that takes longer than `longest` fails.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unavailable`](ferrata_store::ErrorKind::Unavailable) if no connection is free or the server cannot be reached,
    /// [`ErrorKind::Indeterminate`](ferrata_store::ErrorKind::Indeterminate) if the server did not answer in time, or another error of the server.
    /// Call it again.
    pub async fn sweep(&self, longest: Duration) -> ferrata_store::Result<u64> {
        // No value is older than the year 0.
        let ms = i64::try_from(longest.as_millis()).unwrap_or(i64::MAX).min(1 << 46);
        let mut swept = 0;
        loop {
            let some = self.inner.db.write(query(&self.inner.sweep).bind(ms)).await;
            match some.map_err(|failed| failed.into_error("objects.sweep"))?.len() as u64 {
                0 => return Ok(swept),
                some => swept += some,
            }
        }
    }

    fn tag(&self) -> Uuid {
        self.inner.ids.next(SystemClock::new().now())
    }

    /// Writes the bytes of a value from offset `start` on.
    async fn write(&self, path: &Path, tag: Uuid, start: u64, body: &Bytes) -> Result<()> {
        if body.is_empty() {
            return Ok(());
        }
        let chunks: Vec<&[u8]> = body.chunks(CHUNK).collect();
        let starts: Vec<i64> = (0..chunks.len() as u64).map(|n| number(start + n * CHUNK as u64)).collect();
        let write = query(&self.inner.write).bind(tag).bind(starts).bind(chunks);
        self.inner.db.write(write).await.map(drop).map_err(|failed| fault(failed, "objects.write", path))
    }

    /// Gives a written value its name.
    async fn name(&self, path: &Path, tag: Uuid, size: u64, before: NamePrecondition) -> Result<PutResult> {
        let inner = &*self.inner;
        let sql = match before {
            NamePrecondition::Nothing => &inner.name_free,
            NamePrecondition::Anything => &inner.name_over,
            NamePrecondition::This(_) => &inner.name_instead,
        };
        let mut name = query(sql).bind(path.as_ref().to_owned()).bind(tag).bind(number(size));
        if let NamePrecondition::This(tag) = before {
            name = name.bind(tag);
        }
        let rows = inner.db.write(name).await.map_err(|failed| fault(failed, "objects.name", path))?;
        let said = rows.first().and_then(|row| {
            Some((sqlx::Row::try_get::<bool, _>(row, 0).ok()?, sqlx::Row::try_get::<i64, _>(row, 1).ok()?))
        });
        let path = path.to_string();
        match (said, before) {
            (Some((true, 1)), _) => {
                Ok(PutResult { e_tag: Some(tag.to_string()), version: None, extensions: <_>::default() })
            }
            (Some((true, _)), NamePrecondition::This(_)) => {
                Err(Error::Precondition { path, source: "another value has this name".into() })
            }
            (Some((true, _)), _) => {
                Err(Error::AlreadyExists { path, source: "a value already has this name".into() })
            }
            _ => Err(generic(format!(
                "parts of {path} are missing, because the upload took too long; upload it again"
            ))),
        }
    }

    /// Writes a value and gives it its name.
    async fn put_whole(&self, path: &Path, body: &Bytes, before: NamePrecondition) -> Result<PutResult> {
        let tag = self.tag();
        let mut upload = ObjectUpload::new(self.clone(), path.clone(), tag, before);
        for part in body.chunks(CHUNK * 32).map(|part| body.slice_ref(part)) {
            upload.put_part(part.into()).await?;
        }
        upload.finish().await
    }

    /// Removes the chunks of a value without a name.
    async fn forget(&self, path: &Path, tag: Uuid) -> Result<()> {
        let forgotten = self.inner.db.write(query(&self.inner.forget).bind(tag)).await;
        forgotten.map(drop).map_err(|failed| fault(failed, "objects.forget", path))
    }

    async fn remove(&self, path: &Path) -> Result<()> {
        let remove = query(&self.inner.remove).bind(path.as_ref().to_owned());
        let rows =
            self.inner.db.write(remove).await.map_err(|failed| fault(failed, "objects.remove", path))?;
        match rows.first().and_then(|row| sqlx::Row::try_get::<i64, _>(row, 0).ok()) {
            Some(1..) => Ok(()),
            _ => Err(missing(path)),
        }
    }
}

#[async_trait]
impl ObjectStore for PostgresObjects {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        without(&options.attributes)?;
        let before = match options.mode {
            PutMode::Create => NamePrecondition::Nothing,
            PutMode::Overwrite => NamePrecondition::Anything,
            PutMode::Update(version) => {
                let tag = version.e_tag.as_deref().and_then(|tag| Uuid::try_parse(tag).ok());
                NamePrecondition::This(tag.ok_or_else(|| Error::Precondition {
                    path: location.to_string(),
                    source: "the version to replace is not a version of this store".into(),
                })?)
            }
        };
        self.put_whole(location, &payload.into(), before).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        without(&options.attributes)?;
        Ok(Box::new(ObjectUpload::new(
            self.clone(),
            location.clone(),
            self.tag(),
            NamePrecondition::Anything,
        )))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.get(location, &options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let objects = self.clone();
        let remove = move |path: Path| {
            let objects = objects.clone();
            async move { objects.remove(&path).await.map(|()| path) }
        };
        locations.and_then(remove).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.clone().list_below(prefix, String::new())
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.clone().list_below(prefix, offset.to_string())
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.folder(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let before = match options.mode {
            CopyMode::Create => NamePrecondition::Nothing,
            CopyMode::Overwrite => NamePrecondition::Anything,
        };
        let (found, source) = self.find_object(from).await?;
        let tag = self.tag();
        let copy = query(&self.inner.copy).bind(tag).bind(source);
        self.inner.db.write(copy).await.map_err(|failed| fault(failed, "objects.copy", from))?;
        let upload = ObjectUpload::written(self.clone(), to.clone(), tag, before, found.size);
        upload.finish().await.map(drop)
    }
}

impl fmt::Display for PostgresObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PostgresObjects")
    }
}

impl fmt::Debug for PostgresObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresObjects").finish_non_exhaustive()
    }
}

/// Refuses attributes, because the store would lose them.
fn without(attributes: &Attributes) -> Result<()> {
    match attributes.is_empty() {
        true => Ok(()),
        false => Err(Error::NotImplemented {
            operation: "put with attributes".to_owned(),
            implementer: STORE.to_owned(),
        }),
    }
}

fn number(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn missing(path: &Path) -> Error {
    Error::NotFound { path: path.to_string(), source: "the value does not exist".into() }
}

fn generic(message: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Generic { store: STORE, source: message.into() }
}

/// Converts a failure of the database into an error of the object store.
fn fault(failed: PostgresStoreError, operation: &'static str, path: &Path) -> Error {
    let error: StoreFault = failed.into_error(operation);
    match error.kind() {
        // The database denied the permission, or the tables are missing. The error describes which.
        ferrata_store::ErrorKind::Invalid => {
            Error::PermissionDenied { path: path.to_string(), source: error.into() }
        }
        ferrata_store::ErrorKind::Unsupported => Error::NotSupported { source: error.into() },
        _ => generic(error),
    }
}
