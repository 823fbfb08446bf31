//! Tracks the running commands, so that none of them outlives this process however it ends.

use std::collections::HashSet;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal};

/// Reads which process groups begin (`+ id`) and end (`- id`). The end of the input means that this process is gone, whatever the signal: the script
/// then kills the remaining groups.
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

/// The process groups of the running commands, and the shell that watches them.
struct ProcessGroups {
    groups: Option<HashSet<Pid>>,
    shell: Option<Child>,
}

static LIVE: Mutex<ProcessGroups> = Mutex::new(ProcessGroups { groups: None, shell: None });

fn lock_groups() -> MutexGuard<'static, ProcessGroups> {
    // No code panics while it holds this lock.
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ProcessGroups {
    fn write_command(&mut self, what: char, id: Pid) {
        if let Some(input) = self.shell.as_mut().and_then(|shell| shell.stdin.as_mut()) {
            // If the shell was killed, this process still kills its commands.
            let _ = input.write_all(format!("{what} {id}\n").as_bytes());
        }
    }
}

/// Notes that a group has begun.
pub(super) fn register_group(id: Pid) {
    let mut live = lock_groups();
    live.groups.get_or_insert_default().insert(id);
    live.write_command('+', id);
}

/// Records that a group ended: the system may soon reuse its number.
pub(super) fn unregister_group(id: Pid) {
    let mut live = lock_groups();
    if live.groups.as_mut().is_some_and(|groups| groups.remove(&id)) {
        live.write_command('-', id);
    }
}

/// Ensures that the commands of this process are killed even if the process dies by `kill -9`.
///
/// A small shell starts that outlives this process briefly. Use it for programs like the command `ferrata`; a service has a supervisor that ends all
/// its processes. A command begins only after its group is registered. A command that leaves its process group (`setsid`) is out of reach. Further
/// calls do nothing.
///
/// # Errors
///
/// Returns the error of starting `/bin/sh`.
pub fn guard_commands() -> io::Result<()> {
    let mut live = lock_groups();
    if live.shell.is_some() {
        return Ok(());
    }
    let shell = Command::new("/bin/sh")
        .args(["-c", SCRIPT, "ferrata-guard"])
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Ctrl-C goes to the process group of the terminal; the shell must outlive it.
        .process_group(0)
        .spawn()?;
    live.shell = Some(shell);
    for id in live.groups.iter().flatten().copied().collect::<Vec<_>>() {
        live.write_command('+', id);
    }
    Ok(())
}

/// Kills every running command of this process, for a process that must end immediately.
pub fn kill_commands() {
    let mut live = lock_groups();
    for id in live.groups.take().into_iter().flatten() {
        // The group may already be gone.
        let _ = rustix::process::kill_process_group(id, Signal::KILL);
    }
}
