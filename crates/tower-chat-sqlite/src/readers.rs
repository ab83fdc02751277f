//! The pool of reading connections.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;
use tokio::{runtime::Handle, sync::Semaphore};
use tower_chat_core::{BoxError, store::StoreError};

use crate::{SqliteOptions, caller, file::StoreFile, read::NotRead};

/// A pool with a bounded number of connections for reading.
#[derive(Debug)]
pub(crate) struct Readers {
    file: StoreFile,
    /// A permit for each concurrent read.
    permits: Arc<Semaphore>,
    /// The connections that no read is using.
    idle: Mutex<Vec<Connection>>,
    work_on_caller: bool,
}

impl Readers {
    pub(crate) fn new(file: StoreFile, options: &SqliteOptions, first: Option<Connection>) -> Self {
        let permits = Arc::new(Semaphore::new(options.readers));
        let idle = Mutex::new(first.into_iter().collect());
        Self { file, permits, idle, work_on_caller: options.work_on_caller }
    }

    /// Reads a few rows, on the calling thread if it may block and a permit is free.
    pub(crate) async fn read_few<T: Send + 'static>(
        self: &Arc<Self>,
        action: &'static str,
        read: impl Fn(&Connection) -> Result<T, NotRead> + Send + 'static,
    ) -> Result<T, StoreError> {
        if self.work_on_caller
            && caller::may_block()
            && let Ok(_permit) = self.permits.try_acquire()
            && let Some(outcome) = caller::block(|| self.read_here(action, &read))
        {
            return outcome;
        }
        self.read(action, read).await
    }

    /// Reads on a thread of the blocking pool.
    pub(crate) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        action: &'static str,
        read: impl FnOnce(&Connection) -> Result<T, NotRead> + Send + 'static,
    ) -> Result<T, StoreError> {
        let failed = |source: BoxError| StoreError::backend(action, false, source);
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let runtime = Handle::try_current().map_err(|error| failed(error.into()))?;
        let readers = self.clone();
        let reading = runtime.spawn_blocking(move || {
            // The task owns the permit even if the future of this function was dropped.
            let _permit = permit;
            readers.read_here(action, read)
        });
        reading.await.map_err(|_| failed(RuntimeGone.into()))?
    }

    /// Closes the idle connections.
    pub(crate) fn release(&self) {
        self.idle().clear();
    }

    pub(crate) fn file(&self) -> &StoreFile {
        &self.file
    }

    fn read_here<T>(
        &self,
        action: &'static str,
        read: impl FnOnce(&Connection) -> Result<T, NotRead>,
    ) -> Result<T, StoreError> {
        let failed = |error| self.file.failure(error).store_error(action);
        self.file.check_path().map_err(|failure| failure.store_error(action))?;
        let idle = self.idle().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => self.file.reader().map_err(failed)?,
        };
        let outcome = read(&connection);
        self.file.check_unwritten().map_err(|failure| failure.store_error(action))?;
        match outcome {
            Ok(value) => {
                self.idle().push(connection);
                Ok(value)
            }
            Err(NotRead::Damaged(error)) => {
                self.idle().push(connection);
                Err(error)
            }
            // The connection is closed instead of reused, because SQLite has failed on it.
            Err(NotRead::Failed(error)) => Err(failed(error)),
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, thiserror::Error)]
#[error(
    "the reading task did not finish: the tokio runtime is shutting down, or the task panicked"
)]
struct RuntimeGone;
