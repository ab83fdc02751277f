//! Wakes the waiting readers of a run when another process has changed the run. A server reports
//! such changes by notifications.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{StreamExt, stream::BoxStream};
use tokio::{
    sync::{Notify, broadcast},
    task::JoinHandle,
    time::{sleep, timeout},
};
use tower_chat_layers::{BoxError, RunId};

use super::{RunKey, RunState, UpdateLog, UpdateLogError, UpdatePosition};

/// The interval at which waiting readers read the log while no notifications arrive.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The time between two heartbeats, and the maximum time until a heartbeat arrives.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// The largest number of notifications that are queued for a waiting reader. A reader that has lost
/// notifications reads its run from the log.
const MAX_BEHIND: usize = 1024;

/// The notifications that a server sends to all processes that use an update log.
///
/// Each change of a run must cause a notification whose text is the id of the run. If several runs
/// have changed, one notification with an empty text is sufficient.
#[async_trait]
pub trait Notifications: fmt::Debug + Send + Sync + 'static {
    /// Opens a connection, and returns the texts of the notifications that arrive on it. The stream
    /// ends when the connection is lost.
    ///
    /// # Errors
    ///
    /// Returns an error if the server cannot be reached, or does not support notifications.
    async fn subscribe(&self) -> Result<BoxStream<'static, String>, BoxError>;

    /// Sends a notification through another connection.
    ///
    /// # Errors
    ///
    /// Returns an error if the server cannot be reached, or does not support notifications.
    async fn notify(&self, text: &str) -> Result<(), BoxError>;
}

/// Wakes the waiting readers of an update log. All readers share one connection.
///
/// The connection is opened when the first reader waits, and closed some time after the last reader
/// has stopped waiting. The process sends notifications to itself, as heartbeats, which must arrive
/// on this connection. If a heartbeat does not arrive, either a connection pooler between the
/// process and the server does not forward notifications, or the connection was lost without an
/// error. While no heartbeats arrive, waiting readers read their run every 250 ms.
#[derive(Debug)]
pub struct Wakeups {
    notifications: Arc<dyn Notifications>,
    shared: Arc<Shared>,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    /// Sends the ids of changed runs to the waiting readers. An empty text means that any run may
    /// have changed.
    changed: broadcast::Sender<String>,
    /// Whether notifications arrive.
    is_listening: AtomicBool,
    /// Whether a reader has waited since the last heartbeat.
    is_used: AtomicBool,
}

impl Wakeups {
    /// Creates wakeups, without opening a connection.
    pub fn new(notifications: Arc<dyn Notifications>) -> Self {
        let (is_listening, is_used) = (AtomicBool::new(false), AtomicBool::new(false));
        let shared = Shared { changed: broadcast::Sender::new(MAX_BEHIND), is_listening, is_used };
        Self { notifications, shared: Arc::new(shared), task: Mutex::default() }
    }

    /// Implements [`UpdateLog::wait`] for `log`.
    ///
    /// # Errors
    ///
    /// Returns an error if the log cannot be read.
    pub async fn wait(
        &self,
        log: &impl UpdateLog,
        run: &RunKey,
        after: UpdatePosition,
        max_wait: Duration,
    ) -> Result<(), UpdateLogError> {
        // The reader subscribes before it reads the log, so that it receives the notification of
        // every change after the read.
        let mut changed = self.shared.changed.subscribe();
        if !self.listen() {
            sleep(max_wait.min(POLL_INTERVAL)).await;
            return Ok(());
        }
        let page = log.read(run, after, 1).await?;
        if !page.updates.is_empty() || !matches!(page.state, RunState::Open { .. }) {
            return Ok(());
        }
        let run = run.run.to_string();
        let until_changed = async {
            while changed.recv().await.is_ok_and(|other| !other.is_empty() && other != run) {}
        };
        // A timeout is not an error, because the reader reads the log again after every wait.
        let _ = timeout(max_wait, until_changed).await;
        Ok(())
    }

    /// Returns whether notifications arrive. Starts the task that receives notifications, unless
    /// this task is already running.
    fn listen(&self) -> bool {
        self.shared.is_used.store(true, Ordering::Relaxed);
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            let listening = Listening(self.shared.clone());
            *task = Some(tokio::spawn(receive(listening, self.notifications.clone())));
        }
        self.shared.is_listening.load(Ordering::Acquire)
    }
}

impl Drop for Wakeups {
    fn drop(&mut self) {
        let task = self.task.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task {
            task.abort();
        }
    }
}

/// The guard of the task that receives notifications. Dropping the guard wakes all readers.
struct Listening(Arc<Shared>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.is_listening.store(false, Ordering::Release);
        // Sending fails only if no reader waits.
        let _ = self.0.changed.send(String::new());
    }
}

/// Receives notifications until no reader waits, or until the connection or a heartbeat is lost.
async fn receive(listening: Listening, notifications: Arc<dyn Notifications>) {
    let Listening(shared) = &listening;
    let Ok(Ok(mut texts)) = timeout(HEARTBEAT, notifications.subscribe()).await else {
        // The pause limits the rate of attempts to subscribe, because the next waiting reader
        // starts a new task.
        sleep(HEARTBEAT).await;
        return;
    };
    let heartbeat = RunId::new().to_string();
    let arrived = Notify::new();
    let until_lost = async {
        while let Some(text) = texts.next().await {
            if text == heartbeat {
                arrived.notify_one();
            } else {
                // Sending fails only if no reader waits.
                let _ = shared.changed.send(text);
            }
        }
    };
    let until_silent = async {
        while shared.is_used.swap(false, Ordering::Relaxed) || shared.changed.receiver_count() > 0 {
            let is_sent = notifications.notify(&heartbeat).await.is_ok();
            if !is_sent || timeout(HEARTBEAT, arrived.notified()).await.is_err() {
                return;
            }
            shared.is_listening.store(true, Ordering::Release);
            sleep(HEARTBEAT).await;
        }
    };
    tokio::select! { () = until_lost => {} () = until_silent => {} }
}
