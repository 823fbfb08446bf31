//! Notes of lint about branches that run, but perhaps not in the way that the source suggests.

use super::build;
use crate::handler::Registry;
use crate::lint::{Diagnostic, Severity};
use crate::pipeline::Pipeline;

/// Reports branches that meet without a fan-in, and routes that leave or enter a branch.
pub(super) fn of_branches(pipeline: &Pipeline, registry: &Registry) -> Vec<Diagnostic> {
    // A pipeline whose regions are invalid was already rejected.
    let Ok(regions) = build::regions(pipeline, registry) else { return Vec::new() };
    let node = |at: usize| &pipeline.nodes()[at];
    let new = |rule, message: String, at: usize, fix: &str| {
        Diagnostic::new(rule, Severity::Warning, message).at_node(node(at)).fix(fix)
    };
    let mut found = Vec::new();
    for region in regions.all.iter().filter(|region| region.implicit) {
        let (fork, meets) = (node(region.fork).id(), node(region.fan_in).id());
        let message = format!(
            "the branches of `{fork}` meet at `{meets}`, which is not a fan-in; `{meets}` starts after all branches have ended"
        );
        let fix =
            format!("lead the branches to a node of type `parallel.fan_in`, and that node to `{meets}`");
        found.push(new("branches_meet", message, region.fork, &fix));
    }
    for (from, to) in regions.list_routes() {
        let (id, target) = (node(from).id(), node(to).id());
        if regions.is_way_out(from, to) {
            let message = format!(
                "`{id}` leads out of its branch to `{target}`; the run goes there after all branches have joined"
            );
            found.push(new(
                "leaves_branch",
                message,
                from,
                "lead the edge to the node where the branches join, and choose the next node there",
            ));
        } else if let Some(fork) = regions.entered_fork(from, to) {
            let fork = node(fork).id();
            let message = format!(
                "`{id}` leads to `{target}` in a branch of `{fork}`; the run goes through `{fork}`, which starts only that branch"
            );
            found.push(new(
                "enters_branch",
                message,
                from,
                &format!("to run all branches, lead the edge to `{fork}`"),
            ));
        }
    }
    found
}
