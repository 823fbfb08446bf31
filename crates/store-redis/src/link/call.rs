//! One command to one server: a plain one, or a script with its keys.

use bytes::Bytes;
use redis::Cmd;

use super::slots::slot;

/// A script that runs inside the server, in one step.
pub(crate) struct Script {
    source: &'static str,
    hash: String,
}

impl Script {
    pub(crate) fn new(source: &'static str) -> Self {
        Self { source, hash: redis::Script::new(source).get_hash().to_owned() }
    }
}

/// A command that is not sent yet. Cheap to copy: bodies are shared.
#[derive(Clone)]
pub(crate) struct Call {
    what: What,
    slot: u16,
    keys: Vec<Bytes>,
    args: Vec<Bytes>,
}

#[derive(Clone, Copy)]
enum What {
    Plain(&'static [&'static str]),
    Script(&'static Script),
}

impl Call {
    /// A command of these words, and then keys and arguments.
    pub(crate) fn plain(words: &'static [&'static str], key: Bytes) -> Self {
        Self { what: What::Plain(words), slot: slot(&key), keys: vec![key], args: Vec::new() }
    }

    /// A script on keys of one slot.
    pub(crate) fn script(script: &'static Script, keys: Vec<Bytes>) -> Self {
        Self {
            what: What::Script(script),
            slot: keys.first().map_or(0, |key| slot(key)),
            keys,
            args: Vec::new(),
        }
    }

    /// Leaves the key out of the command: it only said where to go.
    #[must_use]
    pub(crate) fn without_keys(mut self) -> Self {
        self.keys.clear();
        self
    }

    #[must_use]
    pub(crate) fn arg(mut self, arg: impl Into<Bytes>) -> Self {
        self.args.push(arg.into());
        self
    }

    pub(crate) fn push(&mut self, arg: impl Into<Bytes>) {
        self.args.push(arg.into());
    }

    /// The slot of a cluster that its keys are in.
    pub(crate) fn slot(&self) -> u16 {
        self.slot
    }

    pub(crate) fn is_script(&self) -> bool {
        matches!(self.what, What::Script(_))
    }

    /// Packs the command; a script by its hash, or as a whole for a server that does not know it.
    pub(crate) fn cmd(&self, whole: bool) -> Cmd {
        let size = self.args.iter().map(Bytes::len).sum::<usize>() + 256;
        let mut cmd = Cmd::with_capacity(self.args.len() + self.keys.len() + 3, size);
        match self.what {
            What::Plain(words) => {
                for word in words {
                    cmd.arg(*word);
                }
            }
            What::Script(script) if whole => {
                cmd.arg("EVAL").arg(script.source).arg(self.keys.len());
            }
            What::Script(script) => {
                cmd.arg("EVALSHA").arg(&script.hash).arg(self.keys.len());
            }
        }
        for part in self.keys.iter().chain(&self.args) {
            cmd.arg(&part[..]);
        }
        cmd
    }
}
