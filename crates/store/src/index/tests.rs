//! Visits every order of the steps of several writers and of a reader that removes entries. Each of them may die between any two of its steps.

use std::collections::HashSet;

use super::*;

/// A mistake that a test plants on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    Nothing,
    /// A writer writes the record before it stores the record's entry.
    AnnouncedAfter,
    /// A reader removes an entry that is ahead of the head.
    AheadIsGivenUp,
    /// A reader does not wait for an append in progress.
    NoGrace,
    /// If the outcome is unknown, the writer removes its entry.
    DoubtGivesUp,
    /// The writer removes its old entry before the record is written.
    LeftTooEarly,
    /// Two records that leave a run at the same position share an entry.
    Shared,
    /// A reader reads the age of an entry only after it has read the log.
    AgedLate,
}

/// An entry: generation, number of the record, and the position of the run after the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Entry {
    generation: Generation,
    seq: u64,
    place: u8,
    /// The identity of the record.
    id: u8,
}

/// A generation of the run. In one mode, the number of earlier generations identifies it, and a start of an earlier generation cannot succeed. In
/// the other mode, its first record identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Generation {
    before: Option<u8>,
    first: u8,
}

impl PartialOrd for Generation {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (self.before, other.before) {
            (Some(one), Some(other)) => Some(one.cmp(&other)),
            _ => (self == other).then_some(Ordering::Equal),
        }
    }
}

/// Returns the head fields for a position. At one of the positions, the run is not in progress.
fn standing(place: u8) -> RunStanding {
    let status = if place == 2 { RunStatus::Completed } else { RunStatus::InProgress };
    RunStanding { status, owner: None, wake_at: (place == 1).then(Timestamp::default) }
}

impl IndexEntry for Entry {
    type Generation = Generation;

    fn generation(&self) -> &Generation {
        &self.generation
    }

    fn announced_with(&self) -> Option<Seq> {
        Some(Seq::new(self.seq))
    }

    fn holds(&self, other: &RunStanding) -> bool {
        standing(self.place) == *other
    }
}

/// The head of a run: its generation, the number of its last record, and the entry of its position.
type Head = Option<(Generation, u64, Entry)>;

/// The remaining work of a writer, and its current step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Writer {
    /// The positions to which the writer's next appends move the run, the last one first.
    plan: Vec<u8>,
    step: Step,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    Look,
    Announce(Head, Entry),
    Write(Head, Entry),
    LateAnnounce(Entry),
    Tidy(Option<Entry>),
    Dead,
}

/// A reader. It reads an entry and whether an append may still be in progress for it, then reads the head, and then decides about the entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Reader {
    Idle(u8),
    Saw(Entry, bool, u8),
    Checks(Entry, bool, Head, u8),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    log: Head,
    /// Sorted, so that equal worlds compare as equal, however they came about.
    index: Vec<Entry>,
    writers: Vec<Writer>,
    reader: Reader,
    /// The number of ended generations, and the number of purges that may still happen.
    ended: u8,
    purges: u8,
    /// Whether the number of earlier generations identifies a generation.
    is_counted: bool,
}

impl World {
    fn new(is_counted: bool) -> Self {
        let writer = |plan: &[u8]| Writer { plan: plan.to_vec(), step: Step::Look };
        Self {
            log: None,
            index: Vec::new(),
            writers: vec![writer(&[1, 0]), writer(&[0])],
            reader: Reader::Idle(1),
            ended: 0,
            purges: 1,
            is_counted,
        }
    }

    fn take(&mut self, entry: Entry) {
        self.give_up(&entry);
        self.index.push(entry);
        self.index.sort_unstable_by_key(|Entry { generation, seq, place, id }| {
            (generation.before, generation.first, *seq, *place, *id)
        });
    }

    fn give_up(&mut self, entry: &Entry) {
        self.index.retain(|other| other != entry);
    }

    /// Returns whether an append that announced this entry may still write its record.
    fn is_under_way(&self, entry: &Entry) -> bool {
        self.writers.iter().any(|writer| matches!(&writer.step, Step::Write(_, after) if after == entry))
    }

