//! The format of a journal: a heading, and groups of log appends.
//!
//! A journal is a sequence of 512-byte sectors, and grows by 256 KiB of zeros to 4 MiB. All its lines end with a checksum, as those of logs do, and are
//! shorter than a sector.
//!
//! | Part | Content |
//! |---|---|
//! | first sector | `{"journal":1,"lap":L,"inode":I,"boot":"B","sum":"…"}`, a newline, zeros. `journal` is the version; `lap` counts the starts from its beginning; `inode` is the number of the file; `boot`, if the system provides it, identifies the start of the machine |
//! | a group, from the beginning of a sector | a line `{"lap":L,"at":N,"safe":S,"len":B,"crc":C,"sum":"…"}`, entries of `B` bytes with CRC-32C `C`, zeros up to the next sector. The group is at byte `N`, and everything before byte `S` was durable at its write |
//! | an entry | a line `{"tenant":"…","run":"…","after":"…","at":N,"len":B,"sum":"…"}`, and `B` bytes of the log from byte `N`, after the record `after`. A new run has `made` instead: nanoseconds since the start of the machine |

use ferrata_store::{RecordId, RunId, RunKey, TenantId};
use serde::{Deserialize, Serialize};

use crate::line::{self, Flaw, check_sum, content, write_sum};

/// The version of journals that this library writes. It is also the newest version that it reads.
pub(crate) const JOURNAL: u64 = 1;

/// The alignment of headings and groups: the smallest unit that a disk writes atomically.
pub(crate) const SECTOR: usize = 512;

/// The contents of the first sector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JournalHeading {
    journal: u64,
    /// The number of the current lap. Only groups of this lap count: those since the journal last started from its beginning.
    lap: u64,
    /// The inode of the journal's file. A copy of the file has another inode.
    inode: u64,
    /// The id of the machine's boot at the time of the write, where the system reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    boot: Option<String>,
}

/// The first line of a group.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct GroupLine {
    lap: u64,
    at: usize,
    /// The durable length of the journal at the time of this write.
    safe: usize,
    len: usize,
    crc: u32,
}

/// The line before the bytes appended to one log.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct EntryLine {
    tenant: TenantId,
    run: RunId,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<RecordId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    made: Option<u64>,
    at: u64,
    len: usize,
}

/// The bytes of one append to one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JournalEntry<'a> {
    pub(crate) run: RunKey,
    pub(crate) behind: EntryAnchor,
    pub(crate) at: u64,
    pub(crate) bytes: &'a [u8],
}

/// The position in the log at which an entry's bytes begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryAnchor {
    /// After the line of this record.
    Record(RecordId),
    /// At the start of the file: the log was created with these bytes. The value is the time of the creation, in nanoseconds since the machine's
    /// start.
    Nothing(u64),
}

/// The entries of a group, before the group has a position in the journal.
#[derive(Debug, Default)]
pub(crate) struct EntryGroup {
    payload: Vec<u8>,
}

/// The contents of a journal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct JournalContents<'a> {
    pub(crate) heading: JournalHeading,
    pub(crate) entries: Vec<JournalEntry<'a>>,
    /// The offset of an unreadable group that was acknowledged, or that is missing in a copy of the file.
    pub(crate) gap: Option<usize>,
}

/// The reason why a journal is unreadable, after the offset.
pub(crate) type JournalDamage = (usize, Flaw);

impl JournalHeading {
    pub(crate) fn new(lap: u64, inode: u64, boot: Option<&str>) -> Self {
        Self { journal: JOURNAL, lap, inode, boot: boot.map(str::to_owned) }
    }

    /// Returns whether the heading belongs to the file with this inode.
    pub(crate) fn is_of(&self, inode: u64) -> bool {
        self.inode == inode
    }

    /// Returns whether the machine has not restarted since the write of the heading.
    pub(crate) fn is_since(&self, boot: Option<&str>) -> bool {
        boot.is_some() && self.boot.as_deref() == boot
    }

    /// Returns the sector that holds the heading.
    pub(crate) fn sector(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SECTOR);
        write_line(&mut bytes, self);
        bytes.resize(SECTOR, 0);
        bytes
    }

    /// Reads the heading from the first sector of a journal. Returns `None` if the heading was never completely written.
    fn read(bytes: &[u8]) -> Result<Option<Self>, JournalDamage> {
        let sector = &bytes[..bytes.len().min(SECTOR)];
        if sector.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let Some(line) = line_at(sector, 0) else { return Err((0, Flaw::Sum)) };
        let inside = check_sum(line).map_err(|flaw| (0, flaw))?;
        line::version(inside, br#"{"journal":"#, JOURNAL).map_err(|flaw| (0, flaw))?;
        read_line(inside).map(Some).map_err(|flaw| (0, flaw))
    }
}

