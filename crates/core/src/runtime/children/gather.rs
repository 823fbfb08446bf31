//! Starts the children of a group and takes their results concurrently, so that no child waits for the records of another child.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde_json::value::RawValue;

use super::child_start::ChildSpec;
use super::error::ChildError;
use super::request::ChildHandle;
use crate::error::Result;
use crate::node::{NodeContext, NotedChild};
use crate::record::parent_link::ChildRef;
use crate::state::State;

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The ends of children, each with the name of the wait for it.
type ChildEnds = Vec<(String, Arc<RawValue>)>;

/// The results of children, each with the index of its item.
type ChildResults<S> = Vec<(usize, Result<S, ChildError>)>;

/// Starts the children of a group, with a maximum number of active children, and collects their results.
pub(super) struct ChildGather<S: State, I> {
    cx: NodeContext,
    /// The group name of the waits for the children's ends.
    group: String,
    wanted: std::iter::Enumerate<I>,
    most: usize,
    /// Whether the caller may need only some of the results.
    enough: bool,
    /// The number of children that are recorded and have not ended.
    going: usize,
    /// The children that are being recorded, each with its index and name.
    noted: Vec<(usize, String, ChildSpec<S>)>,
    noting: Option<Boxed<Result<Vec<NotedChild>>>>,
    /// The starts in progress. This collection polls only futures that were woken. Otherwise each wake would poll all futures.
    starting: FuturesUnordered<Boxed<(usize, Result<ChildHandle<S>>)>>,
    /// The active children, by the names of the waits for their ends.
    open: HashMap<String, (usize, ChildHandle<S>)>,
    ends: Option<Boxed<Result<ChildEnds>>>,
}

impl<S: State, I: Iterator<Item = ChildSpec<S>>> ChildGather<S, I> {
    pub(super) fn new(cx: &NodeContext, name: &str, wanted: I, most: usize, enough: bool) -> Self {
        Self {
            cx: cx.clone(),
            group: format!("#ends.{name}"),
            wanted: wanted.enumerate(),
            most,
            enough,
            going: 0,
            noted: Vec::new(),
            noting: None,
            starting: FuturesUnordered::new(),
            open: HashMap::new(),
            ends: None,
        }
    }

    /// Waits for the results of one or more children. Returns an empty list after all have ended.
    ///
    /// Cancel safe: dropping the future does not affect the children.
    pub(super) async fn next(&mut self) -> ChildResults<S> {
        poll_fn(|task| self.poll_next(task)).await
    }

    /// Lists the active children that end with their activation. Children that are still being started are handled by the activation.
    pub(super) fn bound(self) -> Vec<ChildRef> {
        self.open.into_values().filter_map(|(_, child)| child.bound()).collect()
    }

    fn poll_next(&mut self, task: &mut Context<'_>) -> Poll<ChildResults<S>> {
        let mut came = Vec::new();
        loop {
            let noted = self.note_next(&mut came) | self.poll_notes(task, &mut came);
            let moved = self.poll_starts(task, &mut came) | self.poll_ends(task, &mut came);
            if !came.is_empty() || (self.going == 0 && !noted) {
                return Poll::Ready(came);
            }
            if !(noted || moved) {
                return Poll::Pending;
            }
        }
    }

    /// Records further children up to the maximum number of active children, unless others are being recorded. Returns whether there were any.
    fn note_next(&mut self, came: &mut ChildResults<S>) -> bool {
        if self.noting.is_some() {
            return false;
        }
        let (mut notes, mut any) = (Vec::new(), false);
        while self.going < self.most
            && let Some((index, wanted)) = self.wanted.next()
        {
            any = true;
            let named = wanted.claim();
            let fresh = named.and_then(|(name, shared)| Ok((wanted.fresh(&shared, &name)?, name)));
            match fresh {
                Ok((Some(note), name)) => {
                    notes.push((name.clone(), note));
                    self.noted.push((index, name, wanted));
                    self.going += 1;
                }
                Ok((None, name)) => {
                    self.start(index, name, wanted, None);
                    self.going += 1;
                }
                Err(error) => came.push((index, Err(error.into()))),
            }
        }
        if !notes.is_empty() {
            let cx = self.cx.clone();
            self.noting = Some(Box::pin(async move { cx.record_children(notes).await }));
        }
        any
    }

    fn start(&mut self, index: usize, name: String, wanted: ChildSpec<S>, kept: Option<NotedChild>) {
        let group = self.group.clone();
        self.starting.push(Box::pin(async move { (index, wanted.start_in(group, name, kept).await) }));
    }

    fn poll_notes(&mut self, task: &mut Context<'_>, came: &mut ChildResults<S>) -> bool {
        let Some(Poll::Ready(kept)) = self.noting.as_mut().map(|noting| noting.as_mut().poll(task)) else {
            return false;
        };
        self.noting = None;
        let noted = std::mem::take(&mut self.noted);
        match kept {
            Ok(kept) => {
                for ((index, name, wanted), kept) in noted.into_iter().zip(kept) {
                    self.start(index, name, wanted, Some(kept));
                }
            }
            Err(error) => {
                self.going -= noted.len();
                came.extend(noted.into_iter().map(|(index, ..)| (index, Err(error.clone().into()))));
            }
        }
        true
    }

    fn poll_starts(&mut self, task: &mut Context<'_>, came: &mut ChildResults<S>) -> bool {
        let mut any = false;
        while let Poll::Ready(Some((index, started))) = self.starting.poll_next_unpin(task) {
            any = true;
            match started {
                Ok(child) => drop(self.open.insert(child.end_note_name(), (index, child))),
                Err(error) => {
                    self.going -= 1;
                    came.push((index, Err(error.into())));
                }
            }
        }
        any
    }

    fn poll_ends(&mut self, task: &mut Context<'_>, came: &mut ChildResults<S>) -> bool {
        if self.open.is_empty() {
            return false;
        }
        let (cx, group) = (&self.cx, &self.group);
        let ends = self.ends.get_or_insert_with(|| {
            let (cx, group, enough) = (cx.clone(), group.clone(), self.enough);
            Box::pin(async move { cx.wait_group_ends(&group, enough).await })
        });
        let Poll::Ready(ended) = ends.as_mut().poll(task) else { return false };
        self.ends = None;
        match ended {
            Ok(ended) => {
                for (name, end) in ended {
                    if let Some((index, child)) = self.open.remove(&name) {
                        self.going -= 1;
                        came.push((index, child.take_end(&end)));
                    }
                }
            }
            Err(error) => {
                self.going -= self.open.len();
                let open = self.open.drain();
                came.extend(open.map(|(_, (index, _))| (index, Err(error.clone().into()))));
            }
        }
        true
    }
}
