//! The content of a disk after a power loss: all synced changes, and any part of the unsynced
//! changes.
//!
//! The model allows everything that POSIX allows, even if particular file systems guarantee more:
//!
//! - `fsync` and `fdatasync` of a file make all data durable that were written to the file before.
//!   They do not make the name of a new file durable: only an `fsync` of the folder does.
//! - An unsynced change may be on the disk or not, even if a later change is on the disk. A change
//!   is a write, a sector of 512 or 4,096 bytes within a write, or a change of the size of a file.
//! - A sector is written completely or not at all, and a write changes no bytes outside of its
//!   range. SQLite makes the same assumption ("powersafe overwrite").
//! - If a file has grown and its new data are lost, the new part contains zeros or arbitrary bytes,
//!   since some file systems make the size durable before the content.
//! - An unsynced change of a folder is on the disk or not. Changes of one name keep their order,
//!   and a rename is atomic, as on every journaling file system.
//!
//! The WAL index (`-shm`) is shared memory. Its content is arbitrary after a power loss.

use std::{
    collections::{BTreeMap, HashSet},
    path::PathBuf,
};

use tower_chat_testkit::Rng;

use super::{
    Plant,
    recording::{Change, Entry, Pending, Recording, Step},
};

/// The disk at a step of a recording. A step is a change of a file or a sync.
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

#[derive(Debug, Default)]
pub(super) struct DiskImage {
    pub(super) files: BTreeMap<PathBuf, Vec<u8>>,
    /// The number of unsynced writes and changes of folders.
    pub(super) unsynced: usize,
    /// The number of unsynced changes that are lost, completely or partly.
    pub(super) lost: usize,
    /// The number of writes of which only some sectors are on the disk.
    pub(super) torn: usize,
}

impl<'a> Disk<'a> {
    /// Creates an empty folder, with which a recording begins.
    pub(super) fn new(recording: &'a Recording, plant: Option<Plant>) -> Self {
        let files = vec![FileState::default(); recording.files];
        Self { recording, next: 0, files, names: BTreeMap::new(), entries: Vec::new(), plant }
    }

    /// Applies the steps before the step with this number.
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

    /// Returns one of the states that the disk may have after a power loss at this step.
    pub(super) fn cut(&self, rng: &mut Rng) -> DiskImage {
        let style = Style::of(rng);
        let mut image = DiskImage::default();
        let names = self.cut_names(&style, rng, &mut image);
        for (name, file) in names {
            if let Some(file) = self.files.get(file) {
                let content = file.cut(&style, rng, &mut image);
                image.files.insert(name.into(), content);
            }
        }
        image
    }

    fn cut_names(
        &self,
        style: &Style,
        rng: &mut Rng,
        image: &mut DiskImage,
    ) -> BTreeMap<String, usize> {
        let mut names = self.names.clone();
        let mut skipped: HashSet<&str> = HashSet::new();
        for entry in &self.entries {
            image.unsynced += 1;
            let touched = entry.what.names();
            let follows = touched.iter().any(|name| skipped.contains(*name));
            if follows || !style.keeps_entry(rng) {
                skipped.extend(touched);
                image.lost += 1;
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

/// Which unsynced changes are on the disk after a power loss.
#[derive(Debug, Clone)]
enum Style {
    /// No unsynced change is on the disk.
    AllLost,
    /// All unsynced changes are on the disk, as after a kill of the process without a power loss.
    AllDurable,
    /// A prefix of the changes of each file is on the disk. The first write after it is torn.
    Prefix { sector: u64 },
    /// Each change is on the disk with a probability of `chance` in eight. Some writes are torn.
    Random { chance: usize, sector: u64, garbage: bool },
}

impl Style {
    fn of(rng: &mut Rng) -> Self {
        let sector = if rng.one_in(2) { 512 } else { 4096 };
        match rng.below(10) {
            0 | 1 => Self::AllLost,
            2 => Self::AllDurable,
            3 | 4 => Self::Prefix { sector },
            _ => Self::Random { chance: 1 + rng.below(7), sector, garbage: rng.one_in(3) },
        }
    }

    fn keeps_entry(&self, rng: &mut Rng) -> bool {
        match self {
            Self::AllLost => false,
            Self::AllDurable => true,
            Self::Prefix { .. } => rng.one_in(2),
            Self::Random { chance, .. } => rng.below(8) < *chance,
        }
    }
}

impl FileState {
    /// Applies a completed sync: makes the changes durable that had ended before the line `began`,
    /// on which the sync began.
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

    fn cut(&self, style: &Style, rng: &mut Rng, image: &mut DiskImage) -> Vec<u8> {
        let mut content = self.durable.clone();
        image.unsynced += self.pending.len();
        let whole = match style {
            Style::Prefix { .. } => rng.below(self.pending.len() + 1),
            Style::AllLost => 0,
            Style::AllDurable | Style::Random { .. } => self.pending.len(),
        };
        for (index, change) in self.pending.iter().enumerate() {
            match style {
                Style::Prefix { sector } if index == whole => {
                    apply_torn(&mut content, &change.what, *sector, false, rng, image);
                }
                Style::Random { chance, sector, garbage } => {
                    match (rng.below(8) < *chance, rng.one_in(4)) {
                        (_, true) => {
                            apply_torn(&mut content, &change.what, *sector, *garbage, rng, image);
                        }
                        (true, false) => apply(&mut content, &change.what),
                        (false, false) => image.lost += 1,
                    }
                }
                Style::Prefix { .. } | Style::AllLost if index >= whole => image.lost += 1,
                Style::Prefix { .. } | Style::AllLost | Style::AllDurable => {
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

/// Applies random sectors of a write.
fn apply_torn(
    content: &mut Vec<u8>,
    change: &Change,
    sector: u64,
    garbage: bool,
    rng: &mut Rng,
    image: &mut DiskImage,
) {
    let Change::Write { at, data } = change else {
        if rng.one_in(2) {
            apply(content, change);
        } else {
            image.lost += 1;
        }
        return;
    };
    let end = at + data.len() as u64;
    let before = content.len() as u64;
    if end > before && rng.one_in(2) {
        // The new size is durable, even if the new content is lost.
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
    image.lost += usize::from(written < sectors);
    image.torn += usize::from(0 < written && written < sectors);
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

fn length(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}
