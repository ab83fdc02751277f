//! Counts the actions of a player.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use super::Divergence;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PlayCounters {
    /// The number of runs that were begun.
    pub(crate) runs: u64,
    /// The number of requests to the model client.
    pub(crate) service_calls: u64,
    /// The number of tool executions.
    pub(crate) tool_executions: u64,
    /// The number of differences.
    pub(crate) divergences: u64,
}

/// The counters, and the divergences that were not returned yet.
#[derive(Debug, Default)]
pub(super) struct Counters {
    runs: AtomicU64,
    service_calls: AtomicU64,
    tool_executions: AtomicU64,
    divergences: AtomicU64,
    found: Mutex<Vec<Divergence>>,
    /// A file with one byte for each service call and each tool execution. A resumed player begins
    /// with its counts.
    file: Option<Mutex<File>>,
}

const SERVICE_CALL: u8 = b's';
const TOOL_EXECUTION: u8 = b't';

impl Counters {
    pub(super) fn counters(&self) -> PlayCounters {
        PlayCounters {
            runs: self.runs.load(Ordering::Relaxed),
            service_calls: self.service_calls.load(Ordering::Relaxed),
            tool_executions: self.tool_executions.load(Ordering::Relaxed),
            divergences: self.divergences.load(Ordering::Relaxed),
        }
    }

    /// Creates counters that are also written to a file. If `is_continued` is set, they begin with
    /// the counts in the file. Otherwise, the file is emptied.
    pub(super) fn in_file(path: &Path, is_continued: bool) -> io::Result<Self> {
        let mut counters = Self::default();
        if is_continued {
            let counted = match fs::read(path) {
                Ok(counted) => counted,
                Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
                Err(error) => return Err(error),
            };
            let count = |kind| counted.iter().filter(|byte| **byte == kind).count() as u64;
            counters.service_calls = count(SERVICE_CALL).into();
            counters.tool_executions = count(TOOL_EXECUTION).into();
        } else {
            drop(File::create(path)?);
        }
        counters.file = Some(Mutex::new(File::options().append(true).create(true).open(path)?));
        Ok(counters)
    }

    fn note(&self, kind: u8) {
        let Some(file) = &self.file else { return };
        let written = file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&[kind]);
        if let Err(error) = written {
            tracing::warn!(error = &error as &dyn std::error::Error, "a count was not written");
        }
    }

    pub(super) fn count_run(&self) {
        self.runs.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_service_call(&self) {
        self.note(SERVICE_CALL);
        self.service_calls.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_tool_execution(&self) {
        self.note(TOOL_EXECUTION);
        self.tool_executions.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn diverged(&self, divergence: Divergence) {
        self.divergences.fetch_add(1, Ordering::Relaxed);
        self.found.lock().unwrap_or_else(PoisonError::into_inner).push(divergence);
    }

    pub(super) fn take_divergences(&self) -> Vec<Divergence> {
        std::mem::take(&mut self.found.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
