//! Tracks the running commands, so that no command outlives this process, however the process ends.

use std::collections::HashSet;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal};

/// Reads the process groups that begin (`+ id`) and end (`- id`). The end of the input means that this process has ended, for whatever reason. Then
/// the script kills the remaining groups.
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
            // If the shell was killed, this process can still kill its commands itself.
            let _ = input.write_all(format!("{what} {id}\n").as_bytes());
        }
    }
}

/// Registers a process group that has begun.
pub(super) fn register_group(id: Pid) {
    let mut live = lock_groups();
    live.groups.get_or_insert_default().insert(id);
    live.write_command('+', id);
}

/// Removes a process group that has ended. The system may soon use its number for another process.
pub(super) fn unregister_group(id: Pid) {
    let mut live = lock_groups();
    if live.groups.as_mut().is_some_and(|groups| groups.remove(&id)) {
        live.write_command('-', id);
    }
}

/// Ensures that the commands of this process are killed even if `kill -9` ends the process.
///
/// The function starts a small shell, which outlives this process by a moment. Use it in a program like the command `ferrata`. A service does not
/// need it if its supervisor ends all its processes. Each command begins only after its process group is registered. A command that leaves its
/// process group (`setsid`) is not killed. Further calls do nothing.
///
/// # Errors
///
/// Returns the error of the system if `/bin/sh` cannot be started.
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
        // Ctrl-C is sent to the process group of the terminal. The shell is in another group, because it must outlive the signal.
        .process_group(0)
        .spawn()?;
    live.shell = Some(shell);
    for id in live.groups.iter().flatten().copied().collect::<Vec<_>>() {
        live.write_command('+', id);
    }
    Ok(())
}

/// Kills all running commands of this process. Use it in a process that must end immediately.
pub fn kill_commands() {
    let mut live = lock_groups();
    for id in live.groups.take().into_iter().flatten() {
        // The group may have ended already.
        let _ = rustix::process::kill_process_group(id, Signal::KILL);
    }
}
