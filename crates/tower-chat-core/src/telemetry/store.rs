//! Telemetry of a store: its queue, its transactions and its server. A submission is the writes of
//! one call of `append`, or another change, in the queue of a store.

use std::time::{Duration, Instant};

use tracing::{Level, Span};

use super::{
    GaugeGuard, is_recorded,
    metric::{
        COMMIT_BYTES, COMMIT_DURATION, COMMIT_WRITES, CONFLICTS, CONNECTIONS, QUEUE_BYTES,
        QUEUE_DURATION, QUEUE_LENGTH, QUEUE_WRITES, READ_BYTES, RETRIES, label,
    },
};
use crate::{
    ConversationKey,
    store::{Conflict, StoreError},
};

macro_rules! event {
    ($($event:tt)*) => { tracing::debug!(target: "tower_chat::store", $($event)*) };
}

/// Records events of a store, each as a metric and a tracing event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreTelemetry {
    system: &'static str,
}

/// A transaction that made writes durable.
#[derive(Debug, Clone, Copy)]
pub struct Commit {
    /// The number of writes.
    pub writes: usize,
    /// The size of the messages and tool results of these writes in stored form, in bytes.
    pub bytes: usize,
    /// The time from the beginning of the transaction until it is durable.
    pub duration: Duration,
}

/// A submission in a store's queue. The gauges include the submission until this value is dropped.
#[derive(Debug, Default)]
pub struct Queued(Option<Box<Entry>>);

#[derive(Debug)]
struct Entry {
    system: &'static str,
    since: Instant,
    begun: Option<Instant>,
    /// The span of the submission, in which the events are emitted.
    span: Span,
    _gauges: [Option<GaugeGuard>; 3],
}

impl StoreTelemetry {
    /// Creates the telemetry of this kind of store: `sqlite`, `postgresql`, `redis`, `memory` or
    /// another name.
    pub const fn new(system: &'static str) -> Self {
        Self { system }
    }

    /// Returns whether events are recorded.
    pub fn is_listening(self) -> bool {
        is_recorded() || tracing::enabled!(target: "tower_chat::store", Level::DEBUG)
    }

    /// Records that a submission enters the queue, with the size of its writes in bytes, if the
    /// size is already known.
    pub fn queued(self, writes: usize, bytes: Option<usize>) -> Queued {
        if !self.is_listening() {
            return Queued(None);
        }
        let labels = &[(label::SYSTEM, Some(self.system))];
        Queued(Some(Box::new(Entry {
            system: self.system,
            since: Instant::now(),
            begun: None,
            span: Span::current(),
            _gauges: [
                QUEUE_LENGTH.hold(1, labels),
                QUEUE_WRITES.hold(writes as u64, labels),
                bytes.and_then(|bytes| QUEUE_BYTES.hold(bytes as u64, labels)),
            ],
        })))
    }

    /// Records that writes are durable.
    pub fn committed(self, commit: Commit) {
        let labels = &[(label::SYSTEM, Some(self.system))];
        COMMIT_DURATION.record(commit.duration.as_secs_f64(), labels);
        COMMIT_WRITES.record_count(commit.writes as u64, labels);
        COMMIT_BYTES.record_count(commit.bytes as u64, labels);
        let Commit { writes, bytes, duration } = commit;
        event!(system = self.system, writes, bytes, ?duration, "writes were committed");
    }

    /// Records that a conversation was loaded.
    pub fn loaded(self, key: &ConversationKey, messages: usize, bytes: usize) {
        READ_BYTES.record_count(bytes as u64, &[(label::SYSTEM, Some(self.system))]);
        event!(system = self.system, conversation = %key, messages, bytes, "messages were read");
    }

    /// Records that a write was refused because its conversation has changed. Other errors are not
    /// recorded.
    pub fn refused(self, error: &StoreError) {
        if let StoreError::Conflict(conflict) = error {
            self.conflict(conflict);
        }
    }

    fn conflict(self, conflict: &Conflict) {
        CONFLICTS.add(1, &[(label::SYSTEM, Some(self.system))]);
        let (expected, found) = (conflict.expected.sequence, conflict.found.sequence);
        event!(system = self.system, conversation = %conflict.key, expected, found, "a write conflicts");
    }

    /// Records that a failed request to the server is repeated after a pause.
    pub fn retried(self, attempt: u32, pause: Duration) {
        RETRIES.add(1, &[(label::SYSTEM, Some(self.system))]);
        event!(system = self.system, attempt, ?pause, "a request is sent again");
    }

    /// Records that a connection was opened. Dropping the guard records that the connection was
    /// closed.
    pub fn connected(self) -> Option<GaugeGuard> {
        event!(system = self.system, "a connection was opened");
        CONNECTIONS.hold(1, &[(label::SYSTEM, Some(self.system))])
    }
}

impl Queued {
    /// Records that the execution of the submission begins. If the execution begins several times,
    /// the last beginning is recorded.
    pub fn begin(&mut self) {
        if let Some(entry) = &mut self.0 {
            entry.begun = Some(Instant::now());
        }
    }

    /// Records that the submission has an outcome. Call this function before the outcome is sent to
    /// the caller.
    pub fn end(self) {
        let Some(entry) = self.0 else { return };
        let begun = entry.begun.unwrap_or_else(Instant::now);
        let waited = begun.saturating_duration_since(entry.since);
        let system = entry.system;
        QUEUE_DURATION.record(waited.as_secs_f64(), &[(label::SYSTEM, Some(system))]);
        let worked = begun.elapsed();
        event!(parent: &entry.span, system, ?waited, ?worked, "a submission has its outcome");
    }
}