    /// Returns whether the theorem holds: a run that has a record has an entry at its position.
    fn is_found(&self) -> bool {
        let Some((generation, _, at)) = self.log else { return true };
        self.index.iter().any(|entry| {
            entry.generation.partial_cmp(&generation).is_some_and(Ordering::is_eq)
                && entry.holds(&standing(at.place))
        })
    }

    /// Returns all worlds that the next step can produce.
    fn next(&self, planted: Planted) -> Vec<Self> {
        let mut worlds = Vec::new();
        for at in 0..self.writers.len() {
            worlds.extend(self.write(at, planted, false));
            if matches!(self.writers[at].step, Step::Write(..)) {
                worlds.extend(self.write(at, planted, true));
            }
            if self.writers[at].step != Step::Dead {
                let mut dead = self.clone();
                dead.writers[at] = Writer { plan: Vec::new(), step: Step::Dead };
                worlds.push(dead);
            }
        }
        worlds.extend(self.read(planted));
        if self.purges > 0 && self.log.is_some() {
            worlds.push(Self { log: None, purges: self.purges - 1, ended: self.ended + 1, ..self.clone() });
        }
        worlds
    }

    /// Executes one step of a writer. If a write is in doubt, the writer does not learn whether it succeeded.
    fn write(&self, at: usize, planted: Planted, in_doubt: bool) -> Option<Self> {
        let mut world = self.clone();
        let (step, plan) = (world.writers[at].step.clone(), world.writers[at].plan.len());
        world.writers[at].step = match step {
            Step::Dead => return None,
            Step::Look => {
                let place = world.writers[at].plan.pop()?;
                let id = if planted == Planted::Shared { 0 } else { u8::try_from(4 * at + plan).unwrap() };
                let entry = match world.log {
                    Some((generation, head, _)) => Entry { generation, seq: head + 1, place, id },
                    None => {
                        let generation = match world.is_counted {
                            true => Generation { before: Some(world.ended), first: 0 },
                            false => Generation { before: None, first: id },
                        };
                        Entry { generation, seq: 0, place, id }
                    }
                };
                match planted {
                    Planted::AnnouncedAfter => Step::Write(world.log, entry),
                    _ => Step::Announce(world.log, entry),
                }
            }
            Step::Announce(head, entry) => {
                if of(head, entry).entry_before().is_some() {
                    world.take(entry);
                }
                if planted == Planted::LeftTooEarly
                    && let Some(left) = of(head, entry).stale_entry(AppendOutcome::Written)
                {
                    world.give_up(&left.0);
                }
                Step::Write(head, entry)
            }
            Step::Write(head, entry) => {
                let change = of(head, entry);
                let is_next =
                    world.log == head && entry.generation.before.is_none_or(|before| before == world.ended);
                if is_next {
                    // If the run stays at its position, it keeps its previous entry.
                    let stands =
                        if change.entry_before().is_some() { entry } else { head.map_or(entry, |h| h.2) };
                    world.log = Some((entry.generation, entry.seq, stands));
                }
                let outcome = match (in_doubt, is_next) {
                    (true, _) if planted == Planted::DoubtGivesUp => AppendOutcome::Refused,
                    (true, _) => AppendOutcome::Unknown,
                    (false, true) => AppendOutcome::Written,
                    (false, false) => AppendOutcome::Refused,
                };
                match planted {
                    Planted::AnnouncedAfter if is_next => Step::LateAnnounce(entry),
                    _ => Step::Tidy(change.stale_entry(outcome).map(|left| left.0)),
                }
            }
            Step::LateAnnounce(entry) => {
                world.take(entry);
                Step::Look
            }
            Step::Tidy(left) => {
                if let Some(left) = left {
                    world.give_up(&left);
                }
                Step::Look
            }
        };
        Some(world)
    }

