//! The commands that are at work, so that none of them outlives this process however it ends.

use std::collections::HashSet;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal};

/// Reads which process groups begin (`+ id`) and end (`- id`). The end of its input means that the process which held the other
/// end is gone, by whatever signal: the groups that are left are killed then.
const SCRIPT: &str = r#"
trap "" HUP INT TERM QUIT
live=" "
while read -r what id; do
    case $what in
        +) live="$live$id " ;;
        -) case $live in *" $id "*) live="${live%%" $id "*} ${live#*" $id "}" ;; esac ;;
    esac
done
exec 2>/dev/null
for id in $live; do kill -s KILL -- "-$id"; done
"#;

/// The process groups of the commands that are at work, and the shell that is told of them.
struct ProcessGroups {
    groups: Option<HashSet<Pid>>,
    shell: Option<Child>,
}

static LIVE: Mutex<ProcessGroups> = Mutex::new(ProcessGroups { groups: None, shell: None });

fn live() -> MutexGuard<'static, ProcessGroups> {
    // Nothing panics while it is held.
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ProcessGroups {
    fn tell(&mut self, what: char, id: Pid) {
        if let Some(input) = self.shell.as_mut().and_then(|shell| shell.stdin.as_mut()) {
            // A shell that was killed cannot help any more; commands are killed by this process all the same.
            let _ = input.write_all(format!("{what} {id}\n").as_bytes());
        }
    }
}

/// Notes that a group has begun.
pub(super) fn begun(id: Pid) {
    let mut live = live();
    live.groups.get_or_insert_default().insert(id);
    live.tell('+', id);
}

/// Notes that a group is gone: its number may soon be that of another.
pub(super) fn ended(id: Pid) {
    let mut live = live();
    if live.groups.as_mut().is_some_and(|groups| groups.remove(&id)) {
        live.tell('-', id);
    }
}

/// Has the commands of this process killed also when it is killed itself, as with `kill -9`.
///
/// A small shell is started that outlives this process for a moment. For programs like the command `ferrata`; a service has a
/// supervisor that ends all of its processes. A command begins only once it is noted here. One that leaves its process group (`setsid`)
/// is out of reach. Called again, it does nothing.
///
/// # Errors
///
/// That of starting `/bin/sh`.
pub fn guard_commands() -> io::Result<()> {
    let mut live = live();
    if live.shell.is_some() {
        return Ok(());
    }
    let shell = Command::new("/bin/sh")
        .args(["-c", SCRIPT, "ferrata-guard"])
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // A Ctrl-C goes to the group of the terminal; this has to outlive it.
        .process_group(0)
        .spawn()?;
    live.shell = Some(shell);
    for id in live.groups.iter().flatten().copied().collect::<Vec<_>>() {
        live.tell('+', id);
    }
    Ok(())
}

/// Kills every command that is at work in this process, for one that is about to end without waiting for anything.
pub fn kill_commands() {
    let mut live = live();
    for id in live.groups.take().into_iter().flatten() {
        // A group that is gone is what is wanted.
        let _ = rustix::process::kill_process_group(id, Signal::KILL);
    }
}
