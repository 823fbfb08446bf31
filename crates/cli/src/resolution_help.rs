//! The commands with which an operator resolves work that has an unknown outcome and must not be repeated.

use crate::output::quoted;

/// Returns the possible resolutions, each with the words after `ferrata answer RUN`. The resolution that repeats the work comes last, so that an
/// operator who takes the first one does not pay twice.
pub(crate) fn resolution_commands(question: &str) -> [(&'static str, String); 4] {
    let how = |resolution: &str| format!("{} --resolve {}", quoted(question), quoted(resolution));
    let supply = format!("{} --set CHANNEL=VALUE", how("supply"));
    [
        ("it was done, and changed these channels of the state:", supply),
        ("it was done, or no longer matters; keep the state:", how("skip")),
        ("continue as if it had failed, for this reason:", how("fail:it was not done in time")),
        ("it was not done; do it now:", how("retry")),
    ]
}

/// Formats all resolutions as lines.
pub(crate) fn resolution_lines(question: &str, command: impl Fn(&str) -> String) -> Vec<String> {
    let begin = "check whether it was done, then use one of these:".to_owned();
    let each = resolution_commands(question)
        .into_iter()
        .flat_map(|(what, more)| [what.to_owned(), format!("  {}", command(&more))]);
    std::iter::once(begin).chain(each).collect()
}
