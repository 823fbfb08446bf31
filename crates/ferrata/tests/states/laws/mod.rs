//! Laws of state on a struct with every reducer.

mod edit;
mod every;
mod grown;

use std::sync::Arc;

use ferrata::state::{Channels, Draft, Patch, PatchWriter, Touch};
use ferrata::{State, Update};
use proptest::prelude::*;

use edit::Edit;
use every::{Every, arguments, every};

/// One change of the live state.
#[derive(Clone, Debug)]
enum Step {
    /// A typed update of these calls, in order.
    Update(Vec<every::Argument>),
    /// A draft of an older state with later edits, as a concurrent node returns it.
    Draft { ago: usize, edits: Vec<Edit> },
    /// A draft that was replaced by another state.
    Replace { ago: usize, by: Box<Every> },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop::collection::vec(arguments(), 0..5).prop_map(Step::Update),
        4 => (0usize..4, prop::collection::vec(edit::edit(), 0..6)).prop_map(|(ago, edits)| Step::Draft { ago, edits }),
        1 => (0usize..4, every()).prop_map(|(ago, by)| Step::Replace { ago, by: Box::new(by) }),
    ]
}

fn update_of(step: &Step, past: &[Every]) -> Update<Every> {
    let at = |ago: usize| Arc::new(past[past.len().saturating_sub(1 + ago)].clone());
    match step {
        Step::Update(calls) => {
            calls.iter().fold(Every::update(), |update, call| call.clone().call(update)).into()
        }
        Step::Draft { ago, edits } => {
            let mut draft = Draft::new(at(*ago));
            for edit in edits {
                edit.clone().make(&mut draft);
            }
            draft.into()
        }
        Step::Replace { ago, by } => {
            let mut draft = Draft::new(at(*ago));
            *draft = Every::clone(by);
            draft.into()
        }
    }
}

fn channels_of(state: &Every) -> Channels {
    Channels::from_json(state.to_channels_json().unwrap().get()).unwrap()
}

/// Stores a patch and reads it back.
fn through_storage(patch: &Patch) -> Patch {
    serde_json::from_str(&serde_json::to_string(patch).unwrap()).unwrap()
}

fn names(touched: &[Touch]) -> Vec<(String, bool)> {
    let name =
        |touch: &Touch| (touch.channel.name().to_owned(), touch.write == ferrata::state::Write::Overwritten);
    touched.iter().map(name).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// The fold of the stored patches equals the serialized live state, after every step and in any order. A failed update changes neither the state
    /// nor the patch. A writer without records sees the same changes.
    #[test]
    fn folding_equals_serialising(base in every(), steps in prop::collection::vec(step(), 1..12)) {
        let mut folded = channels_of(&base);
        let mut past = vec![base];
        for step in &steps {
            let before = past[past.len() - 1].clone();
            let update = update_of(step, &past);
            let mut live = before.clone();
            let mut patch = PatchWriter::recording();
            let outcome = update.apply(&mut live, &mut patch);
            let written = patch.finish();

            let mut silent = before.clone();
            let mut touches = PatchWriter::touching();
            match (update.apply(&mut silent, &mut touches), &outcome) {
                // A writer that does not encode cannot detect values that cannot be stored.
                (Ok(()), Err(error)) => prop_assert!(error.message().contains("cannot be stored"), "{}", error),
                (silent_outcome, _) => {
                    prop_assert_eq!(silent_outcome.is_ok(), outcome.is_ok());
                    prop_assert_eq!(&silent, &live);
                    let touched = touches.finish();
                    prop_assert!(touched.patch.is_none());
                    prop_assert_eq!(names(&touched.touched), names(&written.touched));
                }
            }

            let patch = through_storage(&written.patch.unwrap());
            if outcome.is_err() {
                prop_assert_eq!(&live, &before);
                prop_assert!(patch.is_empty());
            }
            let mut ops: Vec<String> = patch.ops().unwrap().iter().map(|op| op.channel().to_owned()).collect();
            ops.sort();
            ops.dedup();
            let noted: Vec<String> = names(&written.touched).into_iter().map(|(name, _)| name).collect();
            prop_assert_eq!(ops, noted);
            folded.apply(&patch).unwrap();
            prop_assert_eq!(folded.to_json().unwrap(), channels_of(&live).to_json().unwrap());
            prop_assert!(live.seen.iter().enumerate().all(|(n, item)| !live.seen[..n].contains(item)));
            prop_assert_eq!(&Every::from_channels(folded.clone(), &Every::schema()).unwrap(), &live);
            past.push(live);
        }
    }

    /// Merged patches fold like single ones, however they are grouped, before and after storage.
    #[test]
    fn merging_folds_the_same(
        base in every(),
        steps in prop::collection::vec(step(), 1..10),
        stored in prop::collection::vec(any::<bool>(), 10),
        split in 0usize..10,
    ) {
        let mut past = vec![base.clone()];
        let mut patches = Vec::new();
        for (n, step) in steps.iter().enumerate() {
            let mut live = past[past.len() - 1].clone();
            let mut patch = PatchWriter::recording();
            // A failed update changes nothing, and an empty patch is valid.
            let _ = update_of(step, &past).apply(&mut live, &mut patch);
            let patch = patch.finish().patch.unwrap();
            patches.push(if stored[n] { through_storage(&patch) } else { patch });
            past.push(live);
        }
        let later = patches.split_off(split.min(patches.len()));
        let join = |patches: Vec<Patch>| {
            patches.into_iter().fold(Patch::default(), |merged, patch| merged.merge(patch).unwrap())
        };
        let merged = join(patches).merge(join(later)).unwrap();
        let mut folded = channels_of(&base);
        folded.apply(&merged).unwrap();
        prop_assert_eq!(&folded, &channels_of(&past[past.len() - 1]));
        let mut folded = channels_of(&base);
        folded.apply(&through_storage(&merged)).unwrap();
        prop_assert_eq!(&folded, &channels_of(&past[past.len() - 1]));
    }

    /// A draft that is applied to its base gives the edited state.
    #[test]
    fn a_draft_is_reproduced(base in every(), edits in prop::collection::vec(edit::edit(), 0..12)) {
        let mut draft = Draft::new(Arc::new(base.clone()));
        for edit in edits {
            edit.make(&mut draft);
        }
        let wanted = Every::clone(&draft);
        let mut live = base.clone();
        let outcome = Update::from(draft).apply(&mut live, &mut PatchWriter::recording());
        if wanted.unsigned < base.unsigned {
            let message = outcome.unwrap_err().message().to_owned();
            // The error names the first of several channels.
            let lowered = message.starts_with("channel \"unsigned\": the draft lowered the sum");
            prop_assert!(lowered || message.starts_with("channel \"total\""), "{}", message);
        } else if wanted.total.checked_sub(base.total).is_none() {
            let message = outcome.unwrap_err().message().to_owned();
            prop_assert!(message.starts_with("channel \"total\": the draft changed the sum by more"), "{}", message);
        } else {
            outcome.unwrap();
            prop_assert_eq!(live, wanted);
        }
    }

    /// An edit without an effect writes nothing.
    #[test]
    fn a_draft_without_a_difference_writes_nothing(mut base in every()) {
        let mut draft = Draft::new(Arc::new(base.clone()));
        *draft = base.clone();
        prop_assert!(draft.is_written());
        let mut patch = PatchWriter::recording();
        Update::from(draft).apply(&mut base, &mut patch).unwrap();
        prop_assert!(patch.is_empty());
    }
}
