//! Reads values, and lists their names.

use std::collections::BTreeSet;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use chrono::{DateTime, Utc};
use futures_util::stream::{self, BoxStream, Stream, StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{Error, GetOptions, GetResult, GetResultPayload, ListResult, ObjectMeta, Result};
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::{CHUNK, PostgresObjects, fault, generic, missing, number};
use crate::db::query;

pub(super) const FIND: &str = "SELECT path, tag, size, at FROM {objects} WHERE path = $1";

/// Lists the names after `$1` in a folder, which has the names from `$2` to before `$3`.
pub(super) const LIST: &str = "\
    SELECT path, tag, size, at FROM {objects} \
    WHERE path > $1 AND path >= $2 AND ($3::text IS NULL OR path < $3) ORDER BY path LIMIT $4";

/// Reads the bytes of a value from `$2` to before `$3`. `$4` is the maximum size of a chunk.
pub(super) const READ: &str = "\
    SELECT substring(body FROM (greatest($2 - start, 0) + 1)::int4 FOR ($3 - greatest(start, $2))::int4) FROM {chunks} \
    WHERE tag = $1 AND start > $2 - $4 AND start < $3 ORDER BY start";

/// The number of bytes, and the number of names, that one statement reads.
const AT_ONCE: u64 = 32 * CHUNK as u64;
const NAMES: usize = 1_000;

/// The maximum number of times to look up a value that is replaced before it is read.
const TRIES: u32 = 16;

/// Converts a row of the table of names: the metadata, and the tag of the chunks.
fn meta(row: &PgRow) -> Result<(ObjectMeta, Uuid), Box<dyn std::error::Error + Send + Sync>> {
    let (path, tag): (String, Uuid) = (row.try_get(0)?, row.try_get(1)?);
    let (size, at): (i64, i64) = (row.try_get(2)?, row.try_get(3)?);
    let meta = ObjectMeta {
        location: Path::parse(path)?,
        last_modified: DateTime::<Utc>::from_timestamp_millis(at).ok_or("an invalid time")?,
        size: u64::try_from(size)?,
        e_tag: Some(tag.to_string()),
        version: None,
    };
    Ok((meta, tag))
}

impl PostgresObjects {
    pub(super) async fn find_object(&self, path: &Path) -> Result<(ObjectMeta, Uuid)> {
        let make = || query(&self.inner.find).bind(path.as_ref().to_owned());
        let rows = self.inner.db.read(make).await.map_err(|failed| fault(failed, "objects.find", path))?;
        meta(rows.first().ok_or_else(|| missing(path))?).map_err(generic)
    }

    /// Reads a part of a value; `None` if the value is gone.
    async fn part(&self, path: &Path, tag: Uuid, part: Range<u64>) -> Result<Option<Bytes>> {
        let make = || {
            let read = query(&self.inner.read).bind(tag).bind(number(part.start)).bind(number(part.end));
            read.bind(number(CHUNK as u64))
        };
        let rows = self.inner.db.read(make).await.map_err(|failed| fault(failed, "objects.read", path))?;
        let length = usize::try_from(part.end - part.start).unwrap_or(usize::MAX);
        let mut bytes = BytesMut::new();
        for row in rows {
            let body: &[u8] = row.try_get(0).map_err(generic)?;
            if bytes.is_empty() {
                bytes.reserve(length.min(usize::try_from(AT_ONCE).unwrap_or(usize::MAX)));
            }
            bytes.extend_from_slice(body);
        }
        Ok((bytes.len() == length).then(|| bytes.freeze()))
    }

    /// Reads the requested range. Reads the first part at once: if the value was replaced meanwhile, the method looks it up again. Reads the other
    /// parts on demand.
    pub(super) async fn get(&self, path: &Path, options: &GetOptions) -> Result<GetResult> {
        for _ in 0..TRIES {
            let (meta, tag) = self.find_object(path).await?;
            options.check_preconditions(&meta)?;
            let range = match &options.range {
                Some(range) => range.as_range(meta.size).map_err(generic)?,
                None => 0..meta.size,
            };
            let first = range.start..range.end.min(range.start + AT_ONCE);
            let read = match options.head || first.is_empty() {
                true => Some(Bytes::new()),
                false => self.part(path, tag, first.clone()).await?,
            };
            let Some(read) = read else { continue };
            let rest = if options.head { range.end..range.end } else { first.end..range.end };
            let begin = stream::once(async move { Ok(read) });
            let payload = begin.chain(self.clone().rest(path.clone(), tag, rest)).boxed();
            return Ok(GetResult {
                payload: GetResultPayload::Stream(payload),
                meta,
                range,
                attributes: <_>::default(),
                extensions: <_>::default(),
            });
        }
        Err(generic(format!("{path} is replaced repeatedly; read it again")))
    }

    fn rest(self, path: Path, tag: Uuid, rest: Range<u64>) -> impl Stream<Item = Result<Bytes>> + Send {
        stream::try_unfold(rest, move |rest| {
            let (objects, path) = (self.clone(), path.clone());
            async move {
                if rest.is_empty() {
                    return Ok(None);
                }
                let part = rest.start..rest.end.min(rest.start + AT_ONCE);
                let next = part.end..rest.end;
                match objects.part(&path, tag, part).await? {
                    Some(read) => Ok(Some((read, next))),
                    None => Err(generic(format!(
                        "{path} was replaced or removed while it was read; read it again"
                    ))),
                }
            }
        })
    }

    /// Lists the values in a folder and below it, after a name.
    pub(super) fn list_below(
        self,
        prefix: Option<&Path>,
        behind: String,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let folder = prefix.map(Path::as_ref).filter(|folder| !folder.is_empty()).map(str::to_owned);
        // In byte order, the names in a folder end before the character that follows the slash.
        let from = folder.as_ref().map_or_else(String::new, |folder| format!("{folder}/"));
        let to = folder.map(|folder| format!("{folder}0"));
        let pages = stream::try_unfold(Some(behind), move |behind| {
            let (objects, from, to) = (self.clone(), from.clone(), to.clone());
            async move {
                let Some(behind) = behind else { return Ok::<_, Error>(None) };
                let page = objects.page(&behind, &from, to.as_deref()).await?;
                let is_last = page.len() < NAMES;
                let next = page.last().filter(|_| !is_last).map(|last| last.location.to_string());
                Ok(Some((stream::iter(page.into_iter().map(Ok)), next)))
            }
        });
        pages.try_flatten().boxed()
    }

    async fn page(&self, behind: &str, from: &str, to: Option<&str>) -> Result<Vec<ObjectMeta>> {
        let make = || {
            let list = query(&self.inner.list).bind(behind.to_owned()).bind(from.to_owned());
            list.bind(to.map(str::to_owned)).bind(number(NAMES as u64))
        };
        let rows = self.inner.db.read(make).await;
        let rows = rows.map_err(|failed| fault(failed, "objects.list", &Path::from(from)))?;
        rows.iter().map(|row| Ok(meta(row).map_err(generic)?.0)).collect()
    }

    /// Lists the values in a folder, and the folders in it.
    pub(super) async fn folder(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let root = Path::default();
        let folder = prefix.unwrap_or(&root);
        let (mut folders, mut objects) = (BTreeSet::new(), Vec::new());
        let mut listed = self.clone().list_below(prefix, String::new());
        while let Some(object) = listed.try_next().await? {
            let inner = {
                let mut below = object.location.prefix_match(folder).into_iter().flatten();
                below.next().filter(|_| below.next().is_some()).map(|inner| folder.clone().join(inner))
            };
            match inner {
                Some(inner) => _ = folders.insert(inner),
                None => objects.push(object),
            }
        }
        Ok(ListResult { common_prefixes: folders.into_iter().collect(), objects, extensions: <_>::default() })
    }
}
