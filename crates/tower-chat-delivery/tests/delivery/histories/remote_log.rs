//! A log on a server, which the runtimes of a generated history can use.

use std::{future::Future, time::Duration};

use async_trait::async_trait;
use tokio::runtime::Handle;
use tower_chat_delivery::{
    Erase, Renewed, RunEnd, RunKey, RunState, StoredUpdate, UpdateLog, UpdateLogError, UpdatePage,
    UpdatePosition,
};

/// Executes the operations of a log on a separate runtime, whose clock is not paused. The runtimes
/// of a history cannot own the connections, because each runtime is dropped when its process is
/// killed. Each operation blocks a thread of the calling runtime, so that the paused clock of this
/// runtime does not advance during the operation.
#[derive(Debug)]
pub(crate) struct RemoteLog<L> {
    log: L,
    runtime: Handle,
}

impl<L: UpdateLog + Clone> RemoteLog<L> {
    pub(crate) fn new(log: L, runtime: Handle) -> Self {
        Self { log, runtime }
    }

    async fn run<T, Operation>(&self, operation: impl FnOnce(L) -> Operation + Send + 'static) -> T
    where
        T: Send + 'static,
        Operation: Future<Output = T>,
    {
        let (log, runtime) = (self.log.clone(), self.runtime.clone());
        tokio::task::spawn_blocking(move || runtime.block_on(operation(log))).await.unwrap()
    }
}

#[async_trait]
impl<L: UpdateLog + Clone> UpdateLog for RemoteLog<L> {
    async fn begin(
        &self,
        run: &RunKey,
        attempt: u32,
        lease: Duration,
    ) -> Result<(), UpdateLogError> {
        let run = run.clone();
        self.run(async move |log| log.begin(&run, attempt, lease).await).await
    }

    async fn append(
        &self,
        run: &RunKey,
        first: UpdatePosition,
        updates: &[StoredUpdate],
        end: Option<&RunEnd>,
    ) -> Result<(), UpdateLogError> {
        let (run, updates, end) = (run.clone(), updates.to_vec(), end.cloned());
        self.run(async move |log| log.append(&run, first, &updates, end.as_ref()).await).await
    }

    async fn renew(
        &self,
        run: &RunKey,
        attempt: u32,
        lease: Duration,
    ) -> Result<Renewed, UpdateLogError> {
        let run = run.clone();
        self.run(async move |log| log.renew(&run, attempt, lease).await).await
    }

    async fn read(
        &self,
        run: &RunKey,
        after: UpdatePosition,
        limit: usize,
    ) -> Result<UpdatePage, UpdateLogError> {
        let run = run.clone();
        self.run(async move |log| log.read(&run, after, limit).await).await
    }

    async fn interrupt(&self, run: &RunKey) -> Result<RunState, UpdateLogError> {
        let run = run.clone();
        self.run(async move |log| log.interrupt(&run).await).await
    }

    async fn request_stop(&self, run: &RunKey) -> Result<RunState, UpdateLogError> {
        let run = run.clone();
        self.run(async move |log| log.request_stop(&run).await).await
    }

    async fn erase(&self, what: Erase<'_>) -> Result<u64, UpdateLogError> {
        self.log.erase(what).await
    }
}
