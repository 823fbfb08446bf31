//! Measures the processor time of other processes. Unlike the time of a clock, it is the same on a busy machine.

use std::io;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

/// The unit of these times is a hundredth of a second, independent of the system's own clock.
const TICK: Duration = Duration::from_millis(10);

/// Waits for the end of `child`. Returns the processor time of the child and of all processes that it waited for, if the system reports it.
pub(super) fn wait(mut child: Child) -> io::Result<(ExitStatus, Duration)> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // At this point the child has ended but still has its entry, so its whole processor time can be read.
    if let Some(pid) = pid {
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    }
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    let took = ticks(&stat).map_or(Duration::ZERO, |[own, system, others, for_others]| {
        TICK * (own + system + others + for_others)
    });
    Ok((child.wait()?, took))
}

/// Returns the processor time of the children that this process has waited for, including their children.
pub(super) fn of_children() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    ticks(&stat).map_or(Duration::ZERO, |[_, _, others, for_others]| TICK * (others + for_others))
}

/// Parses the four times in a line of `/proc/…/stat`. The second field is a name that may contain any character.
fn ticks(stat: &str) -> Option<[u32; 4]> {
    let (_, fields) = stat.rsplit_once(')')?;
    let times: Vec<u32> =
        fields.split_whitespace().skip(11).take(4).map_while(|time| time.parse().ok()).collect();
    times.try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_times_are_read_past_any_name() {
        assert_eq!(ticks("12 (a) b (c)) S 7 12 12 0 -1 4 5 6 7 8 100 20 3 4 20 0"), Some([100, 20, 3, 4]));
        assert_eq!(ticks("12 (a) S 7"), None);
        assert_eq!(ticks(""), None);
    }

    #[test]
    fn usage_of_child_includes_its_children() {
        // The work takes many ticks on any processor. An idle process may be charged with one.
        let work = "i=0; while [ $i -lt 400000 ]; do i=$((i + 1)); done";
        let idle = Command::new("sh").args(["-c", "true"]).spawn().unwrap();
        let mut busy = Command::new("sh");
        busy.args(["-c", &format!("sh -c '{work}'; exit 3")]);
        let busy = busy.stdin(Stdio::null()).spawn().unwrap();
        let (idle, (status, busy)) = (wait(idle).unwrap(), wait(busy).unwrap());
        assert!(idle.0.success());
        assert_eq!(status.code(), Some(3));
        assert!(busy > idle.1, "{busy:?} {idle:?}");
        assert!(of_children() >= busy);
    }
}
