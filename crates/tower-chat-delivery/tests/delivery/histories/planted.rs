//! A log with an intentional fault, which the tests must detect.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use tower_chat_delivery::{
    Erase, Renewed, RunEnd, RunKey, RunState, StoredUpdate, UpdateLog, UpdateLogError, UpdatePage,
    UpdatePosition,
};

/// A fault of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A page lacks an update between two other updates.
    Lost,
    /// A page contains an update twice.
    Doubled,
    /// A page reports the end of a run that is still in progress.
    EarlyEnd,
}

/// A log that wraps another log, and returns every third page with a fault.
#[derive(Debug)]
pub(crate) struct PlantedLog<L> {
    log: L,
    fault: Fault,
    reads: AtomicUsize,
}

impl<L: UpdateLog> PlantedLog<L> {
    pub(crate) fn new(log: L, fault: Fault) -> Self {
        Self { log, fault, reads: AtomicUsize::new(0) }
    }
}

#[async_trait]
impl<L: UpdateLog> UpdateLog for PlantedLog<L> {
    async fn begin(
        &self,
        run: &RunKey,
        attempt: u32,
        lease: Duration,
    ) -> Result<(), UpdateLogError> {
        self.log.begin(run, attempt, lease).await
    }

    async fn append(
        &self,
        run: &RunKey,
        first: UpdatePosition,
        updates: &[StoredUpdate],
        end: Option<&RunEnd>,
    ) -> Result<(), UpdateLogError> {
        self.log.append(run, first, updates, end).await
    }

    async fn renew(
        &self,
        run: &RunKey,
        attempt: u32,
        lease: Duration,
    ) -> Result<Renewed, UpdateLogError> {
        self.log.renew(run, attempt, lease).await
    }

    async fn read(
        &self,
        run: &RunKey,
        after: UpdatePosition,
        limit: usize,
    ) -> Result<UpdatePage, UpdateLogError> {
        let mut page = self.log.read(run, after, limit).await?;
        let is_faulty = limit > 0 && self.reads.fetch_add(1, Ordering::Relaxed) % 3 == 2;
        match self.fault {
            Fault::Lost if is_faulty && page.updates.len() > 2 => {
                page.updates.remove(1);
            }
            Fault::Doubled if is_faulty && page.updates.len() > 1 => {
                if let Some(doubled) = page.updates.first().cloned() {
                    page.updates.insert(1, doubled);
                }
            }
            Fault::EarlyEnd if is_faulty && matches!(page.state, RunState::Open { .. }) => {
                let attempt = page.state.attempt();
                page.updates.clear();
                page.state = RunState::Closed { attempt, end: RunEnd::Completed };
            }
            Fault::Lost | Fault::Doubled | Fault::EarlyEnd => {}
        }
        Ok(page)
    }

    async fn interrupt(&self, run: &RunKey) -> Result<RunState, UpdateLogError> {
        self.log.interrupt(run).await
    }

    async fn request_stop(&self, run: &RunKey) -> Result<RunState, UpdateLogError> {
        self.log.request_stop(run).await
    }

    async fn erase(&self, what: Erase<'_>) -> Result<u64, UpdateLogError> {
        self.log.erase(what).await
    }
}
