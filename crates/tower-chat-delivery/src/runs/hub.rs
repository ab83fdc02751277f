//! The updates of a run in progress, between its task and its readers in the same process.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;
use tower_chat_layers::{BoxError, Messages, RunHandle, SharedError};

use super::update::LoggedUpdate;
use crate::{RunEnd, StoredUpdate, UpdatePosition};

/// The number of bytes of stored updates that a hub keeps for readers that are slightly behind.
const KEPT_BYTES: usize = 64 * 1024;
/// The largest number of updates that a reader copies at once.
const MAX_COPIED: usize = 64;

/// The updates of a run in progress.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) handle: RunHandle,
    /// The messages of the request; none if the request continues a run.
    input: Messages,
    is_durable_first: bool,
    state: Mutex<State>,
    changed: watch::Sender<()>,
    readers: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct State {
    phase: Phase,
    attempt: u32,
    /// The latest updates. All updates before them are stored.
    window: VecDeque<Entry>,
    /// The index of the first update in the window.
    first: u32,
    /// The number of updates that are stored.
    stored: u32,
    /// The number of updates that readers may receive.
    visible: u32,
    /// The indices of the updates that readers receive after they are stored, and that are not
    /// stored yet.
    gates: VecDeque<u32>,
    /// The sizes of the stored and of the other updates in the window.
    stored_bytes: usize,
    unstored_bytes: usize,
    /// The size of all updates.
    total_bytes: u64,
    /// Whether the log no longer accepts updates of the run.
    is_unlogged: bool,
}

#[derive(Debug)]
struct Entry {
    update: LoggedUpdate,
    stored: StoredUpdate,
}

#[derive(Debug, Clone, Default)]
pub(crate) enum Phase {
    /// The attempt has not begun in the log.
    #[default]
    Beginning,
    /// The attempt has begun, and the service has not responded.
    Calling,
    /// The service has responded.
    Responding,
    /// The run has ended. All its updates are visible.
    Ended { end: RunEnd, error: Option<SharedError> },
    /// Another process executes this attempt at the run.
    Elsewhere { attempt: u32 },
}

/// What a hub has for a reader.
#[derive(Debug)]
pub(crate) enum Available {
    Updates(Vec<(UpdatePosition, LoggedUpdate)>),
    /// The reader has everything so far.
    Nothing,
    /// The log contains the updates before this position.
    Behind {
        first: UpdatePosition,
    },
    /// The reader has everything, and the run has ended.
    Ended {
        end: RunEnd,
        error: Option<SharedError>,
    },
    /// The log has the updates.
    InLog,
}

/// The updates of an append.
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
            readers: watch::Sender::new(0),
        }
    }

    /// Returns whether a request with these messages may be a request for this run.
    pub(crate) fn can_have_input(&self, input: &Messages) -> bool {
        input.is_empty() || self.input.is_empty() || self.input == *input
    }

    pub(crate) fn phase(&self) -> (Phase, u32) {
        let state = self.state();
        (state.phase.clone(), state.attempt)
    }

    /// Enters a phase, and wakes all readers.
    pub(crate) fn enter(&self, phase: Phase) {
        let mut state = self.state();
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

    /// Adds an update of the run.
    pub(crate) fn push(&self, update: LoggedUpdate) -> Result<(), BoxError> {
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
        self.show(state);
        Ok(())
    }

    /// Returns the updates that are not stored yet, if there are some.
    pub(crate) fn batch(&self) -> Option<Batch> {
        let state = self.state();
        if state.is_unlogged {
            return None;
        }
        let skipped = (state.stored - state.first) as usize;
        let unstored = state.window.iter().skip(skipped);
        let updates: Vec<StoredUpdate> = unstored.map(|entry| entry.stored.clone()).collect();
        let first = UpdatePosition::new(state.attempt, state.stored);
        (!updates.is_empty()).then_some(Batch { first, updates })
    }

    /// Returns whether the next append should not be delayed.
    pub(crate) fn is_append_due(&self, max_bytes: usize) -> bool {
        let state = self.state();
        !state.is_unlogged && (!state.gates.is_empty() || state.unstored_bytes >= max_bytes)
    }

    pub(crate) fn has_unstored(&self) -> bool {
        let state = self.state();
        !state.is_unlogged && state.stored < state.next()
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        self.state().total_bytes
    }

    /// Notes that updates were stored, and drops the oldest of them.
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
        self.show(state);
    }

    /// Lets readers receive the updates that an append has failed to store, unless delivery is
    /// durable.
    pub(crate) fn append_failed(&self) {
        let mut state = self.state();
        if !self.is_durable_first {
            state.gates.clear();
        }
        self.show(state);
    }

    /// Notes that the log accepts no more updates of this run. Readers in this process still
    /// receive them.
    pub(crate) fn log_lost(&self) {
        let mut state = self.state();
        state.is_unlogged = true;
        self.show(state);
    }

    pub(crate) fn is_logged(&self) -> bool {
        !self.state().is_unlogged
    }

    /// Returns what follows a position.
    pub(crate) fn available(&self, after: UpdatePosition) -> Available {
        let state = self.state();
        match &state.phase {
            Phase::Beginning => return Available::Nothing,
            Phase::Elsewhere { .. } => return Available::InLog,
            Phase::Calling | Phase::Responding | Phase::Ended { .. } => {}
        }
        if state.attempt == 0 {
            return state.nothing();
        }
        let first = UpdatePosition::new(state.attempt, state.first);
        if after < first.previous() {
            return Available::Behind { first };
        }
        let from = if after < first { state.first } else { after.index.saturating_add(1) };
        if after.attempt > state.attempt || from >= state.visible {
            return state.nothing();
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
        self.readers.send_modify(|count| *count += 1);
        HubReader { changed: self.changed.subscribe(), hub: self.clone() }
    }

    /// Returns the number of readers, for a task that waits for changes.
    pub(crate) fn reader_count(&self) -> watch::Receiver<usize> {
        self.readers.subscribe()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Determines the updates that readers may receive, and wakes them if there are more.
    fn show(&self, mut state: MutexGuard<'_, State>) {
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
    /// The index of the next update.
    fn next(&self) -> u32 {
        self.first + u32::try_from(self.window.len()).unwrap_or(u32::MAX)
    }

    /// What is available for a reader that has all updates so far.
    fn nothing(&self) -> Available {
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
        // The hub owns the sender, so the wait does not fail.
        let _ = self.changed.changed().await;
    }

    /// Waits until the service has responded, the run has ended, or another process executes it.
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
        self.hub.readers.send_modify(|count| *count -= 1);
    }
}
