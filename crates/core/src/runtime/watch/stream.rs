//! The stream of events that a watch of a run, or of a run tree, delivers.

use crate::kernel::notices::listen_for_watch;
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future as _, poll_fn};
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::broadcast::error::RecvError;

use super::relay;
use super::request::{WatchFilter, WatchStart};
use super::sse::SseFrames;
use super::watched_run::{MemberStep, WatchedRun};
use crate::engine::fold::missing;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{RunId, RunKey};
use crate::kernel::feed::cursor::{LogCursor, WatchCursor};
use crate::kernel::feed::record_events::path_segment;
use crate::kernel::feed::run_feed::{LiveSignal, TailRead};
use crate::kernel::feed::watch_event::{WatchEvent, WatchEventKind};
use crate::kernel::inner::RuntimeInner;
use crate::past::folded_at;
use crate::record::child::ActivationChild;
use crate::record::parent_link::{PARENT, parent_link};
use crate::store::{At, RunHead};

/// The number of consecutive live events before the watch checks the logs again.
const STREAK: u32 = 64;

/// A stream of the events of a run, or of a run tree. A [`WatchRequest`](super::WatchRequest) creates it.
///
/// The watch delivers the events of each record once and in the order of the log, whichever process drives the run. [`cursor`](Self::cursor) returns
/// the position, from which a later watch can continue. If the caller is slow, the watch keeps the records of one read of the log and at most 1,024
/// live events in memory.
pub struct Watch {
    shared: Arc<RuntimeInner>,
    filter: WatchFilter,
    /// The watched run, followed by its active descendants.
    members: Vec<WatchedRun>,
    ready: VecDeque<WatchEvent>,
    /// The number of consecutive live events.
    live_streak: u32,
    /// Whether an earlier check found the run in this process but not in the store. If a later check finds the run in neither, the watch is over.
    was_driven_here: bool,
    is_over: bool,
}

impl Watch {
    /// Starts the watch.
    pub(super) async fn begin(
        shared: Arc<RuntimeInner>,
        run: RunKey,
        from: WatchStart,
        want: WatchFilter,
    ) -> Result<Self> {
        listen_for_watch(&shared);
        relay::begin(&shared);
        // Subscribe before the first read, to miss no live event.
        let root = WatchedRun::new(&shared, run.clone(), Arc::from(""), LogCursor::default());
        if want.hears_chunks() {
            root.request_chunks();
            relay::announced(&shared).await;
        }
        let mut watch = Self {
            shared,
            filter: want,
            members: vec![root],
            ready: VecDeque::new(),
            live_streak: 0,
            was_driven_here: false,
            is_over: false,
        };
        let head = watch.head(&run).await?;
        if head.is_none() && !watch.filter.before_start && watch.shared.driver(&run).is_none() {
            return Err(missing(&run));
        }
        let head = head.map(|head| head.head());
        match (from, head) {
            (WatchStart::Start, _) | (WatchStart::Now, None) => {}
            (WatchStart::Now, Some(head)) => {
                watch.members[0].cursor = LogCursor::from(head);
                watch.adopt_all(At::Seq(head.seq)).await?;
            }
            (WatchStart::After(cursor), _) => {
                watch.members[0].cursor = cursor.root;
                if let (Some(seq), None, true) =
                    (cursor.root.last, cursor.root.id, cursor.children.is_empty())
                {
                    watch.follow_children_at(0, At::Seq(seq)).await?;
                }
                for (child, place) in cursor.children {
                    watch.find_again(&run, child, place).await?;
                }
            }
        }
        Ok(watch)
    }

