//! Restarts of a run: which part of the context stays, and how often a restart may follow the same failure.

use ferrata_core::node::NodeError;
use ferrata_core::state::{Context, ContextUpdate};
use serde_json::{Map, Value as Json};

use super::StageNode;
use super::budget::{BEYOND, SPENT, USAGE};
use super::visits::{VISITS, WAITS};
use crate::outcome::{StageOutcome, Status};
use crate::suggest::shortened;

/// The context key of the run's input. The input is stored only if an edge may restart the run.
pub(super) const INPUT: &str = "internal.input";

/// The context key of the number of restarts.
const RESTARTS: &str = "internal.restarts";

/// The context key of the failures after which the run restarted, with their counts.
const SIGNATURES: &str = "internal.restart_signatures";

/// Maximum number of characters of a failure's signature.
const SIGNATURE: usize = 240;

impl StageNode {
    /// Returns the update that resets the context to its state after the start, and counts the restart.
    ///
    /// # Errors
    ///
    /// Returns an error if the same failure has occurred as often as `loop_restart_signature_limit` allows.
    pub(super) fn restart_update(
        &self,
        after: &Context,
        outcome: &StageOutcome,
    ) -> Result<ContextUpdate, NodeError> {
        let input: Map<String, Json> = after.get(INPUT).map_err(NodeError::new)?.unwrap_or_default();
        let mut update = Context::update();
        for (key, value) in after.iter() {
            let stays = [INPUT, RESTARTS, SIGNATURES, SPENT, BEYOND, WAITS].contains(&key)
                || ["graph.", USAGE, VISITS].iter().any(|prefix| key.starts_with(prefix));
            match input.get(key) {
                Some(before) if before != value => update = update.set(key, before),
                None if !stays => update = update.remove(key),
                _ => {}
            }
        }
        for (key, value) in input.iter().filter(|(key, _)| !after.contains_key(key)) {
            update = update.set(key, value);
        }
        // The state does not contain the usage of this node yet.
        for (key, value) in outcome.context_updates.iter().filter(|(key, _)| key.starts_with(USAGE)) {
            update = update.set(key, value);
        }
        if outcome.status == Status::Fail
            && let Some(limit) = self.ways.signature_limit
        {
            let signature = signature(self.node.id(), &outcome.failure_reason);
            let seen = after.get_value(SIGNATURES).and_then(|seen| seen.get(&signature)?.as_u64());
            let seen = seen.unwrap_or(0).saturating_add(1);
            if seen >= limit {
                let message = format!(
                    "fresh starts ended {seen} times with the same failure: {}; fix its cause, or raise `loop_restart_signature_limit`",
                    outcome.failure_reason
                );
                return Err(NodeError::new(message).fatal());
            }
            update = update.merge(SIGNATURES, [(signature, seen)]);
        }
        let restarts = after.get_value(RESTARTS).and_then(Json::as_u64).unwrap_or(0);
        Ok(update.set(RESTARTS, restarts.saturating_add(1)))
    }
}

/// Returns the signature of a failure: the node, and the reason without numbers. Decimal and hexadecimal numbers differ each time.
fn signature(node: &str, reason: &str) -> String {
    let lower = reason.to_lowercase();
    let mut text = String::new();
    let mut word = String::new();
    let mut end = |word: &mut String| {
        let digits = word.chars().any(|c| c.is_ascii_digit());
        let hex = word.strip_prefix("0x").unwrap_or(word);
        if digits && hex.len() >= 7 && hex.chars().all(|c| c.is_ascii_hexdigit()) {
            text.push_str("<hex>");
        } else {
            let mut number = false;
            for c in word.chars() {
                if !c.is_ascii_digit() {
                    text.push(c);
                } else if !number {
                    text.push_str("<n>");
                }
                number = c.is_ascii_digit();
            }
        }
        word.clear();
    };
    for c in lower.chars() {
        if c.is_alphanumeric() {
            word.push(c);
        } else {
            end(&mut word);
            word.push(c);
            end(&mut word);
        }
    }
    end(&mut word);
    format!("{node}|{}", shortened(text.split_whitespace().collect::<Vec<_>>().join(" ").as_str(), SIGNATURE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_signature_ignores_numbers_and_addresses() {
        let one = signature("a", "3 tests fail at 0x7fe2a19b in 12.5 s");
        assert_eq!(one, signature("a", "4 Tests fail  at 0x01234567 in 9.81 s"));
        assert_eq!(one, "a|<n> tests fail at <hex> in <n>.<n> s");
        assert_ne!(one, signature("b", "3 tests fail at 0x7fe2a19b in 12.5 s"));
        assert_ne!(signature("a", "the disk is full"), signature("a", "the network is away"));
    }
}
