//! A position in the log of a run, with the text forms that callers can use.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use crate::error::{Error, ErrorKind, Result};
use crate::graph::suggest::no_node;
use crate::id::{NodeName, RecordId, RunKey, Seq, Visit};
use crate::log_reader;
use crate::record::RecordKind;
use crate::store::{At, CheckpointStore, HeaderRange};

/// A position in the log of a run. A position is always directly after a record.
///
/// Its text form is `latest`, the number of a record, the id of a record, or `node@visit`.
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
    /// The position after the last record.
    #[default]
    Latest,
    /// The position after the record with this number.
    Seq(Seq),
    /// The position after the record with this id.
    Record(RecordId),
    /// The position after the record with the end of this activation.
    Visit(NodeName, Visit),
}

impl Position {
    /// Finds the record of the position. If a header names the activation and no later record is a signal, the call loads no bodies.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::NotFound`] if no stored record ended the activation, or if the graph has no such node.
    #[doc(hidden)]
    pub async fn find(&self, store: &dyn CheckpointStore, run: &RunKey) -> Result<At> {
        let (node, visit) = match self {
            Self::Latest => return Ok(At::Latest),
            Self::Seq(seq) => return Ok(At::Seq(*seq)),
            Self::Record(id) => return Ok(At::Record(*id)),
            Self::Visit(node, visit) => (node, *visit),
        };
        let (named, retried) = Self::find_named(store, run, node, visit).await?;
        if let Some(seq) = named.filter(|_| !retried) {
            return Ok(At::Seq(seq));
        }
        // If one record ended several activations, its header names only the last one.
        let mut last = named;
        for end in log_reader::segment_ends(store, run, At::Latest).await? {
            if named.is_some_and(|seq| end <= seq) {
                continue;
            }
            for (header, body) in log_reader::segment(store, run, end).await? {
                if let crate::record::body::RecordEvent::Node(nodes) = &body.event
                    && nodes.done.iter().any(|done| done.node == *node && done.visit == visit)
                {
                    last = last.max(Some(header.seq));
                }
            }
        }
        if let Some(seq) = last {
            return Ok(At::Seq(seq));
        }
        find_node(store, run, node.as_str()).await?;
        let message =
            format!("cannot find a record with the end of {self}; list the stored records with `history`");
        Err(Error::new(ErrorKind::NotFound, message).with_run(run))
    }

    /// Returns the newest record whose header names the activation, and whether a later record is a signal. An operator's retry is a signal: after
    /// it the activation may have ended again, in a record whose header names another activation.
    async fn find_named(
        store: &dyn CheckpointStore,
        run: &RunKey,
        node: &NodeName,
        visit: Visit,
    ) -> Result<(Option<Seq>, bool)> {
        let mut signalled = false;
        let mut range = Some(HeaderRange::newest(HeaderRange::MAX));
        while let Some(asked) = range {
            let found = store.headers(run, asked).await?;
            range = asked.after(&found);
            for header in found.items.into_iter().rev() {
                if header.kind == RecordKind::Node
                    && header.node.as_ref() == Some(node)
                    && header.visit == Some(visit)
                {
                    return Ok((Some(header.seq), signalled));
                }
                signalled |= header.kind == RecordKind::Signal;
            }
        }
        Ok((None, signalled))
    }
}

/// Returns a node of the graph that last drove a run.
///
/// # Errors
///
/// Returns [`ErrorKind::NotFound`] if the run does not exist, or if the graph has no such node. In the second case the message contains the closest
/// name.
pub async fn find_node(store: &dyn CheckpointStore, run: &RunKey, name: &str) -> Result<NodeName> {
    let machine = log_reader::folded_at(store, run, At::Latest, None).await?.machine;
    let found = machine.names().find(|known| known.as_str() == name);
    found.cloned().ok_or_else(|| {
        let message = no_node(name, machine.names().map(NodeName::as_str));
        Error::new(ErrorKind::NotFound, message).with_run(run)
    })
}

/// Lists the nodes of the graph that last drove a run.
///
/// # Errors
///
/// Returns [`ErrorKind::NotFound`] if the run does not exist.
pub async fn node_names(store: &dyn CheckpointStore, run: &RunKey) -> Result<Vec<NodeName>> {
    let machine = log_reader::folded_at(store, run, At::Latest, None).await?.machine;
    Ok(machine.names().cloned().collect())
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
            "`{}` is not a position in a log; use `latest`, a number, a record id, or `node@visit`",
            text.escape_debug()
        );
        Err(Error::new(ErrorKind::Invalid, message))
    }
}