impl EntryGroup {
    pub(crate) fn add(&mut self, entry: &JournalEntry<'_>) {
        let (tenant, run) = (entry.run.tenant.clone(), entry.run.run.clone());
        let (after, made) = match entry.behind {
            EntryAnchor::Record(record) => (Some(record), None),
            EntryAnchor::Nothing(made) => (None, Some(made)),
        };
        let said = EntryLine { tenant, run, after, made, at: entry.at, len: entry.bytes.len() };
        write_line(&mut self.payload, &said);
        self.payload.extend_from_slice(entry.bytes);
    }

    /// Returns the maximum size of the group, including the bytes that fill its last sector.
    pub(crate) fn room(&self) -> usize {
        (self.payload.len() + SECTOR).next_multiple_of(SECTOR)
    }

    /// Returns the bytes to write at offset `at`, a multiple of a sector.
    pub(crate) fn placed(&self, lap: u64, at: usize, safe: usize) -> Vec<u8> {
        let line = GroupLine { lap, at, safe, len: self.payload.len(), crc: crc32c::crc32c(&self.payload) };
        let mut bytes = Vec::with_capacity(self.room());
        write_line(&mut bytes, &line);
        bytes.extend_from_slice(&self.payload);
        bytes.resize(bytes.len().next_multiple_of(SECTOR), 0);
        bytes
    }
}

/// Reads a journal: its heading and its entries, in order. Returns `None` if the journal was never started.
///
/// The read ends at a group that a crash cut short and that was never acknowledged. An unreadable group is a gap if a later group says that it was
/// durable.
pub(crate) fn read(bytes: &[u8]) -> Result<Option<JournalContents<'_>>, JournalDamage> {
    let Some(heading) = JournalHeading::read(bytes)? else { return Ok(None) };
    let (mut entries, mut at) = (Vec::new(), SECTOR);
    while let Some((line, payload)) = group_at(bytes, at, heading.lap) {
        read_entries(payload, &mut entries).map_err(|flaw| (at, flaw))?;
        at = end_of(at, &line, payload);
    }
    // Search every sector, because the length of the unreadable group is unknown.
    let mut later = (at..bytes.len()).step_by(SECTOR).skip(1);
    let is_gap =
        later.any(|later| group_at(bytes, later, heading.lap).is_some_and(|(line, _)| line.safe > at));
    Ok(Some(JournalContents { heading, entries, gap: is_gap.then_some(at) }))
}

/// Returns the line and the entries of the group that begins at `at`. Returns `None` if no complete group of this lap begins there.
fn group_at(bytes: &[u8], at: usize, lap: u64) -> Option<(GroupLine, &[u8])> {
    let line = line_at(bytes, at)?;
    let said: GroupLine = read_line(check_sum(line).ok()?).ok()?;
    let payload = bytes.get(at + line.len() + 1..)?.get(..said.len)?;
    (said.lap == lap && said.at == at && crc32c::crc32c(payload) == said.crc).then_some((said, payload))
}

fn end_of(at: usize, line: &GroupLine, payload: &[u8]) -> usize {
    let mut head = Vec::new();
    write_line(&mut head, line);
    (at + head.len() + payload.len()).next_multiple_of(SECTOR)
}

fn read_entries<'a>(mut payload: &'a [u8], entries: &mut Vec<JournalEntry<'a>>) -> Result<(), Flaw> {
    while !payload.is_empty() {
        let line = line_at(payload, 0).ok_or_else(|| content("an entry has no end"))?;
        let said: EntryLine = read_line(check_sum(line)?)?;
        let rest = &payload[line.len() + 1..];
        let bytes = rest.get(..said.len).ok_or_else(|| content("an entry is longer than its group"))?;
        let run = RunKey::new(said.tenant, said.run);
        let behind = match (said.after, said.made) {
            (Some(record), None) => EntryAnchor::Record(record),
            (None, Some(made)) => EntryAnchor::Nothing(made),
            _ => return Err(content("an entry does not name its previous record")),
        };
        entries.push(JournalEntry { run, behind, at: said.at, bytes });
        payload = &rest[said.len..];
    }
    Ok(())
}

/// Returns the line that begins at `at`, without its newline. All lines of a journal are shorter than a sector.
fn line_at(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let bytes = bytes.get(at..)?;
    let end = bytes.iter().take(SECTOR).position(|byte| *byte == b'\n')?;
    Some(&bytes[..end])
}

