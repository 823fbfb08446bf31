//! Writes the bodies of `node` records. For the usual fields, it does not use serde.
//!
//! It exists for the benchmark row `core/every-node`: most records of a run are `node` records of about a hundred bytes. Serde would spend most of
//! the time on checking each byte of names for characters that need an escape. The output is the same as that of serde, byte for byte.

use serde::Serialize;

use super::body::{FiredEdge, NodesDone, RecordBase};
use super::done::{NodeDone, RareFields};
use crate::id::NodeName;

/// Appends the body to `out`.
///
/// # Errors
///
/// Returns the errors of serde for values that cannot be expressed in JSON. Values from users were checked before.
pub(super) fn nodes(
    event: &NodesDone,
    base: Option<&RecordBase>,
    out: &mut Vec<u8>,
) -> serde_json::Result<()> {
    let NodesDone { done: all, patch } = event;
    out.extend_from_slice(b"{\"done\":[");
    for (at, done) in all.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        one(done, out)?;
    }
    out.push(b']');
    if !patch.is_empty() {
        out.extend_from_slice(b",\"patch\":");
        patch.write(out)?;
    }
    if let Some(base) = base {
        field("base", base, out)?;
    }
    out.push(b'}');
    Ok(())
}

fn one(done: &NodeDone, out: &mut Vec<u8>) -> serde_json::Result<()> {
    let NodeDone { node, visit, attempts, took_ms, output, fired, .. } = done;
    out.extend_from_slice(b"{\"node\":");
    name(node, out);
    out.extend_from_slice(b",\"visit\":");
    number(u64::from(visit.get()), out);
    if *attempts != 1 {
        out.extend_from_slice(b",\"attempts\":");
        number(u64::from(*attempts), out);
    }
    if *took_ms != 0 {
        out.extend_from_slice(b",\"took_ms\":");
        number(*took_ms, out);
    }
    if let Some(failure) = &done.failure {
        field("failure", failure, out)?;
    }
    if let Some(output) = output {
        out.extend_from_slice(b",\"output\":");
        out.extend_from_slice(output.get().as_bytes());
    }
    if let Some(notes) = &done.notes {
        field("notes", notes, out)?;
    }
    if !fired.is_empty() {
        out.extend_from_slice(b",\"fired\":[");
        for (at, fired) in fired.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            edge(fired, out)?;
        }
        out.push(b']');
    }
    if !done.is_usual() {
        rare(done, out)?;
    }
    out.push(b'}');
    Ok(())
}

fn rare(rare: &RareFields, out: &mut Vec<u8>) -> serde_json::Result<()> {
    let RareFields {
        bypassed,
        skipped,
        dropped,
        settled,
        wrote,
        hold,
        left,
        cleanup,
        letters,
        noted,
        end,
        ..
    } = rare;
    for (key, names) in [("bypassed", bypassed), ("skipped", skipped), ("dropped", dropped)] {
        if !names.is_empty() {
            field(key, names, out)?;
        }
    }
    match &settled.start {
        None if settled.spent.is_empty() && settled.fresh.is_empty() => {}
        Some(start) if start.is_empty() && settled.spent.is_empty() && settled.fresh.is_empty() => {
            out.extend_from_slice(b",\"settled\":{\"start\":[]}");
        }
        _ => field("settled", settled, out)?,
    }
    if !wrote.is_empty() {
        field("wrote", wrote, out)?;
    }
    if *hold {
        field("hold", hold, out)?;
    }
    if *left {
        field("left", left, out)?;
    }
    if *cleanup {
        field("cleanup", cleanup, out)?;
    }
    if !letters.is_empty() {
        field("letters", letters, out)?;
    }
    if !noted.artifacts.is_empty() {
        field("artifacts", &noted.artifacts, out)?;
    }
    if !noted.reads.is_empty() {
        field("reads", &noted.reads, out)?;
    }
    if let Some(end) = end {
        field("end", end, out)?;
    }
    Ok(())
}

fn edge(fired: &FiredEdge, out: &mut Vec<u8>) -> serde_json::Result<()> {
    if fired.is_plain() {
        name(&fired.to, out);
        return Ok(());
    }
    serde_json::to_writer(out, fired)
}

fn field<T: Serialize>(key: &str, value: &T, out: &mut Vec<u8>) -> serde_json::Result<()> {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
    serde_json::to_writer(out, value)
}

/// Writes a name without escapes, because names contain no characters that JSON escapes.
fn name(name: &NodeName, out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(name.as_str().as_bytes());
    out.push(b'"');
}

fn number(number: u64, out: &mut Vec<u8>) {
    let mut left = number;
    let mut digits = [0; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b"0123456789"[usize::try_from(left % 10).unwrap_or_default()];
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[first..]);
}

#[cfg(test)]
mod tests;