    /// Waits for the next event. Returns `None` when the run has ended and all its events were delivered.
    ///
    /// A failed run counts as ended. If it is retried, you can start a new watch [after](super::WatchRequest::after) the [cursor](Self::cursor). An
    /// idle run does not count as ended.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotFound`]: the run was purged, even if a new run has its id.
    /// - [`ErrorKind::Corrupt`], [`ErrorKind::Unsupported`]: a record cannot be loaded. The cursor is at the record before it.
    /// - [`ErrorKind::Unavailable`]: the store failed. Call it again: no event is lost.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, the next call returns the event.
    pub async fn next(&mut self) -> Result<Option<WatchEvent>> {
        loop {
            if let Some(event) = self.take() {
                return Ok(Some(event));
            }
            if self.is_over {
                return Ok(None);
            }
            self.live_streak = 0;
            if !self.fill().await? && self.members.iter().all(WatchedRun::is_drained) {
                self.is_over |= self.has_ended();
                if !self.is_over && self.ready.is_empty() {
                    self.wait().await;
                }
            }
        }
    }

    /// Returns the position of the watch, after the last event that [`next`](Self::next) returned.
    pub fn cursor(&self) -> WatchCursor {
        let root = self.members[0].cursor;
        let children = self.members[1..].iter().map(|child| (child.run.run.clone(), child.cursor));
        WatchCursor { root, children: children.collect() }
    }

    /// Returns the events as [server-sent events](https://html.spec.whatwg.org/multipage/server-sent-events.html).
    pub fn sse(self) -> SseFrames {
        SseFrames::new(self)
    }

    pub(super) fn shared(&self) -> &Arc<RuntimeInner> {
        &self.shared
    }

    /// Takes the next event from the loaded records and live events.
    fn take(&mut self) -> Option<WatchEvent> {
        if let Some(event) = self.ready.pop_front() {
            return Some(event);
        }
        let mut index = 0;
        while index < self.members.len() {
            // Live events that arrived before a record precede it, however many they are.
            while (self.live_streak < STREAK || !self.members[index].is_drained())
                && let Some(what) = self.members[index].take_live()
            {
                let member = &self.members[index];
                if member.is_wanted && self.filter.passes(&member.path, &what) {
                    self.live_streak += 1;
                    return Some(member.event(None, what));
                }
            }
            let prefix = self.members[index].path.to_string();
            let open: Vec<_> = self.members.iter().map(|member| Arc::clone(&member.path)).collect();
            let (want, member) = (&self.filter, &mut self.members[index]);
            let is_told = |way: &str| !open.iter().any(|path| **path == *below(&prefix, way));
            let is_wanted = member.is_wanted;
            match member.next(is_told, |what| is_wanted && want.passes(&prefix, what)) {
                MemberStep::Tells { event, child } => {
                    if let Some((way, run)) = child.filter(|_| self.filter.children) {
                        let parent = &self.members[index].run;
                        let (run, parent) = (RunKey::new(parent.tenant.clone(), run), parent.run.clone());
                        self.open(
                            FollowedChild { run, parent, path: below(&prefix, &way) },
                            LogCursor::default(),
                        );
                    }
                    if event.is_some() {
                        self.live_streak = 0;
                        return event;
                    }
                }
                MemberStep::WaitsFor(way) => {
                    self.finish_child(&below(&prefix, &way));
                    index += 1;
                }
                MemberStep::Nothing => index += 1,
            }
        }
        None
    }

    /// Schedules the delivery of a child's last events, after the log of its parent has shown that the child ended.
    fn finish_child(&mut self, path: &str) {
        if let Some(child) = self.members.iter_mut().find(|member| *member.path == *path) {
            // The child's end was durable before the parent's record, so one more read finds it.
            match child.is_ending {
                false => (child.is_ending, child.is_due) = (true, true),
                true if !child.is_due && child.is_drained() => self.close(path),
                true => {}
            }
        }
    }

    fn close(&mut self, path: &str) {
        self.members.retain(|member| *member.path != *path);
    }

    /// Follows a child from a position on.
    fn open(&mut self, FollowedChild { run, parent, path }: FollowedChild, place: LogCursor) {
        if self.members.iter().any(|member| member.run == run) {
            return;
        }
        // An earlier child with that name has ended.
        self.close(&path);
        let mut member = WatchedRun::new(&self.shared, run, Arc::from(path), place);
        if self.filter.hears_chunks() {
            member.request_chunks();
        }
        member.parent = Some(parent);
        self.members.push(member);
    }

