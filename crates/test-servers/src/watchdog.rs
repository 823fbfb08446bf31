//! A watchdog: a shell process that outlives this process briefly, and ends the servers that this process could not end.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::error::{Result, ServerError};

/// The script of the watchdog. It waits for a line on its input. If the input ends without a line, this process is gone, whatever the signal was.
/// The script then ends the server and removes its folder.
///
/// `$1` is the server's process group. `$2` is the signal that ends the server and its children. `$3` is the folder, or empty. The children of
/// Postgres have their own groups and may be suspended, so the script wakes them to receive the signal.
const SCRIPT: &str = r#"
trap "" HUP INT TERM QUIT
read -r done && exit 0
exec 2>/dev/null
kill -s "$2" -- "-$1"
kill -s CONT -- "-$1"
for stat in /proc/[0-9]*/stat; do
    read -r child name state parent rest <"$stat" && [ "$parent" = "$1" ] && kill -s CONT "$child"
done
left=30
while kill -s 0 -- "-$1" && [ "$left" -gt 0 ]; do sleep 0.1; left=$((left - 1)); done
kill -s KILL -- "-$1"
[ -z "$3" ] || rm -rf -- "$3"
"#;

/// The watchdog of one process group.
#[derive(Debug)]
pub(crate) struct Watchdog {
    shell: Child,
}

impl Watchdog {
    /// Watches the process group of `leader`. When this process is gone, the watchdog ends the group with `signal` (its name), and removes
    /// `folder`.
    pub(crate) fn start(leader: u32, signal: &str, folder: Option<&Path>) -> Result<Self> {
        let shell = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "watchdog", &leader.to_string(), signal])
            .arg(folder.unwrap_or(Path::new("")))
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Use another process group than the terminal's: the watchdog must survive a Ctrl-C.
            .process_group(0)
            .spawn()
            .map_err(ServerError::io("start", "/bin/sh"))?;
        Ok(Self { shell })
    }
}

impl Drop for Watchdog {
    /// Dismisses the watchdog, because the system may soon reuse the number of the group.
    fn drop(&mut self) {
        if let Some(mut input) = self.shell.stdin.take() {
            // Fails if the watchdog is already gone.
            let _ = input.write_all(b"done\n");
        }
        let _ = self.shell.wait();
    }
}
