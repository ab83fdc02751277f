//! An update log in memory.

use std::{
    collections::BTreeMap,
    ops::Bound,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use tokio::{sync::Notify, time::timeout};

use super::{
    Erase, PositionedUpdate, Renewed, RunEnd, RunKey, RunState, StoredUpdate, UpdateLog,
    UpdateLogError, UpdateLogOptions, UpdatePage, UpdatePosition, record::RunRecord,
};

/// An update log in the memory of the process, for tests and for services that have one process.
/// The updates are lost when the process ends.
///
/// Clones share the same runs.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use tower_chat_delivery::{MemoryUpdateLog, RunKey, RunState, UpdateLog, UpdatePosition};
/// use tower_chat_layers::{ConversationKey, RunId};
/// let log = MemoryUpdateLog::new();
/// let run = RunKey::new(ConversationKey::new("alice", "support"), RunId::new());
/// assert_eq!(log.read(&run, UpdatePosition::START, 10).await?.state, RunState::Unknown);
/// # Ok::<(), tower_chat_delivery::UpdateLogError>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, Default)]
pub struct MemoryUpdateLog(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    options: UpdateLogOptions,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    runs: BTreeMap<RunKey, LoggedRun>,
    /// The time at which the log last erased all expired runs.
    swept_at: Option<SystemTime>,
}

/// The minimum time between two erasures of all expired runs. Such an erasure checks every run in
/// the log.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct LoggedRun {
    record: RunRecord,
    updates: BTreeMap<UpdatePosition, StoredUpdate>,
}

impl MemoryUpdateLog {
    /// Creates a log without runs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a log with limits and a clock.
    pub fn with_options(options: UpdateLogOptions) -> Self {
        Self(Arc::new(Shared { options, ..Shared::default() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes a run, and wakes its readers. Returns `None` if there is no run, or if the run has
    /// expired.
    fn change<T>(&self, run: &RunKey, change: impl FnOnce(&mut LoggedRun) -> T) -> Option<T> {
        let mut state = self.state();
        let expired_at = self.0.options.expired_at();
        let logged =
            state.runs.get_mut(run).filter(|logged| !logged.record.ended_by(expired_at))?;
        let changed = change(logged);
        drop(state);
        self.0.changed.notify_waiters();
        Some(changed)
    }

    fn page(&self, run: &RunKey, after: UpdatePosition, limit: usize) -> UpdatePage {
        let state = self.state();
        let expired_at = self.0.options.expired_at();
        let logged = state.runs.get(run).filter(|logged| !logged.record.ended_by(expired_at));
        let Some(logged) = logged else {
            return UpdatePage::new(Vec::new(), RunState::Unknown);
        };
        let after = logged.updates.range((Bound::Excluded(after), Bound::Unbounded)).take(limit);
        let updates = after
            .map(|(position, update)| PositionedUpdate {
                position: *position,
                update: update.clone(),
            })
            .collect();
        UpdatePage::new(updates, logged.record.state(&self.0.options))
    }
}

impl State {
    /// Erases a run if it has expired. Also erases all other expired runs if the log is full, or if
    /// the last erasure of all expired runs was at least [`SWEEP_INTERVAL`] ago.
    fn sweep(&mut self, run: &RunKey, options: &UpdateLogOptions) {
        let now = options.now();
        let expired_at = options.expired_at();
        let is_due = self.swept_at.is_none_or(|swept| {
            now.duration_since(swept).is_ok_and(|passed| passed >= SWEEP_INTERVAL)
        });
        if is_due || self.runs.len() as u64 >= options.max_runs {
            self.swept_at = Some(now);
            self.runs.retain(|_, logged| !logged.record.ended_by(expired_at));
        } else if self.runs.get(run).is_some_and(|logged| logged.record.ended_by(expired_at)) {
            self.runs.remove(run);
        }
    }
}

#[async_trait]
impl UpdateLog for MemoryUpdateLog {
    async fn begin(
        &self,
        run: &RunKey,
        attempt: u32,
        lease: Duration,
    ) -> Result<(), UpdateLogError> {
        let options = &self.0.options;
        let mut state = self.state();
        state.sweep(run, options);
        let runs = &mut state.runs;
        let found = runs.get(run).map(|logged| logged.record.clone());
        let count = runs.len() as u64;
        let record = RunRecord::begin(found, count, run, attempt, lease, options)?;
        match runs.get_mut(run) {
            Some(logged) => logged.record = record,
            None => {
                runs.insert(run.clone(), LoggedRun { record, updates: BTreeMap::new() });
            }
        }
        drop(state);
        self.0.changed.notify_waiters();
        Ok(())
    }

    async fn append(
        &self,
        run: &RunKey,
        first: UpdatePosition,
        updates: &[StoredUpdate],
        end: Option<&RunEnd>,
    ) -> Result<(), UpdateLogError> {
        let appended = self.change(run, |logged| {
            let new = logged.record.append(run, first, updates, end, &self.0.options)?;
            let skipped = updates.len() - new.len();
            let positions = (first.index..).skip(skipped);
            let new = positions
                .zip(new)
                .map(|(index, update)| (UpdatePosition::new(first.attempt, index), update.clone()));
            logged.updates.extend(new);
            Ok(())
        });
        appended.unwrap_or_else(|| Err(UpdateLogError::unknown_run(run, first.attempt)))
    }

    async fn renew(
        &self,
        run: &RunKey,
        attempt: u32,
        lease: Duration,
    ) -> Result<Renewed, UpdateLogError> {
        let options = &self.0.options;
        let renewed = self.change(run, |logged| logged.record.renew(run, attempt, lease, options));
        renewed.unwrap_or_else(|| Err(UpdateLogError::unknown_run(run, attempt)))
    }

    async fn read(
        &self,
        run: &RunKey,
        after: UpdatePosition,
        limit: usize,
    ) -> Result<UpdatePage, UpdateLogError> {
        Ok(self.page(run, after, limit))
    }

    async fn wait(
        &self,
        run: &RunKey,
        after: UpdatePosition,
        max_wait: Duration,
    ) -> Result<(), UpdateLogError> {
        let until_changed = async {
            loop {
                let mut changed = pin!(self.0.changed.notified());
                changed.as_mut().enable();
                let page = self.page(run, after, 1);
                let is_open = matches!(page.state, RunState::Open { .. });
                if !page.updates.is_empty() || !is_open {
                    return;
                }
                changed.await;
            }
        };
        // A timeout is not an error, because the reader reads the log again after every wait.
        let _ = timeout(max_wait, until_changed).await;
        Ok(())
    }

    async fn interrupt(&self, run: &RunKey) -> Result<RunState, UpdateLogError> {
        let interrupted = self.change(run, |logged| logged.record.interrupt(&self.0.options));
        Ok(interrupted.unwrap_or(RunState::Unknown))
    }

    async fn request_stop(&self, run: &RunKey) -> Result<RunState, UpdateLogError> {
        let requested = self.change(run, |logged| logged.record.request_stop(&self.0.options));
        Ok(requested.unwrap_or(RunState::Unknown))
    }

    async fn erase(&self, what: Erase<'_>) -> Result<u64, UpdateLogError> {
        let mut state = self.state();
        let before = state.runs.len();
        state.runs.retain(|run, logged| match what {
            Erase::Conversation(key) => run.conversation != *key,
            Erase::Scope(scope) => run.conversation.scope() != scope,
            Erase::EndedBy(time) => !logged.record.ended_by(time),
        });
        let erased = before - state.runs.len();
        drop(state);
        self.0.changed.notify_waiters();
        Ok(erased as u64)
    }
}
