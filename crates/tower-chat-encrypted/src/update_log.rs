//! [`EncryptedUpdateLog`], the update log that encrypts the data of another log. An update log
//! stores the updates of detached runs, which continue without their clients.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use tower_chat_core::SharedError;
use tower_chat_delivery::{
    Erase, Renewed, RunEnd, RunKey, RunState, StoredUpdate, UpdateLog, UpdateLogError, UpdatePage,
    UpdatePosition,
};

use crate::{
    EncryptionError, KeyProvider,
    seal::{Expected, ExpectedLife, Opener, Position, Sealer},
};

/// The column (the authenticated kind) of updates. [`index_of`] computes the index of an update.
const UPDATE: &str = "update";
/// The column of the errors with which attempts (executions of a run) have failed. The index of an
/// error is the number of the attempt.
const FAILURE: &str = "failure";
/// The text that replaces an error that does not open.
const UNREADABLE: &str = "the error of the run cannot be decrypted";

/// Encrypts the updates of another update log, and the errors with which runs end.
///
/// Each value is sealed (encrypted and authenticated) for its run and its position. A value that
/// was moved to another position therefore cannot be decrypted. The scopes and ids of
/// conversations, the ids and states of runs, and the number and sizes of updates are stored in
/// plaintext. After the key of a conversation was erased, its updates cannot be read.
///
/// The inner log must be empty, or have been written through this type, because this type refuses
/// plaintext.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use std::time::Duration;
/// use tower_chat_core::{ConversationKey, RunId};
/// use tower_chat_delivery::{MemoryUpdateLog, RunKey, StoredUpdate, UpdateLog, UpdatePosition};
/// use tower_chat_encrypted::{EncryptedUpdateLog, MasterKeys, SecretKey};
///
/// let keys = MasterKeys::new("2026", SecretKey::random()?)?;
/// let inner = MemoryUpdateLog::new();
/// let log = EncryptedUpdateLog::new(inner.clone(), keys);
/// let run = RunKey::new(ConversationKey::new("alice", "support"), RunId::new());
/// log.begin(&run, 1, Duration::from_secs(15)).await?;
/// log.append(&run, UpdatePosition::new(1, 0), &[StoredUpdate::new("a secret")], None).await?;
///
/// let page = log.read(&run, UpdatePosition::START, 10).await?;
/// assert_eq!(page.updates[0].update.data(), "a secret");
/// let page = inner.read(&run, UpdatePosition::START, 10).await?;
/// assert!(!page.updates[0].update.data().contains("secret"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct EncryptedUpdateLog<L> {
    inner: L,
    keys: Arc<dyn KeyProvider>,
}

impl<L: UpdateLog> EncryptedUpdateLog<L> {
    /// Wraps a log.
    pub fn new(inner: L, keys: impl KeyProvider) -> Self {
        Self { inner, keys: Arc::new(keys) }
    }

    /// Returns the inner log, which contains the sealed updates.
    pub fn inner(&self) -> &L {
        &self.inner
    }

    /// Returns the sealer of the values of a run.
    async fn sealer(&self, run: &RunKey) -> Result<Sealer, EncryptionError> {
        let conversation = run.conversation.clone();
        let (id, key) = self.keys.writing_key(&conversation).await?;
        Ok(Sealer { conversation, id, key, life: run.run })
    }

    /// Returns the opener of the values of a run.
    fn opener<'a>(&'a self, run: &'a RunKey) -> Opener<'a> {
        let expected = ExpectedLife {
            life: run.run,
            first_format: 0,
            second_format: Some(0),
            committed: None,
        };
        Opener::new(&run.conversation, &*self.keys, Expected::Life(expected))
            .accepting_former(false)
    }

    async fn seal(
        &self,
        run: &RunKey,
        first: UpdatePosition,
        updates: &[StoredUpdate],
        end: Option<&RunEnd>,
    ) -> Result<(Vec<StoredUpdate>, Option<RunEnd>), EncryptionError> {
        let sealer = self.sealer(run).await?;
        let sealed = (index_of(first)..).zip(updates).map(|(index, update)| {
            Ok(StoredUpdate::new(sealer.seal(at(index), None, UPDATE, update.data())?))
        });
        let updates = sealed.collect::<Result<_, EncryptionError>>()?;
        let end = match end {
            Some(RunEnd::Failed { message }) => {
                let attempt = at(first.attempt.into());
                Some(RunEnd::Failed { message: sealer.seal(attempt, None, FAILURE, message)? })
            }
            end => end.cloned(),
        };
        Ok((updates, end))
    }

