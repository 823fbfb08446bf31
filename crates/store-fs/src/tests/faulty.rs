//! A file system that fails or dies at a chosen call, and can lose unsynced data.
//!
//! It uses real files. For each file, it remembers the content that a sync made durable. For each directory, it remembers which names were created
//! or removed since its last sync. A power loss restores that state. A failed sync loses the data that it was to make durable: like Linux, the file
//! system then counts the pages as clean, and the next sync returns `Ok` without them. A failed sync also loses a new name of a file. That is
//! stricter than real file systems, which stop when their journal fails. Created directories and removed files become durable with the next sync.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use crate::disk::{Disk, FileAccess, RealDisk};

/// The effect at the chosen call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The call does nothing, and the process dies.
    DieBefore,
    /// The call does its work (a write does half of it), and the process dies.
    DieAfter,
    /// The call fails with this error; a write fails after half of its work. The process continues.
    Fail(i32),
}

/// The fate of unsynced data at a power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// No power loss: only the process died.
    None,
    /// The data was never written.
    Content,
    /// The file has its length, but the data reads as zeros.
    Zeros,
    /// The first sector of the data reads as zeros; the remaining data exists.
    FirstSector,
    /// Half of the data exists, and the file is shorter.
    Half,
    /// Each sector of the data exists or not, by chance, and the file may be shorter.
    Chance(u64),
}

#[derive(Debug)]
pub(super) struct FaultyDisk {
    graveyard: PathBuf,
    state: Mutex<State>,
    meanwhile: Mutex<Option<Meanwhile>>,
}

