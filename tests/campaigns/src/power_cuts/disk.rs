//! What a disk holds when the power goes: what was synced, and any part of the rest.
//!
//! The model is as strict as POSIX allows, and not what one file system happens to do:
//!
//! - `fsync` and `fdatasync` of a file make everything durable that had been written to that file before
//!   they were called. They say nothing of its name: only an `fsync` of the folder does. (ext4 and XFS make
//!   the name of a new file durable too; POSIX does not promise it.)
//! - What was not synced may be on the disk or not, in any order: each write and each change of size of a
//!   file, and of a write each sector of 512 or 4,096 bytes. A sector is written whole or not at all, and
//!   no byte outside of a write changes, as SQLite assumes of a disk (its "powersafe overwrite").
//! - Where a file has grown and what was written there is lost, there are zeros, or anything: some file
//!   systems make the size durable before the content.
//! - A change of a folder that was not synced is there or not, independently of changes of other names.
//!   Changes of one name are in order, and a rename is whole or absent, as every journaling file system
//!   has it and as `rename` is used for everywhere.
//!
//! The index of a log (`-shm`) is memory that processes share: after a cut it is anything.

use std::{
    collections::{BTreeMap, HashSet},
    path::PathBuf,
};

use tower_chat_testkit::Rng;

use super::{
    Plant,
    recording::{Change, Entry, Pending, Recording, Step},
};

/// The disk at a step of a recording.
#[derive(Debug, Clone)]
pub(super) struct Disk<'a> {
    recording: &'a Recording,
    next: usize,
    files: Vec<FileState>,
    names: BTreeMap<String, usize>,
    entries: Vec<Pending<Entry>>,
    plant: Option<Plant>,
}

#[derive(Debug, Clone, Default)]
struct FileState {
    durable: Vec<u8>,
    pending: Vec<Pending<Change>>,
}

/// The files that a cut has left.
#[derive(Debug, Default)]
pub(super) struct Left {
    pub(super) files: BTreeMap<PathBuf, Vec<u8>>,
    /// Writes and changes of folders that had not been synced.
    pub(super) unsynced: usize,
    /// How many of them are wholly or partly lost.
    pub(super) lost: usize,
    /// How many writes are there in part.
    pub(super) torn: usize,
}

impl<'a> Disk<'a> {
    /// The empty folder with which a recording begins.
    pub(super) fn new(recording: &'a Recording, plant: Option<Plant>) -> Self {
        let files = vec![FileState::default(); recording.files];
        Self { recording, next: 0, files, names: BTreeMap::new(), entries: Vec::new(), plant }
    }

    /// Goes on to a step.
    pub(super) fn advance(&mut self, to: usize) {
        while self.next < to {
            let Some((_, step)) = self.recording.steps.get(self.next) else { return };
            self.next += 1;
            match step {
                Step::Changed { file, change } => {
                    if let Some(file) = self.files.get_mut(*file) {
                        file.pending.push(change.clone());
                    }
                }
                Step::Entered(entry) => self.entries.push(entry.clone()),
                Step::Synced { file, began } if self.plant != Some(Plant::NoSyncs) => {
                    if let Some(file) = self.files.get_mut(*file) {
                        file.sync(*began);
                    }
                }
                Step::FolderSynced { began } if self.plant.is_none_or(Plant::syncs_folders) => {
                    let (durable, pending) = std::mem::take(&mut self.entries)
                        .into_iter()
                        .partition(|entry| entry.end.is_some_and(|end| end < *began));
                    self.entries = pending;
                    let durable: Vec<Pending<Entry>> = durable;
                    durable.iter().for_each(|entry| apply_entry(&mut self.names, &entry.what));
                }
                Step::Synced { .. } | Step::FolderSynced { .. } => {}
            }
        }
    }

    /// One of the states in which the power may leave the disk now.
    pub(super) fn cut(&self, rng: &mut Rng) -> Left {
        let style = Style::of(rng);
        let mut left = Left::default();
        let names = self.cut_names(&style, rng, &mut left);
        for (name, file) in names {
            if let Some(file) = self.files.get(file) {
                let content = file.cut(&style, rng, &mut left);
                left.files.insert(name.into(), content);
            }
        }
        left
    }

    fn cut_names(&self, style: &Style, rng: &mut Rng, left: &mut Left) -> BTreeMap<String, usize> {
        let mut names = self.names.clone();
        let mut skipped: HashSet<&str> = HashSet::new();
        for entry in &self.entries {
            left.unsynced += 1;
            let touched = entry.what.names();
            let follows = touched.iter().any(|name| skipped.contains(*name));
            if follows || !style.has_entry(rng) {
                skipped.extend(touched);
                left.lost += 1;
            } else {
                apply_entry(&mut names, &entry.what);
            }
        }
        names
    }
}

impl Entry {
    fn names(&self) -> Vec<&str> {
        match self {
            Self::Add { name, .. } | Self::Remove { name } => vec![name],
            Self::Rename { from, to, .. } => vec![from, to],
        }
    }
}

