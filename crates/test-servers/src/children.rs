//! The child processes of a process. Postgres puts its child processes into their own process groups.

use rustix::process::Pid;

/// Returns the visible children of `parent`.
pub(crate) fn of(parent: Pid) -> Vec<Pid> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten();
    processes
        .filter_map(|entry| {
            let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            (parent_in(&stat)? == parent.as_raw_nonzero().get()).then(|| Pid::from_raw(pid))?
        })
        .collect()
}

/// Parses the parent from a line of `/proc/…/stat`, whose second field is a name with arbitrary characters.
fn parent_in(stat: &str) -> Option<i32> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_read_past_any_name() {
        assert_eq!(parent_in("12 (a) b (c)) S 7 12 12 0 -1"), Some(7));
        assert_eq!(parent_in("12"), None);
    }
}