    /// Reads new records. Returns whether there are or may be events to deliver.
    async fn fill(&mut self) -> Result<bool> {
        let mut has_more = false;
        let mut index = 0;
        while index < self.members.len() {
            let is_root = index == 0;
            let member = &mut self.members[index];
            if !member.is_due || !member.is_drained() {
                has_more |= !member.is_drained();
                index += 1;
                continue;
            }
            if !member.is_known && !self.check_member(index).await? {
                index += 1;
                continue;
            }
            let member = &mut self.members[index];
            match member.read(&self.shared, &self.filter).await? {
                TailRead::Records(_) => has_more = true,
                TailRead::Head(status) => {
                    member.is_due = false;
                    if status.is_finished() != member.has_ended {
                        member.has_ended = !member.has_ended;
                        // Deliver its children's events before the watch ends.
                        self.members.iter_mut().for_each(|member| member.is_due = true);
                        has_more = true;
                        self.members[index].is_due = false;
                    }
                }
                TailRead::Pruned(first, prev) => {
                    if self.filter.children {
                        self.follow_children_at(index, At::Seq(first)).await?;
                    }
                    let member = &mut self.members[index];
                    member.cursor = LogCursor::before(first, prev);
                    let event = member.event(None, WatchEventKind::Pruned { first });
                    self.ready.push_back(event);
                    has_more = true;
                }
                TailRead::Missing if is_root => {
                    let message = "the run was purged while it was watched";
                    return Err(Error::new(ErrorKind::NotFound, message).with_run(&member.run));
                }
                TailRead::Missing => {
                    self.members.remove(index);
                    continue;
                }
            }
            index += 1;
        }
        // Ended children have no further events.
        let is_over = |member: &WatchedRun| member.has_ended && !member.is_due && member.is_drained();
        self.members.retain(|member| member.parent.is_none() || !is_over(member));
        Ok(has_more)
    }

    /// Checks whether a run exists, is the expected start, and has the labels of the filter. Returns false if there is no log to read
    /// yet.
    async fn check_member(&mut self, index: usize) -> Result<bool> {
        let run = self.members[index].run.clone();
        let head = self.head(&run).await?;
        let member = &mut self.members[index];
        let Some(head) = head else {
            if index == 0 {
                // Without checkpoints, or before its first record.
                let is_here = self.shared.driver(&run).is_some();
                self.is_over = self.was_driven_here && !is_here;
                self.was_driven_here |= is_here;
            }
            self.members[index].is_due = false;
            return Ok(false);
        };
        let labels = &head.facts.labels;
        if member.parent.as_ref().is_some_and(|parent| labels.get(PARENT) != Some(parent.as_str())) {
            // Another run has its id.
            member.is_due = false;
            member.has_ended = true;
            return Ok(false);
        }
        member.is_wanted = self.filter.labels.iter().all(|(key, value)| labels.get(key) == Some(value));
        member.is_known = true;
        Ok(true)
    }

    async fn head(&self, run: &RunKey) -> Result<Option<RunHead>> {
        self.shared.committer.read(|| self.shared.store.head(run)).await
    }

    /// Follows the children that a run had at a position, each from its start.
    async fn follow_children_at(&mut self, index: usize, at: At) -> Result<()> {
        if !self.filter.children {
            return Ok(());
        }
        for kid in self.children_of(index, at).await? {
            self.open(kid, LogCursor::default());
        }
        Ok(())
    }

    /// Starts to follow all active descendants, without their earlier events.
    async fn adopt_all(&mut self, at: At) -> Result<()> {
        let mut index = 0;
        let mut at = at;
        while self.filter.children && index < self.members.len() {
            for kid in self.children_of(index, at).await? {
                if let Some(head) = self.head(&kid.run).await? {
                    self.open(kid, LogCursor::from(head.head()));
                }
            }
            index += 1;
            at = self.members.get(index).and_then(|member| member.cursor.last).map_or(At::Latest, At::Seq);
        }
        Ok(())
    }

