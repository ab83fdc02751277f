//! Implements [`UpdateLog`] for an `Arc` of an update log.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use super::{
    Erase, Renewed, RunEnd, RunKey, RunState, StoredUpdate, UpdateLog, UpdateLogError, UpdatePage,
    UpdatePosition,
};

#[async_trait]
impl<L: UpdateLog + ?Sized> UpdateLog for Arc<L> {
    async fn begin(
        &self,
        run: &RunKey,
        attempt: u32,
        lease: Duration,
    ) -> Result<(), UpdateLogError> {
        (**self).begin(run, attempt, lease).await
    }

    async fn append(
        &self,
        run: &RunKey,
        first: UpdatePosition,
        updates: &[StoredUpdate],
        end: Option<&RunEnd>,
    ) -> Result<(), UpdateLogError> {
        (**self).append(run, first, updates, end).await
    }

    async fn renew(
        &self,
        run: &RunKey,
        attempt: u32,
        lease: Duration,
    ) -> Result<Renewed, UpdateLogError> {
        (**self).renew(run, attempt, lease).await
    }

    async fn read(
        &self,
        run: &RunKey,
        after: UpdatePosition,
        limit: usize,
    ) -> Result<UpdatePage, UpdateLogError> {
        (**self).read(run, after, limit).await
    }

    async fn wait(
        &self,
        run: &RunKey,
        after: UpdatePosition,
        timeout: Duration,
    ) -> Result<(), UpdateLogError> {
        (**self).wait(run, after, timeout).await
    }

    async fn interrupt(&self, run: &RunKey) -> Result<RunState, UpdateLogError> {
        (**self).interrupt(run).await
    }

    async fn request_stop(&self, run: &RunKey) -> Result<RunState, UpdateLogError> {
        (**self).request_stop(run).await
    }

    async fn erase(&self, what: Erase<'_>) -> Result<u64, UpdateLogError> {
        (**self).erase(what).await
    }
}
