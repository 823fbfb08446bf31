//! Writes runs with small, correctly chained records.

use std::ops::{Deref, DerefMut};

use ferrata_store::{
    At, CheckpointStore, Clock as _, HeadRef, IdSource, RandomIds, RecordHeader, RecordId, Result, RunAppend,
    RunId, SystemClock,
};
use ferrata_testing::{Log, every_header};

pub(crate) fn fresh_id() -> RecordId {
    RecordId::from_uuid(RandomIds::new().next(SystemClock::new().now()))
}

/// A writer of one run, which knows of no other: what it makes counts as written.
#[derive(Clone, Debug)]
pub(crate) struct Author(Log);

impl Author {
    pub(crate) fn new(name: &str) -> Self {
        Self(Log::new(RunId::new(name).unwrap()).with_bases_every(5))
    }

    /// The next append, of so many records.
    pub(crate) fn next(&mut self, count: usize) -> RunAppend {
        self.next_as(count, b"{\"a\": 1}", |_| ())
    }

    /// The next append, of records with this body and shape.
    pub(crate) fn next_as(
        &mut self,
        count: usize,
        body: impl AsRef<[u8]>,
        shape: impl Fn(&mut RecordHeader),
    ) -> RunAppend {
        let append = self.0.next_as(count, body, shape);
        self.0.note_append(&append);
        append
    }
}

impl Deref for Author {
    type Target = Log;

    fn deref(&self) -> &Log {
        &self.0
    }
}

impl DerefMut for Author {
    fn deref_mut(&mut self) -> &mut Log {
        &mut self.0
    }
}

/// Appends one entry.
pub(crate) async fn append(store: &dyn CheckpointStore, entry: RunAppend) -> Result<HeadRef> {
    store.append(vec![entry]).await.pop().unwrap()
}

/// Checks that the log is exactly what its author wrote, no record lost, doubled or changed.
pub(crate) async fn is_kept(store: &dyn CheckpointStore, author: &Author) {
    let headers = every_header(store, &author.key).await.unwrap();
    assert_eq!(headers, author.headers(), "the log of {}", author.key);
    let loaded = store.load(&author.key, At::Latest).await.unwrap().unwrap();
    assert!(author.records.ends_with(&loaded), "what is loaded of {}", author.key);
    let head = store.head(&author.key).await.unwrap().unwrap();
    assert_eq!(Some(head.head()), author.head(), "the head of {}", author.key);
}
