//! Where in a run's log somebody wants to look.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use super::walk;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{NodeName, RecordId, RunKey, Seq, Visit};
use crate::record::RecordKind;
use crate::store::{At, CheckpointStore, Order, Page};

/// A place in a run's log: right after a record.
///
/// As text: `latest`, a number, a record id, or `node@visit`.
///
/// # Examples
///
/// ```
/// use ferrata_core::runtime::Position;
///
/// assert_eq!("latest".parse::<Position>()?, Position::Latest);
/// assert_eq!("pay@2".parse::<Position>()?.to_string(), "pay@2");
/// assert!("pay".parse::<Position>().is_err());
/// # Ok::<(), ferrata_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Position {
    /// After the last record.
    #[default]
    Latest,
    /// After the record with this number.
    Seq(Seq),
    /// After the record with this id.
    Record(RecordId),
    /// After the record in which this activation ended.
    Visit(NodeName, Visit),
}

impl Position {
    /// Finds the record that is meant. Reads no body unless several activations share a record.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if the activation has not ended in any record that is kept.
    pub(crate) async fn find(&self, store: &dyn CheckpointStore, run: &RunKey) -> Result<At> {
        let (node, visit) = match self {
            Self::Latest => return Ok(At::Latest),
            Self::Seq(seq) => return Ok(At::Seq(*seq)),
            Self::Record(id) => return Ok(At::Record(*id)),
            Self::Visit(node, visit) => (node, *visit),
        };
        let mut page = Page::first(Page::MAX).with_order(Order::NewestFirst);
        loop {
            let found = store.history(run, page).await?;
            let named = |header: &&crate::record::RecordHeader| {
                header.kind == RecordKind::Node
                    && header.node.as_ref() == Some(node)
                    && header.visit == Some(visit)
            };
            if let Some(header) = found.items.iter().find(named) {
                return Ok(At::Seq(header.seq));
            }
            match found.next {
                Some(next) => page = Page::first(Page::MAX).with_order(Order::NewestFirst).with_cursor(next),
                None => break,
            }
        }
        // A header names only the last of several that ended in one record.
        for end in walk::segment_ends(store, run, At::Latest).await? {
            for (header, body) in walk::segment(store, run, end).await? {
                if let crate::record::body::Event::Node(nodes) = &body.event
                    && nodes.done.iter().any(|done| done.node == *node && done.visit == visit)
                {
                    return Ok(At::Seq(header.seq));
                }
            }
        }
        let message = format!("no record that is kept says that {self} ended; list them with `history`");
        Err(Error::new(ErrorKind::NotFound, message).with_run(run))
    }
}

impl From<At> for Position {
    fn from(at: At) -> Self {
        match at {
            At::Latest => Self::Latest,
            At::Seq(seq) => Self::Seq(seq),
            At::Record(id) => Self::Record(id),
        }
    }
}

impl From<Seq> for Position {
    fn from(seq: Seq) -> Self {
        Self::Seq(seq)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latest => f.write_str("latest"),
            Self::Seq(seq) => write!(f, "{seq}"),
            Self::Record(id) => write!(f, "{id}"),
            Self::Visit(node, visit) => write!(f, "{node}@{visit}"),
        }
    }
}

impl FromStr for Position {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "latest" {
            return Ok(Self::Latest);
        }
        if let Ok(number) = text.parse::<u64>() {
            return Ok(Self::Seq(Seq::new(number)));
        }
        if let Some((node, visit)) = text.rsplit_once('@')
            && let Ok(visit) = visit.parse::<u32>()
        {
            return Ok(Self::Visit(NodeName::new(node)?, Visit::new(visit)));
        }
        if let Ok(id) = text.parse::<Uuid>() {
            return Ok(Self::Record(RecordId::from_uuid(id)));
        }
        let message = format!(
            "`{}` is no place in a log; use `latest`, a number, a record id, or `node@visit`",
            text.escape_debug()
        );
        Err(Error::new(ErrorKind::Invalid, message))
    }
}
