//! The hub of a run in progress, through which the task of the run sends updates to the readers in
//! the same process.
//!
//! An *attempt* is one execution of a run. If the run has failed or its process died, the request
//! can be sent again. The next attempt then begins. *The log* is the update log, from which readers
//! in other processes receive the updates.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::watch, time::Instant};
use tower_chat_layers::{BoxError, Messages, RunHandle, SharedError};

use super::update::LoggedUpdate;
use crate::{RunEnd, StoredUpdate, UpdatePosition};

/// The maximum size, in bytes, of stored updates that a hub retains for readers.
const KEPT_BYTES: usize = 64 * 1024;
/// The maximum number of updates that a reader copies from the hub at a time.
const MAX_COPIED: usize = 64;

/// The state and the latest updates of a run in progress.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) handle: RunHandle,
    /// The messages of the request. Empty if the request only continues a run.
    input: Messages,
    /// Whether readers receive each update only after it is stored in the log.
    is_durable_first: bool,
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    phase: Phase,
    /// The number of the attempt; 0 before the attempt has begun in the log.
    attempt: u32,
    /// The most recent updates of the attempt. The log contains all earlier ones.
    window: VecDeque<Entry>,
    /// The index, in the attempt, of the first update in the window.
    first: u32,
    /// The number of updates of the attempt that are stored in the log.
    stored: u32,
    /// The number of updates of the attempt that readers may receive.
    visible: u32,
    /// The indices of updates that are not stored yet, and that readers may receive only after they
    /// are stored. Later updates wait too, because readers receive updates in order.
    gates: VecDeque<u32>,
    /// The size, in bytes, of the stored updates in the window.
    stored_bytes: usize,
    unstored_bytes: usize,
    /// The size of all updates of the attempt, in bytes.
    total_bytes: u64,
    /// Whether the log no longer accepts updates of the run.
    is_unlogged: bool,
    /// The number of readers in this process.
    readers: usize,
    /// The time at which the last reader was dropped; `None` while the run has a reader.
    unread_since: Option<Instant>,
}

#[derive(Debug)]
struct Entry {
    update: LoggedUpdate,
    stored: StoredUpdate,
}

#[derive(Debug, Clone, Default)]
pub(crate) enum Phase {
    /// The attempt has not begun in the log yet.
    #[default]
    Beginning,
    /// The attempt has begun, and the service has not responded yet.
    Calling,
    /// The service has responded.
    Responding,
    /// The run has ended, and readers may receive all its updates.
    Ended { end: RunEnd, error: Option<SharedError> },
    /// Another process executes or has executed the run. No other phase follows.
    Elsewhere { attempt: u32 },
}

/// The next updates for a reader, or the next action of the reader.
#[derive(Debug)]
pub(crate) enum Available {
    Updates(Vec<(UpdatePosition, LoggedUpdate)>),
    /// The reader has received all updates that are visible now.
    Nothing,
    /// The reader must read the updates before `first` from the log.
    Behind {
        first: UpdatePosition,
    },
    /// The run has ended, and the reader has received all updates.
    Ended {
        end: RunEnd,
        error: Option<SharedError>,
    },
    /// Another process executes or has executed the run. The reader must read the log.
    InLog,
}

/// The updates of one append to the log.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) first: UpdatePosition,
    pub(crate) updates: Vec<StoredUpdate>,
}

impl Hub {
    pub(crate) fn new(handle: RunHandle, input: Messages, is_durable_first: bool) -> Self {
        Self {
            handle,
            input,
            is_durable_first,
            state: Mutex::default(),
            changed: watch::Sender::new(()),
        }
    }

    /// Returns whether a request with these messages may repeat the request of this run.
    pub(crate) fn can_have_input(&self, input: &Messages) -> bool {
        input.is_empty() || self.input.is_empty() || self.input == *input
    }

    pub(crate) fn phase(&self) -> (Phase, u32) {
        let state = self.state();
        (state.phase.clone(), state.attempt)
    }

    /// Sets the phase, and wakes all readers. Has no effect after [`Phase::Elsewhere`].
    pub(crate) fn enter(&self, phase: Phase) {
        let mut state = self.state();
        if let Phase::Elsewhere { .. } = state.phase {
            return;
        }
        if let Phase::Ended { .. } = phase {
            state.visible = state.next();
        }
        state.phase = phase;
        drop(state);
        self.changed.send_replace(());
    }

    pub(crate) fn begin(&self, attempt: u32) {
        self.state().attempt = attempt;
        self.enter(Phase::Calling);
    }

    /// Adds an update of the run. Returns the size of all updates of the attempt in bytes.
    pub(crate) fn push(&self, update: LoggedUpdate) -> Result<u64, BoxError> {
        let stored = update.encode()?;
        let mut state = self.state();
        let next = state.next();
        if update.is_durable_first() {
            state.gates.push_back(next);
        }
        let size = stored.data().len();
        state.unstored_bytes += size;
        state.total_bytes += size as u64;
        state.window.push_back(Entry { update, stored });
        let total_bytes = state.total_bytes;
        self.update_visible(state);
        Ok(total_bytes)
    }

    /// Returns the updates that are not stored yet, or none if the log refuses updates of this run.
    pub(crate) fn batch(&self) -> Batch {
        let state = self.state();
        let first = UpdatePosition::new(state.attempt, state.stored);
        let skipped = match state.is_unlogged {
            true => state.window.len(),
            false => (state.stored - state.first) as usize,
        };
        let unstored = state.window.iter().skip(skipped);
        Batch { first, updates: unstored.map(|entry| entry.stored.clone()).collect() }
    }

