//! The attributes of the language: the kind of element on which each acts, its values, and its names in other dialects.
//!
//! Lint, the aliases and the reference page of the language all use one table. If an attribute of the table is set on an element where it does not
//! act, lint reports an error. Attributes that are not in the table may be set anywhere.

mod foreign;
mod table;
mod value_kind;

pub(crate) use foreign::foreign;
pub use table::{ALL, AttributeOwner, AttributeRule};
pub(crate) use value_kind::ValueKind;

/// The names that attributes of this language have in other dialects.
pub const ALIASES: [(&str, &str); 11] = [
    ("script", "tool_command"),
    ("llm_prompt", "prompt"),
    ("model", "llm_model"),
    ("provider", "llm_provider"),
    ("handler", "type"),
    ("stack.child_workflow", "stack.child_dotfile"),
    ("default_max_retry", "default_max_retries"),
    ("context_fidelity_default", "default_fidelity"),
    ("context_thread_default", "default_thread"),
    ("max_cost_usd", "max_cost"),
    ("max_budget_usd", "max_cost"),
];

/// Returns whether `key` is the name of an attribute, or its name in another dialect.
pub(crate) fn is_named(key: &str, attribute: &str) -> bool {
    key == attribute || aliases_of(attribute).contains(&key)
}

/// Returns the names of an attribute in other dialects. The function uses a match and not a table, because each read of an attribute calls it.
fn aliases_of(attribute: &str) -> &'static [&'static str] {
    match attribute {
        "tool_command" => &["script"],
        "prompt" => &["llm_prompt"],
        "llm_model" => &["model"],
        "llm_provider" => &["provider"],
        "type" => &["handler"],
        "stack.child_dotfile" => &["stack.child_workflow"],
        "default_max_retries" => &["default_max_retry"],
        "default_fidelity" => &["context_fidelity_default"],
        "default_thread" => &["context_thread_default"],
        "max_cost" => &["max_cost_usd", "max_budget_usd"],
        _ => &[],
    }
}

/// Returns the name in this language for a key, which may be a name in another dialect.
pub(crate) fn name_of(key: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == key).map_or(key, |(_, name)| name)
}

/// Returns the rules of an attribute. There is one rule for each kind of element on which it acts. `env.NAME` is one attribute for all values of
/// NAME.
pub(crate) fn rules_of(key: &str) -> impl Iterator<Item = &'static AttributeRule> {
    let name = if key.starts_with("env.") { "env.NAME" } else { name_of(key) };
    let start = ALL.partition_point(|rule| rule.name < name);
    ALL[start..].iter().take_while(move |rule| rule.name == name)
}

/// Returns whether the pipeline itself reads an attribute of the graph. `key` may be a name in another dialect. The input of a run may set the
/// `graph.` keys of all other attributes, and of the goal.
pub fn is_read_of_graph(key: &str) -> bool {
    rules_of(key).any(|rule| rule.owner == AttributeOwner::Graph && !["goal", "label"].contains(&rule.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_sorted_and_aliases_agree() {
        assert!(ALL.is_sorted_by_key(|rule| rule.name));
        for (alias, name) in ALIASES {
            assert!(is_named(alias, name) && name_of(alias) == name, "{alias}");
            assert!(rules_of(alias).next().is_some_and(|rule| rule.name == name), "{alias}");
            assert!(ALL.iter().all(|rule| rule.name != alias), "{alias} is both");
        }
        for rule in ALL {
            for alias in aliases_of(rule.name) {
                assert!(ALIASES.contains(&(alias, rule.name)), "{alias}");
            }
        }
        assert_eq!(rules_of("env.COLOR").count(), 1);
        assert_eq!(rules_of("fidelity").count(), 2, "attributes of both nodes and edges");
        assert_eq!(rules_of("color").count(), 0);
    }
}