    /// Executes one step of the reader.
    fn read(&self, planted: Planted) -> Vec<Self> {
        let with = |reader| Self { reader, ..self.clone() };
        match self.reader {
            Reader::Idle(0) => Vec::new(),
            Reader::Idle(more) => {
                let saw = |entry: &Entry| with(Reader::Saw(*entry, !self.is_under_way(entry), more - 1));
                self.index.iter().map(saw).collect()
            }
            Reader::Saw(entry, is_old, more) => vec![with(Reader::Checks(entry, is_old, self.log, more))],
            Reader::Checks(entry, is_old, head, more) => {
                let mut world = with(Reader::Idle(more));
                let log = head.map(|(generation, seq, at)| (generation, Seq::new(seq), standing(at.place)));
                let goes = match entry.check(log.as_ref().map(|(generation, seq, at)| (generation, *seq, at)))
                {
                    EntryCheck::Stands => false,
                    EntryCheck::Ahead => planted == Planted::AheadIsGivenUp,
                    EntryCheck::Stale => true,
                    EntryCheck::Unborn => match planted {
                        Planted::NoGrace => true,
                        Planted::AgedLate => !self.is_under_way(&entry),
                        _ => is_old,
                    },
                };
                if goes {
                    world.give_up(&entry);
                }
                vec![world]
            }
        }
    }
}

/// An entry that equals any other entry of the same generation at the same position.
#[derive(Clone, Copy, Debug)]
struct Placed(Entry);

impl PartialEq for Placed {
    fn eq(&self, other: &Self) -> bool {
        (self.0.generation, self.0.place) == (other.0.generation, other.0.place)
    }
}

fn of(head: Head, entry: Entry) -> IndexMove<Placed> {
    IndexMove::new(head.map(|(_, _, before)| Placed(before)), Placed(entry))
}

/// Visits every state. Returns the number of states, or the first state in which a run is not found.
fn explore(planted: Planted, is_counted: bool) -> Result<usize, Box<World>> {
    let mut seen = HashSet::from([World::new(is_counted)]);
    let mut open: Vec<World> = seen.iter().cloned().collect();
    while let Some(world) = open.pop() {
        if !world.is_found() {
            return Err(Box::new(world));
        }
        for next in world.next(planted) {
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    Ok(seen.len())
}

/// Guarantees: CUSTOM-STORE-3.
#[test]
fn run_with_record_is_always_found() {
    for is_counted in [true, false] {
        let states = explore(Planted::Nothing, is_counted);
        let states = states.unwrap_or_else(|world| panic!("not found in {world:?}"));
        assert!(states > 1_000, "{states} states");
        println!("{states} states");
    }
}

#[test]
fn every_planted_mistake_loses_a_run() {
    use Planted::{AgedLate, AheadIsGivenUp, AnnouncedAfter, DoubtGivesUp, LeftTooEarly, NoGrace, Shared};
    for planted in [AnnouncedAfter, AheadIsGivenUp, NoGrace, DoubtGivesUp, LeftTooEarly, Shared, AgedLate] {
        assert!(explore(planted, true).is_err(), "{planted:?} is not noticed");
    }
}

#[test]
fn entry_without_record_is_not_run() {
    let generation = |before| Generation { before: Some(before), first: 0 };
    let entry = Entry { generation: generation(2), seq: 5, place: 0, id: 0 };
    let check =
        |of: u8, seq: u64, place: u8| entry.check(Some((&generation(of), Seq::new(seq), &standing(place))));
    assert_eq!(entry.check(None), EntryCheck::Unborn);
    assert_eq!(check(1, 9, 0), EntryCheck::Unborn, "the generation before has not ended");
    assert_eq!(check(3, 0, 0), EntryCheck::Stale, "a later generation has begun");
    assert_eq!((check(2, 4, 1), check(2, 4, 0)), (EntryCheck::Ahead, EntryCheck::Stands));
    assert_eq!((check(2, 5, 1), check(2, 9, 0)), (EntryCheck::Stale, EntryCheck::Stands));
    let other = Generation { before: None, first: 7 };
    assert_eq!(entry.check(Some((&other, Seq::new(9), &standing(0)))), EntryCheck::Unborn);
}
