//! Random edits of a draft.

use ferrata::state::Draft;
use proptest::prelude::*;

use super::every::{Argument, Every, arguments};

#[derive(Clone, Debug)]
pub(crate) enum Edit {
    /// Assigns the argument to its field, or adds it.
    Write(Argument),
    /// Removes, moves or decreases something at this index.
    Spoil(u8, usize),
}

pub(crate) fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        3 => arguments().prop_filter("storable", |a| !matches!(a, Argument::Best(f) if !f.is_finite())).prop_map(Edit::Write),
        1 => (0u8..12, any::<usize>()).prop_map(|(what, at)| Edit::Spoil(what, at)),
    ]
}

impl Edit {
    pub(crate) fn make(self, draft: &mut Draft<Every>) {
        match self {
            Self::Write(argument) => write(argument, draft),
            Self::Spoil(what, at) => spoil(what, at, draft),
        }
    }
}

fn write(argument: Argument, state: &mut Every) {
    match argument {
        Argument::LastText(value) => state.last_text = value,
        Argument::Ratio(value) => state.ratio = value,
        Argument::Maybe(value) => state.maybe = value,
        Argument::Code(value) => state.code = value,
        Argument::Notes(items) => state.notes.extend(items),
        Argument::Queue(items) => state.queue.extend(items),
        Argument::Scores(entries) => state.scores.extend(entries),
        Argument::ByNumber(entries) => state.by_number.extend(entries),
        Argument::Open(entries) => state.open.extend(entries),
        Argument::High(value) => state.high = value,
        Argument::Best(value) => state.best = Some(value),
        Argument::Low(value) => state.low = value,
        Argument::Fastest(value) => state.fastest = Some(value),
        Argument::Total(value) => state.total = state.total.saturating_add(value / 2).clamp(-60, 60),
        Argument::Unsigned(value) => state.unsigned = state.unsigned.saturating_add(value),
        Argument::Weight(value) => state.weight += value,
        Argument::Seen(items) => {
            for item in items {
                if !state.seen.contains(&item) {
                    state.seen.push(item);
                }
            }
        }
        Argument::Set(items) => state.set.extend(items),
        Argument::Winner(value) => state.winner = Some(value),
        Argument::Words(value) => state.words = value,
        Argument::Even(value) => state.even = value,
    }
}

fn spoil(what: u8, at: usize, state: &mut Every) {
    match what {
        0 if !state.notes.is_empty() => {
            let at = at % state.notes.len();
            state.notes[at].push('!');
        }
        1 => state.notes.truncate(at % 3),
        2 => state.queue.rotate_left(at % (state.queue.len() + 1)),
        3 => {
            state.scores.pop_first();
        }
        4 => state.by_number.retain(|key, _| usize::from(*key) != at % 6),
        5 => state.open.clear(),
        6 => state.high = state.high.saturating_sub(1),
        7 => state.best = None,
        8 => state.fastest = None,
        9 => state.seen.reverse(),
        10 => {
            state.set.pop_last();
        }
        11 => state.winner = None,
        _ => {}
    }
}
