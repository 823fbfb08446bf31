//! A command to one server: a plain command, a script, or a script for the keys of many calls.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use redis::Cmd;

use super::slots::slot;

/// A script that runs inside the server as one atomic step.
pub(crate) struct Script {
    source: &'static str,
    hash: String,
}

impl Script {
    pub(crate) fn new(source: &'static str) -> Self {
        Self { source, hash: redis::Script::new(source).get_hash().to_owned() }
    }
}

/// A command that is not sent yet. It is cheap to clone, because bodies are shared.
#[derive(Clone)]
pub(crate) struct RedisCall {
    what: CommandKind,
    key: Bytes,
    /// Whether the command contains the key. If not, the key only selects the server.
    has_key: bool,
    /// Whether the command uses other keys of the slot. If so, it runs only where all keys of the slot are.
    has_more: bool,
    args: Vec<Bytes>,
}

#[derive(Clone)]
enum CommandKind {
    Plain(&'static [&'static str]),
    Script(&'static Script),
    /// A script that repeats one operation for several keys, with shared arguments.
    Each(&'static Script, Arc<[Bytes]>),
}

impl RedisCall {
    /// Creates a plain command: these words, then keys and arguments.
    pub(crate) fn plain(words: &'static [&'static str], key: Bytes) -> Self {
        Self::new(CommandKind::Plain(words), key)
    }

    /// Creates a call of a script with one key.
    pub(crate) fn script(script: &'static Script, key: Bytes) -> Self {
        Self::new(CommandKind::Script(script), key)
    }

    /// Creates a call of a script with one key. Calls of the same script with the same `common` arguments may be sent together: see [`joined`]. The
    /// reply is the script's result for this key.
    pub(crate) fn each(script: &'static Script, common: &Arc<[Bytes]>, key: Bytes) -> Self {
        Self::new(CommandKind::Each(script, Arc::clone(common)), key)
    }

    fn new(what: CommandKind, key: Bytes) -> Self {
        Self { what, key, has_key: true, has_more: false, args: Vec::with_capacity(4) }
    }

    /// Leaves the key out of the command: the key only selects the server.
    #[must_use]
    pub(crate) fn without_keys(mut self) -> Self {
        self.has_key = false;
        self
    }

    /// Marks that the call also uses other keys of the slot.
    #[must_use]
    pub(crate) fn with_more_keys(mut self) -> Self {
        self.has_more = true;
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

    /// Returns the cluster slot of the key.
    pub(crate) fn slot(&self) -> u16 {
        slot(&self.key)
    }

    /// Returns the key, which selects the server.
    pub(crate) fn key(&self) -> &Bytes {
        &self.key
    }

    pub(crate) fn has_more_keys(&self) -> bool {
        self.has_more
    }

    pub(crate) fn is_script(&self) -> bool {
        !matches!(self.what, CommandKind::Plain(_))
    }

    /// Returns whether the reply is a list with an item for each key, or a number if there are no items.
    pub(crate) fn is_each(&self) -> bool {
        matches!(self.what, CommandKind::Each(..))
    }

    fn bytes(&self) -> usize {
        self.args.iter().map(Bytes::len).sum()
    }
}

/// The maximum number of keys in a script that joins calls, and the maximum number of bytes, unless one call alone has more.
///
/// While a script runs, the server does nothing else. A script takes about 3 microseconds for each append, 15 for each change of the index, and
/// half a millisecond for each MiB. So no caller waits for more than about a millisecond.
pub(crate) const MOST: usize = 64;
const MOST_BYTES: usize = 1 << 20;

/// Groups calls that are sent as one command. Calls of the same script form a group if all keys are on one server (`together`), or if their keys
/// are in the same cluster slot. Every other call is a group by itself.
pub(crate) fn joined(calls: &[RedisCall], together: bool) -> Vec<Vec<usize>> {
    if calls.len() == 1 {
        return vec![vec![0]];
    }
    let mut groups: Vec<(usize, Vec<usize>)> = Vec::new();
    let mut open: HashMap<(*const Script, u16), usize> = HashMap::new();
    for (at, call) in calls.iter().enumerate() {
        if let CommandKind::Each(script, _) = &call.what {
            let script: *const Script = *script;
            let slot = if together { 0 } else { call.slot() };
            let place = open.entry((script, slot)).or_insert(groups.len());
            if let Some((bytes, group)) = groups.get_mut(*place)
                && group.len() < MOST
                && *bytes + call.bytes() <= MOST_BYTES
            {
                *bytes += call.bytes();
                group.push(at);
                continue;
            }
            *place = groups.len();
        }
        groups.push((call.bytes(), vec![at]));
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Builds the command for joined calls. A script is sent as its hash, or as its `whole` text if the server does not have it.
pub(crate) fn cmd<'a>(calls: impl ExactSizeIterator<Item = &'a RedisCall> + Clone, whole: bool) -> Cmd {
    let size = calls.clone().map(|call| call.bytes() + 64).sum::<usize>() + 128;
    let parts = calls.clone().map(|call| call.args.len() + 1).sum::<usize>() + 8;
    let mut cmd = Cmd::with_capacity(parts, size);
    let Some(first) = calls.clone().next() else { return cmd };
    let (script, common): (_, &[Bytes]) = match &first.what {
        CommandKind::Plain(words) => {
            for word in *words {
                cmd.arg(*word);
            }
            (None, &[])
        }
        CommandKind::Script(script) => (Some(*script), &[]),
        CommandKind::Each(script, common) => (Some(*script), common),
    };
    if let Some(script) = script {
        let (word, text) = if whole { ("EVAL", script.source) } else { ("EVALSHA", &*script.hash) };
        cmd.arg(word).arg(text).arg(calls.len());
    }
    let keys = calls.clone().filter(|call| call.has_key).map(|call| &call.key);
    for part in keys.chain(common).chain(calls.flat_map(|call| &call.args)) {
        cmd.arg(&part[..]);
    }
    cmd
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    static ONE: LazyLock<Script> = LazyLock::new(|| Script::new("return 1"));
    static OTHER: LazyLock<Script> = LazyLock::new(|| Script::new("return 2"));

    fn call(script: &'static Script, key: &str, bytes: usize) -> RedisCall {
        RedisCall::each(script, &Arc::from(["both".into()]), key.to_owned().into()).arg(vec![b'x'; bytes])
    }

    #[test]
    fn only_combinable_calls_are_joined() {
        let plain = RedisCall::plain(&["GET"], "{a}".into());
        let calls = [
            call(&ONE, "{a}1", 1),
            plain,
            call(&OTHER, "{a}2", 1),
            call(&ONE, "{b}3", 1),
            call(&ONE, "{a}4", 1),
        ];
        assert_eq!(joined(&calls, true), [vec![0, 3, 4], vec![1], vec![2]]);
        assert_eq!(joined(&calls, false), [vec![0, 4], vec![1], vec![2], vec![3]], "two slots");
        let packed = cmd([&calls[0], &calls[4]].into_iter(), true).get_packed_command();
        let words: Vec<&[u8]> = packed.split(|byte| *byte == b'\n').skip(2).step_by(2).collect();
        let expected = ["EVAL", "return 1", "2", "{a}1", "{a}4", "both", "x", "x"];
        let expected: Vec<String> = expected.iter().map(|word| format!("{word}\r")).collect();
        assert_eq!(words, expected.iter().map(String::as_bytes).collect::<Vec<_>>());
    }

    #[test]
    fn call_group_exceeds_limit_only_for_single_call() {
        let many: Vec<RedisCall> = (0..MOST * 2 + 1).map(|n| call(&ONE, &n.to_string(), 1)).collect();
        let sizes: Vec<usize> = joined(&many, true).iter().map(Vec::len).collect();
        assert_eq!(sizes, [MOST, MOST, 1]);
        let (half, all) = (MOST_BYTES / 2, MOST_BYTES + 1);
        let large = [half, half, 1, all, 1, half].map(|bytes| call(&ONE, "key", bytes));
        assert_eq!(joined(&large, true), [vec![0, 1], vec![2], vec![3], vec![4, 5]]);
    }
}