fn apply_entry(names: &mut BTreeMap<String, usize>, entry: &Entry) {
    match entry {
        Entry::Add { name, file } => {
            names.insert(name.clone(), *file);
        }
        Entry::Rename { from, to, file } => {
            names.remove(from);
            names.insert(to.clone(), *file);
        }
        Entry::Remove { name } => {
            names.remove(name);
        }
    }
}

/// What becomes of what was not synced, at one cut.
#[derive(Debug, Clone)]
enum Style {
    /// All of it is lost.
    Lost,
    /// All of it is there, as where only the process dies.
    There,
    /// Of each file a beginning is there, and the last write in part.
    InOrder { sector: u64 },
    /// Each is there with this chance in eight; some are torn.
    Any { chance: usize, sector: u64, garbage: bool },
}

impl Style {
    fn of(rng: &mut Rng) -> Self {
        let sector = if rng.one_in(2) { 512 } else { 4096 };
        match rng.below(10) {
            0 | 1 => Self::Lost,
            2 => Self::There,
            3 | 4 => Self::InOrder { sector },
            _ => Self::Any { chance: 1 + rng.below(7), sector, garbage: rng.one_in(3) },
        }
    }

    fn has_entry(&self, rng: &mut Rng) -> bool {
        match self {
            Self::Lost => false,
            Self::There => true,
            Self::InOrder { .. } => rng.one_in(2),
            Self::Any { chance, .. } => rng.below(8) < *chance,
        }
    }
}

impl FileState {
    /// A sync that began at a line has returned.
    fn sync(&mut self, began: usize) {
        let (durable, pending) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|change| change.end.is_some_and(|end| end < began));
        self.pending = pending;
        let durable: Vec<Pending<Change>> = durable;
        for change in &durable {
            match &change.what {
                Change::Write { at, data } => write_at(&mut self.durable, *at, data),
                Change::Truncate { size } => self.durable.resize(length(*size), 0),
            }
        }
    }

    fn cut(&self, style: &Style, rng: &mut Rng, left: &mut Left) -> Vec<u8> {
        let mut content = self.durable.clone();
        left.unsynced += self.pending.len();
        let whole = match style {
            Style::InOrder { .. } => rng.below(self.pending.len() + 1),
            Style::Lost => 0,
            Style::There | Style::Any { .. } => self.pending.len(),
        };
        for (index, change) in self.pending.iter().enumerate() {
            match style {
                Style::InOrder { sector } if index == whole => {
                    apply_torn(&mut content, &change.what, *sector, false, rng, left);
                }
                Style::Any { chance, sector, garbage } => {
                    match (rng.below(8) < *chance, rng.one_in(4)) {
                        (_, true) => {
                            apply_torn(&mut content, &change.what, *sector, *garbage, rng, left);
                        }
                        (true, false) => apply(&mut content, &change.what),
                        (false, false) => left.lost += 1,
                    }
                }
                Style::InOrder { .. } | Style::Lost if index >= whole => left.lost += 1,
                Style::InOrder { .. } | Style::Lost | Style::There => {
                    apply(&mut content, &change.what);
                }
            }
        }
        content
    }
}

fn apply(content: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write { at, data } => write_at(content, *at, data),
        Change::Truncate { size } => content.resize(length(*size), 0),
    }
}

/// Writes some sectors of a write, and leaves out at least one if there are several.
fn apply_torn(
    content: &mut Vec<u8>,
    change: &Change,
    sector: u64,
    garbage: bool,
    rng: &mut Rng,
    left: &mut Left,
) {
    let Change::Write { at, data } = change else {
        // A size is one number.
        if rng.one_in(2) {
            apply(content, change);
        } else {
            left.lost += 1;
        }
        return;
    };
    let end = at + data.len() as u64;
    let before = content.len() as u64;
    if end > before && rng.one_in(2) {
        // The size is there, the content perhaps not.
        content.resize(length(end), 0);
        if garbage {
            content.iter_mut().skip(length(before)).for_each(|byte| *byte = rng.next() as u8);
        }
    }
    let (mut from, mut written, mut sectors) = (*at, 0, 0);
    while from < end {
        sectors += 1;
        let to = ((from / sector + 1) * sector).min(end);
        if rng.one_in(2) {
            let part = data.get(length(from - at)..length(to - at)).unwrap_or_default();
            write_at(content, from, part);
            written += 1;
        }
        from = to;
    }
    left.lost += usize::from(written < sectors);
    left.torn += usize::from(0 < written && written < sectors);
}

fn write_at(content: &mut Vec<u8>, at: u64, data: &[u8]) {
    let (from, to) = (length(at), length(at) + data.len());
    if content.len() < to {
        content.resize(to, 0);
    }
    if let Some(target) = content.get_mut(from..to) {
        target.copy_from_slice(data);
    }
}

/// All files here are far smaller than memory.
fn length(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}