    /// Returns the state of a run with its opened error. A fixed text replaces an error that does
    /// not open.
    async fn opened_state(&self, run: &RunKey, state: RunState) -> RunState {
        let RunState::Closed { attempt, end: RunEnd::Failed { message } } = state else {
            return state;
        };
        let found = at(attempt.into()).into();
        let opened = self.opener(run).open(found, None, FAILURE, &message).await;
        let message = opened.map_or_else(|_| UNREADABLE.to_owned(), |opened| opened.text);
        RunState::Closed { attempt, end: RunEnd::Failed { message } }
    }

    /// Opens the state of the run in an error that reports the loss of the run.
    async fn opened_error(&self, error: UpdateLogError) -> UpdateLogError {
        match error {
            UpdateLogError::NotOwner { run, attempt, found } => {
                let found = self.opened_state(&run, found).await;
                UpdateLogError::NotOwner { run, attempt, found }
            }
            error => error,
        }
    }
}

#[async_trait]
impl<L: UpdateLog> UpdateLog for EncryptedUpdateLog<L> {
    async fn begin(
        &self,
        run: &RunKey,
        attempt: u32,
        lease: Duration,
    ) -> Result<(), UpdateLogError> {
        match self.inner.begin(run, attempt, lease).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.opened_error(error).await),
        }
    }

    async fn append(
        &self,
        run: &RunKey,
        first: UpdatePosition,
        updates: &[StoredUpdate],
        end: Option<&RunEnd>,
    ) -> Result<(), UpdateLogError> {
        let sealed = self.seal(run, first, updates, end).await;
        let (updates, end) = sealed.map_err(|error| {
            UpdateLogError::backend("encrypt updates", error.is_retryable(), error)
        })?;
        match self.inner.append(run, first, &updates, end.as_ref()).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.opened_error(error).await),
        }
    }

    async fn renew(
        &self,
        run: &RunKey,
        attempt: u32,
        lease: Duration,
    ) -> Result<Renewed, UpdateLogError> {
        match self.inner.renew(run, attempt, lease).await {
            Ok(renewed) => Ok(renewed),
            Err(error) => Err(self.opened_error(error).await),
        }
    }

    async fn read(
        &self,
        run: &RunKey,
        after: UpdatePosition,
        limit: usize,
    ) -> Result<UpdatePage, UpdateLogError> {
        let mut page = self.inner.read(run, after, limit).await?;
        let mut opener = self.opener(run);
        for positioned in &mut page.updates {
            let found = at(index_of(positioned.position)).into();
            let opened = opener.open(found, None, UPDATE, positioned.update.data()).await;
            let opened = opened.map_err(not_opened(run, positioned.position))?;
            positioned.update = StoredUpdate::new(opened.text);
        }
        page.state = self.opened_state(run, page.state).await;
        Ok(page)
    }

    async fn wait(
        &self,
        run: &RunKey,
        after: UpdatePosition,
        timeout: Duration,
    ) -> Result<(), UpdateLogError> {
        self.inner.wait(run, after, timeout).await
    }

    async fn interrupt(&self, run: &RunKey) -> Result<RunState, UpdateLogError> {
        Ok(self.opened_state(run, self.inner.interrupt(run).await?).await)
    }

    async fn request_stop(&self, run: &RunKey) -> Result<RunState, UpdateLogError> {
        Ok(self.opened_state(run, self.inner.request_stop(run).await?).await)
    }

    async fn erase(&self, what: Erase<'_>) -> Result<u64, UpdateLogError> {
        self.inner.erase(what).await
    }
}

impl<L: fmt::Debug> fmt::Debug for EncryptedUpdateLog<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncryptedUpdateLog").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// Returns the position of a value by its index. The sequence number is 0, because the value is not
/// part of a message.
fn at(index: u64) -> Position {
    Position { sequence: 0, index }
}

/// Returns a number that identifies an update of a run.
fn index_of(position: UpdatePosition) -> u64 {
    u64::from(position.attempt) << 32 | u64::from(position.index)
}

/// Converts the error of an update that does not open. A retryable error, for example because the
/// keys are currently not available, does not become `Undecodable`.
fn not_opened(
    run: &RunKey,
    position: UpdatePosition,
) -> impl FnOnce(EncryptionError) -> UpdateLogError {
    let run = run.clone();
    move |error| match error.is_retryable() {
        true => UpdateLogError::backend("decrypt updates", true, error),
        false => UpdateLogError::Undecodable { run, position, source: SharedError::new(error) },
    }
}
