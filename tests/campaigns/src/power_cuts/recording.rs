//! The changes and syncs of a workload, in the order of the trace (the output of strace).

use std::{collections::HashMap, path::Path};

use super::trace::{Call, Traced};

#[derive(Debug, Clone)]
pub(super) enum Change {
    Write { at: u64, data: Vec<u8> },
    Truncate { size: u64 },
}

#[derive(Debug, Clone)]
pub(super) enum Entry {
    Add { name: String, file: usize },
    Rename { from: String, to: String, file: usize },
    Remove { name: String },
}

#[derive(Debug, Clone)]
pub(super) struct Pending<T> {
    pub(super) what: T,
    /// The line on which the system call returned, if it returned. A sync that begins later makes
    /// the change durable.
    pub(super) end: Option<usize>,
}

/// A change or a sync.
#[derive(Debug)]
pub(super) enum Step {
    Changed {
        file: usize,
        change: Pending<Change>,
    },
    Entered(Pending<Entry>),
    /// A sync that began on the line `began` has returned.
    Synced {
        file: usize,
        began: usize,
    },
    FolderSynced {
        began: usize,
    },
}

#[derive(Debug, Default)]
pub(super) struct Recording {
    /// The steps, each with its line of the trace.
    pub(super) steps: Vec<(usize, Step)>,
    /// The notes, each with the line of the trace on which its write began.
    pub(super) notes: Vec<(usize, String)>,
    pub(super) files: usize,
}

#[derive(Debug, thiserror::Error)]
#[error("line {line} of the trace: {what}")]
pub(super) struct RecordingError {
    line: usize,
    what: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Folder,
    File(usize),
    /// The WAL index (`-shm`). It is shared memory and not part of the disk model.
    Index,
    Notes,
}

/// Tracks the files of descriptors and names while a trace is read.
struct Follower<'a> {
    folder: &'a Path,
    notes: &'a Path,
    descriptors: HashMap<i64, (Target, u64)>,
    names: HashMap<String, usize>,
    recording: Recording,
}

impl Recording {
    /// Builds the recording from the system calls that changed a folder and the notes file.
    pub(super) fn of(
        traced: Vec<Traced>,
        folder: &Path,
        notes: &Path,
    ) -> Result<Self, RecordingError> {
        let mut follower = Follower {
            folder,
            notes,
            descriptors: HashMap::new(),
            names: HashMap::new(),
            recording: Self::default(),
        };
        for traced in traced {
            let line = traced.begin;
            follower.follow(traced).map_err(|what| RecordingError { line, what })?;
        }
        let mut recording = follower.recording;
        recording.steps.sort_by_key(|(line, _)| *line);
        Ok(recording)
    }

    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }

    /// Returns the line of the trace before which a cut at this step happens.
    pub(super) fn line(&self, step: usize) -> usize {
        self.steps.get(step).map_or(usize::MAX, |(line, _)| *line)
    }

    /// Returns the first step after a line.
    pub(super) fn step_after(&self, line: usize) -> usize {
        self.steps.partition_point(|(at, _)| *at <= line)
    }
}