    /// Lists the children that were active at a position, by the log.
    async fn children_of(&self, index: usize, at: At) -> Result<Vec<FollowedChild>> {
        let member = &self.members[index];
        let folded = match folded_at(&*self.shared.store, &member.run, at, None).await {
            // Pruned: the next read delivers the gap.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            folded => folded?,
        };
        let machine = &folded.machine;
        let open = machine.all_children().filter(|(_, child)| ActivationChild::is_open(child));
        let found = open.map(|(key, child)| {
            let way = path_segment(machine.name(key.0), key.1, &child.name);
            let run = RunKey::new(member.run.tenant.clone(), child.note.run);
            FollowedChild { run, parent: member.run.run.clone(), path: below(&member.path, &way) }
        });
        Ok(found.collect())
    }

    /// Starts to follow a child that an earlier watch followed. The labels of the child contain its path.
    async fn find_again(&mut self, root: &RunKey, child: RunId, place: LogCursor) -> Result<()> {
        let key = RunKey::new(root.tenant.clone(), child);
        let (mut path, mut at, mut parent) = (String::new(), key.clone(), None);
        while at != *root {
            // A purged child has no further events.
            let Some(head) = self.head(&at).await? else { return Ok(()) };
            let Some(link) = parent_link(&at, &head.facts) else { return Ok(()) };
            let Some(way) = link.path_segment() else { return Ok(()) };
            path = below(&way, &path);
            parent.get_or_insert_with(|| link.parent.run.clone());
            at = link.parent;
        }
        if let Some(parent) = parent {
            self.open(FollowedChild { run: key, parent, path }, place);
        }
        Ok(())
    }

    /// Returns whether the watched run has ended, and all events are delivered.
    fn has_ended(&self) -> bool {
        self.members[0].has_ended && self.members.iter().all(|member| !member.is_due && member.is_drained())
    }

    /// Waits until there may be new events.
    async fn wait(&mut self) {
        enum WakeReason {
            Live(Result<LiveSignal, RecvError>),
            Log,
        }
        let pause = self.shared.clock.sleep(self.shared.watch_pause());
        let woken = {
            let mut pause = pause;
            let mut waits: Vec<_> = self
                .members
                .iter_mut()
                .map(|member| (Box::pin(member.live.recv()), Box::pin(member.wakeups.changed())))
                .collect();
            poll_fn(|cx| {
                for (index, (live, log)) in waits.iter_mut().enumerate() {
                    if let Poll::Ready(live) = live.as_mut().poll(cx) {
                        return Poll::Ready(Some((index, WakeReason::Live(live))));
                    }
                    if log.as_mut().poll(cx).is_ready() {
                        return Poll::Ready(Some((index, WakeReason::Log)));
                    }
                }
                pause.as_mut().poll(cx).map(|()| None)
            })
            .await
        };
        match woken {
            None => self.members.iter_mut().for_each(|member| member.is_due = true),
            Some((index, WakeReason::Log)) => self.members[index].is_due = true,
            Some((index, WakeReason::Live(live))) => {
                let what = match live {
                    Ok(heard) => WatchEventKind::from(heard),
                    Err(RecvError::Lagged(missed)) => WatchEventKind::Lagged { missed },
                    // The feed lives as long as its member.
                    Err(RecvError::Closed) => return,
                };
                let member = &self.members[index];
                if member.is_wanted && self.filter.passes(&member.path, &what) {
                    let event = member.event(None, what);
                    self.ready.push_back(event);
                }
            }
        }
    }
}

/// A child to follow.
struct FollowedChild {
    run: RunKey,
    parent: RunId,
    path: String,
}

/// Appends a segment to a path.
fn below(path: &str, way: &str) -> String {
    match (path, way) {
        ("", way) => way.to_owned(),
        (path, "") => path.to_owned(),
        (path, way) => format!("{path}/{way}"),
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("run", &self.members[0].run)
            .field("cursor", &self.cursor())
            .field("over", &self.is_over)
            .finish_non_exhaustive()
    }
}