    /// Returns whether updates must be appended before the batch interval has passed.
    pub(crate) fn is_append_due(&self, max_bytes: usize) -> bool {
        let state = self.state();
        !state.is_unlogged && (!state.gates.is_empty() || state.unstored_bytes >= max_bytes)
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        self.state().total_bytes
    }

    /// Records that the next `count` updates were stored. If the stored updates in the window then
    /// exceed [`KEPT_BYTES`], drops the oldest ones from the window.
    pub(crate) fn appended(&self, count: usize) {
        let mut state = self.state();
        let from = (state.stored - state.first) as usize;
        let size: usize =
            state.window.iter().skip(from).take(count).map(|entry| entry.stored.data().len()).sum();
        state.unstored_bytes -= size;
        state.stored_bytes += size;
        state.stored += u32::try_from(count).unwrap_or(u32::MAX);
        let stored = state.stored;
        state.gates.retain(|gate| *gate >= stored);
        while state.stored_bytes > KEPT_BYTES && state.first < state.stored {
            let Some(dropped) = state.window.pop_front() else { break };
            state.stored_bytes -= dropped.stored.data().len();
            state.first += 1;
        }
        self.update_visible(state);
    }

    /// Records that an append has failed. Readers may now receive the updates that were not stored,
    /// unless `is_durable_first` is set.
    pub(crate) fn append_failed(&self) {
        let mut state = self.state();
        if !self.is_durable_first {
            state.gates.clear();
        }
        self.update_visible(state);
    }

    /// Records that the log does not accept further updates of this run. Readers in this process
    /// still receive all updates.
    pub(crate) fn log_lost(&self) {
        let mut state = self.state();
        state.is_unlogged = true;
        self.update_visible(state);
    }

    /// Returns the updates for a reader that has received all updates up to `after`.
    pub(crate) fn available(&self, after: UpdatePosition) -> Available {
        let state = self.state();
        match &state.phase {
            Phase::Beginning => return Available::Nothing,
            Phase::Elsewhere { .. } => return Available::InLog,
            Phase::Calling | Phase::Responding | Phase::Ended { .. } => {}
        }
        if state.attempt == 0 {
            return state.after_last_visible();
        }
        let first = UpdatePosition::new(state.attempt, state.first);
        if after < first.previous() {
            return Available::Behind { first };
        }
        let from = if after < first { state.first } else { after.index.saturating_add(1) };
        if after.attempt > state.attempt || from >= state.visible {
            return state.after_last_visible();
        }
        let count = ((state.visible - from) as usize).min(MAX_COPIED);
        let entries = state.window.iter().skip((from - state.first) as usize).take(count);
        let positioned = (from..).zip(entries);
        Available::Updates(
            positioned
                .map(|(index, entry)| {
                    (UpdatePosition::new(state.attempt, index), entry.update.clone())
                })
                .collect(),
        )
    }

    /// Registers a reader.
    pub(crate) fn reader(self: &Arc<Self>) -> HubReader {
        let mut state = self.state();
        state.readers += 1;
        state.unread_since = None;
        drop(state);
        HubReader { changed: self.changed.subscribe(), hub: self.clone() }
    }

    /// Returns the time since which the run has had no reader in this process; `None` if the run
    /// has a reader.
    pub(crate) fn unread_since(&self) -> Option<Instant> {
        self.state().unread_since
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Computes the number of visible updates, and wakes the readers if it has increased.
    fn update_visible(&self, mut state: MutexGuard<'_, State>) {
        let next = state.next();
        let visible = if state.is_unlogged {
            next
        } else if self.is_durable_first {
            state.stored
        } else {
            state.gates.front().copied().unwrap_or(next)
        };
        let shows_more = visible > state.visible;
        state.visible = state.visible.max(visible);
        drop(state);
        if shows_more {
            self.changed.send_replace(());
        }
    }
}

impl State {
    /// Returns the index of the next update.
    fn next(&self) -> u32 {
        self.first + u32::try_from(self.window.len()).unwrap_or(u32::MAX)
    }

    /// Returns the answer for a reader that has already received all visible updates.
    fn after_last_visible(&self) -> Available {
        match &self.phase {
            Phase::Ended { end, error } => {
                Available::Ended { end: end.clone(), error: error.clone() }
            }
            Phase::Beginning | Phase::Calling | Phase::Responding | Phase::Elsewhere { .. } => {
                Available::Nothing
            }
        }
    }
}

/// The registration of a reader at a hub.
#[derive(Debug)]
pub(crate) struct HubReader {
    pub(crate) hub: Arc<Hub>,
    changed: watch::Receiver<()>,
}

impl HubReader {
    /// Waits until the hub has changed since the last call.
    pub(crate) async fn changed(&mut self) {
        // The wait cannot fail, because the hub owns the sender.
        let _ = self.changed.changed().await;
    }

    /// Waits until the service has responded, or until the run has ended or is executed elsewhere.
    pub(crate) async fn responded(&mut self) -> (Phase, u32) {
        loop {
            self.changed.mark_unchanged();
            let (phase, attempt) = self.hub.phase();
            match phase {
                Phase::Beginning | Phase::Calling => self.changed().await,
                Phase::Responding | Phase::Ended { .. } | Phase::Elsewhere { .. } => {
                    return (phase, attempt);
                }
            }
        }
    }
}

impl Drop for HubReader {
    fn drop(&mut self) {
        let mut state = self.hub.state();
        state.readers -= 1;
        if state.readers == 0 {
            state.unread_since = Some(Instant::now());
        }
    }
}
