//! Measurements of the processes and the files, and their table.

use std::{fs, path::Path, time::Duration};

use super::{growth::Bound, metrics::Durations, store::Location};
use crate::Figures;

/// The number of parts into which the table divides the time.
const PARTS: usize = 10;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ProcessSample {
    /// Resident memory in bytes.
    pub(super) memory: u64,
    /// The number of open files.
    pub(super) files: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    part: usize,
    processes: [ProcessSample; 2],
    log: u64,
    file: u64,
}

#[derive(Debug, Clone, Default)]
struct Part {
    appends: Durations,
    queue: u64,
    runs: u64,
    conflicts: u64,
    outbox: u64,
}

#[derive(Debug, Default)]
pub(super) struct Samples {
    samples: Vec<Sample>,
    parts: [Part; PARTS],
}

impl ProcessSample {
    /// Measures a process. Returns `None` if it has ended, or the system has no `/proc`.
    pub(super) fn now(id: u32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
        let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kibibytes: u64 = memory.split_whitespace().next()?.parse().ok()?;
        let files = fs::read_dir(format!("/proc/{id}/fd")).ok()?.count() as u64;
        Some(Self { memory: kibibytes << 10, files })
    }
}

impl Samples {
    pub(super) fn add(
        &mut self,
        (elapsed, whole): (Duration, Duration),
        processes: [ProcessSample; 2],
        location: &Location,
    ) {
        let (file, log) = match location.files() {
            Some((file, log)) => (length(&file), length(&log)),
            None => (0, 0),
        };
        let part = part(elapsed, whole);
        self.samples.push(Sample { part, processes, log, file });
    }

    pub(super) fn add_measures(
        &mut self,
        (elapsed, whole): (Duration, Duration),
        measures: &super::metrics::Measures,
    ) {
        if let Some(part) = self.parts.get_mut(part(elapsed, whole)) {
            part.appends.merge(&measures.appends);
            part.queue = part.queue.max(measures.queue);
            part.outbox = part.outbox.max(measures.outbox);
            part.conflicts += measures.conflicts;
        }
    }

    pub(super) fn add_run(&mut self, (elapsed, whole): (Duration, Duration)) {
        if let Some(part) = self.parts.get_mut(part(elapsed, whole)) {
            part.runs += 1;
        }
    }

    /// Describes a growth that exceeds its bound. The second process is not checked, because it is
    /// killed repeatedly.
    pub(super) fn growth(&self) -> Option<String> {
        let series = |value: &dyn Fn(&Sample) -> u64| -> Vec<u64> {
            // In the first part of the time, files are opened for the first time and allocators
            // grow.
            self.samples.iter().filter(|sample| sample.part > 0).map(value).collect()
        };
        [
            Bound::memory().exceeded_by(&series(&|sample| sample.processes[0].memory)),
            Bound::files().exceeded_by(&series(&|sample| sample.processes[0].files)),
            Bound::log().exceeded_by(&series(&|sample| sample.log)),
        ]
        .into_iter()
        .flatten()
        .next()
    }

    pub(super) fn print(&self, figures: &mut Figures) {
        figures.add(
            "part",
            "     runs    MiB first, killed  files open  log KiB  file KiB  queue  appends  p50, p99, max ms  conflicts  outbox",
        );
        for (number, part) in self.parts.iter().enumerate() {
            let of_part: Vec<&Sample> =
                self.samples.iter().filter(|sample| sample.part == number).collect();
            let max = |value: &dyn Fn(&Sample) -> u64| {
                of_part.iter().map(|sample| value(sample)).max().unwrap_or_default()
            };
            let memory = [0, 1].map(|child| max(&|it| memory_of(it, child)) >> 20);
            let files = [0, 1].map(|child| max(&|it| files_of(it, child)));
            let percentile = |of| part.appends.percentile(of);
            figures.add(
                format!("{}", number + 1),
                format!(
                    "{:9}  {:11} {:7}  {:5} {:4}  {:7}  {:8}  {:5}  {:7}  {:4.1} {:5.1} {:6.1}  {:9}  {:6}",
                    part.runs,
                    memory[0],
                    memory[1],
                    files[0],
                    files[1],
                    max(&|sample| sample.log) >> 10,
                    max(&|sample| sample.file) >> 10,
                    part.queue,
                    part.appends.len(),
                    percentile(0.5),
                    percentile(0.99),
                    percentile(1.0),
                    part.conflicts,
                    part.outbox,
                ),
            );
        }
    }
}

fn memory_of(sample: &Sample, child: usize) -> u64 {
    sample.processes.get(child).map_or(0, |process| process.memory)
}

fn files_of(sample: &Sample, child: usize) -> u64 {
    sample.processes.get(child).map_or(0, |process| process.files)
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

fn part(elapsed: Duration, whole: Duration) -> usize {
    let tenths = elapsed.as_millis() * PARTS as u128 / whole.as_millis().max(1);
    usize::try_from(tenths).unwrap_or(PARTS).min(PARTS - 1)
}
