//! Runs that continue after their caller has disconnected, and the update log for readers that
//! reconnect. A run is the work for one request: the calls of the model and of tools, up to the
//! final answer.
//!
//! [`DetachedRunsLayer`] is a layer that executes each run in a separate task. The run continues if
//! its caller disconnects. Other readers can attach to the run, and any process can stop it. The
//! documentation of the layer contains an example.
//!
//! # The update log
//!
//! The history of a conversation contains its messages. An update log contains the updates that
//! runs have sent to their readers: the deltas and messages of each run, in the order in which they
//! were sent, each with a position. A reader that has lost its connection reads the updates after
//! the position of the last update that it has received. The updates of a run expire some time
//! after its end, because the history contains the messages.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! use std::time::Duration;
//! use tower_chat_delivery::{
//!     MemoryUpdateLog, RunEnd, RunKey, RunState, StoredUpdate, UpdateLog, UpdatePosition,
//! };
//! use tower_chat_layers::{ConversationKey, RunId};
//!
//! let log = MemoryUpdateLog::new();
//! let run = RunKey::new(ConversationKey::new("alice", "support"), RunId::new());
//! log.begin(&run, 1, Duration::from_secs(15)).await?;
//! let updates = ["Take ", "a coat."].map(StoredUpdate::new);
//! log.append(&run, UpdatePosition::new(1, 0), &updates, Some(&RunEnd::Completed)).await?;
//!
//! // A reader that has received the first update reads what is strictly after it.
//! let page = log.read(&run, UpdatePosition::new(1, 0), 100).await?;
//! assert_eq!(page.updates[0].update.data(), "a coat.");
//! assert_eq!(page.state, RunState::Closed { attempt: 1, end: RunEnd::Completed });
//! # Ok::<(), tower_chat_delivery::UpdateLogError>(())
//! # }).unwrap();
//! ```
//!
//! `PostgresUpdateLog` of `tower-chat-postgres` and `RedisUpdateLog` of `tower-chat-redis` are logs
//! for several machines.
//!
//! To write an update log for another database, implement [`UpdateLog`] with the types of
//! [`author`], and test the implementation with `update_log_contract!` of the feature `contract`.

#![warn(clippy::too_many_lines)]

pub mod author;
#[cfg(feature = "contract")]
pub mod contract;
mod log;
mod runs;
#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(feature = "sqlite")]
pub use self::sqlite::SqliteUpdateLog;
pub use self::{
    log::{
        Erase, MemoryUpdateLog, ParsePositionError, PositionedUpdate, Renewed, RunEnd, RunKey,
        RunState, StoredUpdate, UpdateLog, UpdateLogError, UpdateLogOptions, UpdatePage,
        UpdatePosition,
    },
    runs::{DeliveryError, DetachedRuns, DetachedRunsLayer, RunEvent, RunReader},
};