/// What other processes do just before a call with this name.
struct Meanwhile(&'static str, Box<dyn FnOnce() + Send>);

impl std::fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

#[derive(Debug, Default)]
struct State {
    calls: Vec<String>,
    trouble: Vec<(usize, Trouble)>,
    dead: bool,
    /// By inode: the durable content, and whether a sync failed although the file reads right.
    files: HashMap<u64, Stable>,
    names: Vec<Pending>,
    buried: usize,
}

#[derive(Debug, Default)]
struct Stable {
    content: Vec<u8>,
    lost: Vec<Range<usize>>,
}

/// A change of a directory that is not durable yet.
#[derive(Debug)]
struct Pending {
    directory: PathBuf,
    name: PathBuf,
    /// The link to the file that had the name before.
    before: Option<PathBuf>,
    lost: bool,
}

impl FaultyDisk {
    /// Creates the file system. It keeps links to removed files in `graveyard`, which must be on the same file system.
    pub(super) fn new(graveyard: &Path) -> Self {
        fs::create_dir_all(graveyard).unwrap();
        Self { graveyard: graveyard.into(), state: Mutex::default(), meanwhile: Mutex::default() }
    }

    /// Runs `done` just before the next call with this name.
    pub(super) fn meanwhile(&self, call: &'static str, done: impl FnOnce() + Send + 'static) {
        *self.meanwhile.lock().unwrap() = Some(Meanwhile(call, Box::new(done)));
    }

    /// Simulates a new process after a process died or the machine restarted.
    pub(super) fn revive(&self) {
        self.state().dead = false;
    }

    pub(super) fn trouble_at(&self, call: usize, trouble: Trouble) {
        self.state().trouble.push((call, trouble));
    }

    /// Returns the calls so far that changed something.
    pub(super) fn calls(&self) -> Vec<String> {
        self.state().calls.clone()
    }

    pub(super) fn is_dead(&self) -> bool {
        self.state().dead
    }

    /// Simulates the death of the process, and restores the durable state.
    pub(super) fn lose(&self, loss: Loss) {
        let state = &mut *self.state();
        state.dead = true;
        if loss == Loss::None {
            return;
        }
        for pending in std::mem::take(&mut state.names).into_iter().rev() {
            if pending.name.is_dir() {
                fs::remove_dir_all(&pending.name).unwrap();
            } else if pending.name.exists() {
                fs::remove_file(&pending.name).unwrap();
            }
            if let Some(before) = pending.before
                && pending.directory.exists()
            {
                fs::rename(before, &pending.name).unwrap();
            }
        }
        let root = self.graveyard.parent().unwrap();
        for path in files_below(root) {
            let Some(stable) = state.files.get_mut(&fs::metadata(&path).unwrap().ino()) else {
                continue;
            };
            let seen = fs::read(&path).unwrap();
            *stable = Stable { content: stable.after(loss, &seen), lost: Vec::new() };
            fs::write(&path, &stable.content).unwrap();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Counts a call. Returns whether to do its work, and the result to return then.
    fn call(&self, what: &str, path: &Path) -> io::Result<Option<Trouble>> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let call = format!("{what} {name}");
        let others = self.meanwhile.lock().unwrap().take_if(|meanwhile| meanwhile.0 == call);
        if let Some(Meanwhile(_, done)) = others {
            done();
        }
        let mut state = self.state();
        if state.dead {
            return Err(io::Error::other("dead"));
        }
        let number = state.calls.len();
        state.calls.push(call);
        let trouble = state.trouble.iter().find(|(at, _)| *at == number).map(|(_, trouble)| *trouble);
        state.dead = matches!(trouble, Some(Trouble::DieBefore | Trouble::DieAfter));
        match trouble {
            Some(Trouble::DieBefore) => Err(io::Error::other("dead")),
            trouble => Ok(trouble),
        }
    }

    /// Makes a call that does its work completely or not at all.
    fn whole(&self, what: &str, path: &Path, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        match self.call(what, path)? {
            Some(Trouble::Fail(error)) => Err(io::Error::from_raw_os_error(error)),
            Some(_) => work().and(Err(io::Error::other("dead"))),
            None => work(),
        }
    }

    /// Records that a name is about to change.
    fn rename_pending(&self, name: &Path) {
        let mut state = self.state();
        let before = name.is_file().then(|| {
            state.buried += 1;
            let grave = self.graveyard.join(state.buried.to_string());
            fs::hard_link(name, &grave).unwrap();
            grave
        });
        let directory = name.parent().unwrap().into();
        state.names.push(Pending { directory, name: name.into(), before, lost: false });
    }

    fn living(&self) -> io::Result<()> {
        if self.is_dead() { Err(io::Error::other("dead")) } else { Ok(()) }
    }
}

impl Stable {
    /// Returns the content after a power loss of a file that now reads `seen`.
    fn after(&self, loss: Loss, seen: &[u8]) -> Vec<u8> {
        let synced = self.content.len();
        let mut left = self.content.clone();
        // If the file was cut short since, its durable content remains.
        if seen.len() >= synced && !seen.starts_with(&self.content) {
            // Overwritten bytes exist in part, in whole sectors. Appended bytes are handled as if nothing else had been written.
            let over = Self::sectors(loss, &left, &seen[..synced]);
            left = Self { content: over.clone(), lost: Vec::new() }
                .after(loss, &[&over, &seen[synced..]].concat());
        } else if seen.len() > synced {
            let unsynced = &seen[synced..];
            match loss {
                Loss::None | Loss::Content => {}
                Loss::Zeros => left.resize(seen.len(), 0),
                Loss::FirstSector => {
                    let sector = unsynced.len().min(512 - synced % 512);
                    left.resize(synced + sector, 0);
                    left.extend_from_slice(&unsynced[sector..]);
                }
                Loss::Half => left.extend_from_slice(&unsynced[..unsynced.len() / 2]),
                Loss::Chance(seed) => {
                    let mut chance = Chance(seed ^ seen.len() as u64);
                    let (mut at, mut end) = (synced, synced);
                    while at < seen.len() {
                        let next = seen.len().min((at / SECTOR + 1) * SECTOR);
                        left.resize(next, 0);
                        if chance.next() {
                            left[at..next].copy_from_slice(&seen[at..next]);
                            end = next;
                        }
                        at = next;
                    }
                    if chance.next() {
                        left.truncate(end);
                    }
                }
            }
        }
        left
    }

    /// Returns the content where `seen` was written over `old`, which has the same length.
    fn sectors(loss: Loss, old: &[u8], seen: &[u8]) -> Vec<u8> {
        let mut chance = Chance(match loss {
            Loss::Chance(seed) => seed ^ old.len() as u64,
            _ => 0,
        });
        let (mut left, mut number) = (Vec::new(), 0);
        for (old, new) in old.chunks(SECTOR).zip(seen.chunks(SECTOR)) {
            let is_there = match loss {
                Loss::None => true,
                // Zeros appear only in new blocks. Overwritten data is either new or old.
                Loss::Content | Loss::Zeros => false,
                Loss::FirstSector => number > 0,
                Loss::Half => number % 2 == 0,
                Loss::Chance(_) => chance.next(),
            };
            number += usize::from(old != new);
            left.extend_from_slice(if is_there { new } else { old });
        }
        left
    }
}

impl Disk for FaultyDisk {
    fn open(&self, path: &Path, access: FileAccess) -> io::Result<File> {
        self.living()?;
        if access == FileAccess::Create && !path.exists() {
            self.whole("create", path, || {
                self.rename_pending(path);
                let file = RealDisk.open(path, access)?;
                self.state().files.insert(file.metadata()?.ino(), Stable::default());
                Ok(())
            })?;
        }
        RealDisk.open(path, access)
    }

    fn stat(&self, path: &Path) -> io::Result<Metadata> {
        self.living()?;
        RealDisk.stat(path)
    }

    fn read_at(&self, file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.living()?;
        RealDisk.read_at(file, buffer, at)
    }

    fn write_at(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        let trouble = self.call("write", Path::new(""))?;
        let done = if trouble.is_some() { &bytes[..bytes.len() / 2] } else { bytes };
        if let Some(stable) = self.state().files.get_mut(&file.metadata()?.ino()) {
            let from = usize::try_from(at).unwrap();
            stable.lost.retain(|lost| lost.start < from || lost.end > from + done.len());
        }
        RealDisk.write_at(file, done, at)?;
        match trouble {
            Some(Trouble::Fail(error)) => Err(io::Error::from_raw_os_error(error)),
            Some(_) => Err(io::Error::other("dead")),
            None => Ok(()),
        }
    }

    fn set_len(&self, file: &File, len: u64) -> io::Result<()> {
        self.whole("set_len", Path::new(""), || RealDisk.set_len(file, len))
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        let inode = file.metadata()?.ino();
        let mut seen = vec![0; usize::try_from(file.metadata()?.len()).unwrap()];
        RealDisk.read_at(file, &mut seen, 0)?;
        let done = self.whole("sync", Path::new(""), || Ok(()));
        let state = &mut *self.state();
        let Some(stable) = state.files.get_mut(&inode) else {
            return done;
        };
        if done.is_ok() {
            stable.lost.retain(|lost| lost.end <= seen.len());
            stable.lost.iter().for_each(|lost| seen[lost.clone()].fill(0));
            stable.content = seen;
        } else if !state.dead && seen.len() > stable.content.len() {
            stable.lost.push(stable.content.len()..seen.len());
        }
        done
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let done = self.whole("sync_dir", path, || RealDisk.stat(path).map(|_| ()));
        let mut state = self.state();
        if done.is_ok() {
            let mut safe: Vec<PathBuf> = Vec::new();
            state.names.retain(|pending| {
                let stays = pending.directory != path || pending.lost;
                if !stays {
                    safe.push(pending.name.clone());
                }
                stays
            });
            // A name that was given again since is durable, whatever was lost before.
            state.names.retain(|pending| pending.directory != path || !safe.contains(&pending.name));
        } else if !state.dead {
            let lost = |pending: &&mut Pending| pending.directory == path && pending.name.is_file();
            state.names.iter_mut().filter(lost).for_each(|pending| pending.lost = true);
        }
        done
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        self.living()?;
        if path.is_dir() {
            return Ok(());
        }
        self.whole("make_dir", path, || {
            self.rename_pending(path);
            RealDisk.make_dir(path)
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.whole("rename", to, || {
            self.rename_pending(to);
            self.rename_pending(from);
            RealDisk.rename(from, to)
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.living()?;
        if !path.exists() {
            return RealDisk.remove(path);
        }
        self.whole("remove", path, || {
            self.rename_pending(path);
            RealDisk.remove(path)
        })
    }
}

/// The smallest unit that a disk writes atomically.
const SECTOR: usize = 512;

/// Random numbers from a seed (splitmix64).
pub(super) struct Chance(pub(super) u64);

impl Chance {
    pub(super) fn next(&mut self) -> bool {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) & 1 == 1
    }
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(files_below(&path)) } else { files.push(path) }
    }
    files
}
