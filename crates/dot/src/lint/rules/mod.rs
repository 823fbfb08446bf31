//! The built-in rules. Each function checks one rule or a few related rules, and each finding contains the id of its rule.

mod attributes;
mod dialects;
mod owners;
mod routing;
mod structure;
mod variables;

use super::{Diagnostic, View};
use crate::suggest::closest_name;

/// Maximum number of findings with a suggested name. A reader needs no more, and the search for a name takes longer than all other checks.
const SUGGESTIONS: usize = 100;

/// Returns the name that the author probably meant; `None` if there are already many findings.
fn near<'a>(
    found: &[Diagnostic],
    unknown: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    if found.len() < SUGGESTIONS { closest_name(unknown, names) } else { None }
}

/// All built-in rules.
pub(super) const BUILT_IN: [fn(&View<'_>, &mut Vec<Diagnostic>); 31] = [
    structure::start_node,
    structure::terminal_node,
    structure::reachability,
    structure::edge_target_exists,
    structure::start_no_incoming,
    structure::exit_no_outgoing,
    structure::exit_reachable,
    structure::unique_names,
    routing::condition_syntax,
    routing::condition_keys,
    routing::retry_target_exists,
    routing::goal_gate_has_retry,
    attributes::stylesheet_syntax,
    attributes::type_known,
    attributes::fidelity_valid,
    attributes::prompt_on_llm_nodes,
    variables::unused_variables,
    variables::command_variables,
    variables::template_statements,
    attributes::high_retry_count,
    owners::attribute_type,
    owners::attribute_acts,
    owners::attribute_alias,
    owners::attribute_alone,
    dialects::tolerated,
    dialects::outcome_known,
    owners::attribute_known,
    dialects::shape_known,
    dialects::gate_asks,
    dialects::way_on,
    dialects::retries_act,
];