fn write_line(out: &mut Vec<u8>, said: &impl Serialize) {
    let start = out.len();
    serde_json::to_writer(&mut *out, said).expect("ids and numbers have JSON, and memory takes every write");
    out.pop();
    write_sum(out, start);
}

fn read_line<T: serde::de::DeserializeOwned>(inside: &[u8]) -> Result<T, Flaw> {
    serde_json::from_slice(&[inside, b"}"].concat()).map_err(|error| content(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::author::{fresh_id, key};

    fn entry(run: &str, at: u64, bytes: &'static [u8]) -> JournalEntry<'static> {
        let behind = if at == 0 { EntryAnchor::Nothing(1 << 60) } else { EntryAnchor::Record(fresh_id()) };
        JournalEntry { run: key(run), behind, at, bytes }
    }

    /// A journal of some groups; each group was durable at the write of the next.
    fn journal(groups: &[&[JournalEntry<'_>]]) -> (Vec<u8>, Vec<usize>) {
        let mut bytes = JournalHeading::new(7, 1, Some("b")).sector();
        let mut places = Vec::new();
        for entries in groups {
            let mut group = EntryGroup::default();
            entries.iter().for_each(|entry| group.add(entry));
            let at = bytes.len();
            let placed = group.placed(7, at, at);
            assert!(placed.len() <= group.room());
            places.push(at);
            bytes.extend(placed);
        }
        (bytes, places)
    }

    #[test]
    fn what_was_written_is_read() {
        let entries =
            [entry("a", 0, b"one\n"), entry("b", 1 << 40, b"two\n"), entry("a", 11, &[b'x'; 2_000])];
        let (bytes, _) = journal(&[&entries[..2], &entries[2..]]);
        let found = read(&bytes).unwrap().unwrap();
        assert!(found.entries == entries && found.gap.is_none());
        assert!(found.heading.is_of(1) && !found.heading.is_of(2));
        assert!(
            found.heading.is_since(Some("b"))
                && !found.heading.is_since(Some("c"))
                && !found.heading.is_since(None)
        );
        assert!(read(&[]).unwrap().is_none());
        assert!(read(&[0; 4_096]).unwrap().is_none(), "the group must not start");
    }

    /// Guarantees: FS-11.
    #[test]
    fn torn_group_ends_journal_earlier_flip_is_gap() {
        let entries = [entry("a", 7, b"one\n"), entry("b", 9, b"two\n"), entry("a", 11, &[b'x'; 2_000])];
        let (whole, places) = journal(&[&entries[..1], &entries[1..2], &entries[2..]]);
        for cut in places[2]..places[2] + 2_000 {
            let found = read(&whole[..cut]).unwrap().unwrap();
            assert!(found.entries == entries[..2] && found.gap.is_none(), "cut at {cut}");
        }
        for at in 0..places[2] {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            match read(&flipped) {
                Ok(found) => match found.unwrap() {
                    // The bytes between a group's end and the next sector are unused.
                    JournalContents { entries: found, gap: None, .. } => {
                        assert!(found == entries, "flipped at {at}")
                    }
                    JournalContents { gap: Some(gap), .. } => {
                        assert!(gap <= at && at < gap + SECTOR && places.contains(&gap), "flipped at {at}");
                    }
                },
                Err((place, _)) => assert!(place == 0 && at < SECTOR, "flipped at {at}"),
            }
        }
    }

    /// Guarantees: FS-11.
    #[test]
    fn groups_of_another_lap_are_not_meant() {
        let (mut bytes, places) = journal(&[&[entry("a", 7, b"one\n")], &[entry("a", 11, b"two\n")]]);
        let group = |lap| {
            let mut group = EntryGroup::default();
            group.add(&entry("b", 3, b"new\n"));
            group.placed(lap, places[0], SECTOR)
        };
        bytes[..SECTOR].copy_from_slice(&JournalHeading::new(8, 1, None).sector());
        assert!(read(&bytes).unwrap().unwrap().entries.is_empty());
        let new = group(8);
        bytes[places[0]..places[0] + new.len()].copy_from_slice(&new);
        let found = read(&bytes).unwrap().unwrap().entries;
        assert_eq!(found.iter().map(|entry| entry.bytes).collect::<Vec<_>>(), [b"new\n"]);
    }

    #[test]
    fn a_newer_journal_is_recognised() {
        let mut newer = Vec::new();
        write_line(&mut newer, &serde_json::json!({ "journal": 2 }));
        assert_eq!(read(&newer).unwrap_err(), (0, Flaw::Newer(2)));
    }
}