impl Follower<'_> {
    fn name(&self, path: &Path) -> Option<String> {
        let parent = path.parent()?;
        (parent == self.folder).then(|| path.file_name()?.to_str().map(str::to_owned))?
    }

    fn target(&self, file: i64) -> Option<Target> {
        self.descriptors.get(&file).map(|(target, _)| *target)
    }

    fn push(&mut self, line: usize, step: Step) {
        self.recording.steps.push((line, step));
    }

    fn change(&mut self, line: usize, end: Option<usize>, file: usize, what: Change) {
        self.push(line, Step::Changed { file, change: Pending { what, end } });
    }

    fn enter(&mut self, line: usize, end: Option<usize>, what: Entry) {
        self.push(line, Step::Entered(Pending { what, end }));
    }

    fn follow(&mut self, traced: Traced) -> Result<(), String> {
        let Traced { begin, end, call } = traced;
        match call {
            Call::Open { path, creates, truncates, file } => {
                self.open(begin, end, &path, (creates, truncates), file);
            }
            Call::Seek { file, to } => {
                if let Some((_, position)) = self.descriptors.get_mut(&file) {
                    *position = to;
                }
            }
            Call::Write { file, at, data } => self.write(begin, end, file, at, data)?,
            Call::Truncate { file, size } => {
                if let Some(Target::File(file)) = self.target(file) {
                    self.change(begin, end, file, Change::Truncate { size });
                }
            }
            Call::Sync { file } => {
                let Some(end) = end else { return Ok(()) };
                match self.target(file) {
                    Some(Target::File(file)) => self.push(end, Step::Synced { file, began: begin }),
                    Some(Target::Folder) => self.push(end, Step::FolderSynced { began: begin }),
                    Some(Target::Index | Target::Notes) | None => {}
                }
            }
            Call::Close { file } => {
                self.descriptors.remove(&file);
            }
            Call::Link { from, to } => {
                let (Some(from), Some(to)) = (self.name(&from), self.name(&to)) else {
                    return Ok(());
                };
                let file = *self.names.get(&from).ok_or("a link to an unknown file")?;
                self.names.insert(to.clone(), file);
                self.enter(begin, end, Entry::Add { name: to, file });
            }
            Call::Rename { from, to } => {
                let (Some(from), Some(to)) = (self.name(&from), self.name(&to)) else {
                    return Ok(());
                };
                let file = self.names.remove(&from).ok_or("a rename of an unknown file")?;
                self.names.insert(to.clone(), file);
                self.enter(begin, end, Entry::Rename { from, to, file });
            }
            Call::Unlink { path } => {
                if let Some(name) = self.name(&path)
                    && self.names.remove(&name).is_some()
                {
                    self.enter(begin, end, Entry::Remove { name });
                }
            }
            Call::MapShared { file } => match self.target(file) {
                Some(Target::File(_)) => return Err("a file is mapped as shared memory".to_owned()),
                Some(Target::Index | Target::Folder | Target::Notes) | None => {}
            },
            Call::Other { name, file } => {
                if file.is_some_and(|file| self.target(file).is_some()) {
                    return Err(format!("the effect of {name} on the disk is not modelled"));
                }
            }
        }
        Ok(())
    }

    fn open(
        &mut self,
        begin: usize,
        end: Option<usize>,
        path: &Path,
        (creates, truncates): (bool, bool),
        descriptor: i64,
    ) {
        let target = if path == self.folder {
            Target::Folder
        } else if path == self.notes {
            Target::Notes
        } else if let Some(name) = self.name(path) {
            if name.ends_with("-shm") {
                Target::Index
            } else if let Some(file) = self.names.get(&name).copied() {
                if truncates {
                    self.change(begin, end, file, Change::Truncate { size: 0 });
                }
                Target::File(file)
            } else if creates {
                let file = self.recording.files;
                self.recording.files += 1;
                self.names.insert(name.clone(), file);
                self.enter(begin, end, Entry::Add { name, file });
                Target::File(file)
            } else {
                return;
            }
        } else {
            self.descriptors.remove(&descriptor);
            return;
        };
        self.descriptors.insert(descriptor, (target, 0));
    }

    fn write(
        &mut self,
        begin: usize,
        end: Option<usize>,
        descriptor: i64,
        at: Option<u64>,
        data: Vec<u8>,
    ) -> Result<(), String> {
        let Some((target, position)) = self.descriptors.get_mut(&descriptor) else { return Ok(()) };
        let target = *target;
        let from = at.unwrap_or(*position);
        if at.is_none() {
            *position += data.len() as u64;
        }
        match target {
            Target::File(file) => {
                self.change(begin, end, file, Change::Write { at: from, data });
            }
            Target::Notes => {
                let text = String::from_utf8(data).map_err(|_| "a note is not UTF-8")?;
                self.recording.notes.push((begin, text));
            }
            Target::Index => {}
            Target::Folder => return Err("a write to a folder".to_owned()),
        }
        Ok(())
    }
}
