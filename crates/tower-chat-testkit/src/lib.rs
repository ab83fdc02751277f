//! Test doubles for agents and stores: a model client with scripted answers, stores that fail on
//! command, and the contract of stores as one test macro.
//!
//! ```
//! # futures_util::FutureExt::now_or_never(async {
//! use std::future::poll_fn;
//! use tower_chat_core::{
//!     ChatRequest, ConversationKey, MemoryStore,
//!     store::{HistoryStore, StoreError},
//! };
//! use tower_chat_testkit::{FaultyStore, ScriptedModel, Step};
//! use tower_service::Service;
//!
//! // A model client with two scripted answers. A stack of layers is called in the same way.
//! let mut model = ScriptedModel::new([Step::text("Rain."), Step::error("the model is overloaded")]);
//! poll_fn(|cx| model.poll_ready(cx)).await?;
//! let answer = model.call(ChatRequest::user("Paris?")).await?.collect().await?;
//! assert_eq!(answer.text(), "Rain.");
//! assert_eq!(model.requests()[0].messages().len(), 1);
//! poll_fn(|cx| model.poll_ready(cx)).await?;
//! assert!(model.call(ChatRequest::user("Rome?")).await.is_err());
//!
//! // A store whose next load fails. The load after it succeeds.
//! let store = FaultyStore::new(MemoryStore::new());
//! store.fail_next_load(StoreError::backend("read", true, "the disk is away"));
//! let key = ConversationKey::new("alice", "weather");
//! assert!(store.load(&key).await.is_err());
//! assert!(store.load(&key).await?.messages.is_empty());
//! # Ok::<(), tower_chat_core::BoxError>(())
//! # }).unwrap().unwrap();
//! ```
//!
//! - [`ScriptedModel`] is a model client that returns scripted answers and records its requests;
//! - [`FaultyStore`] makes any store fail or hold its writes back on command, or lets a test decide
//!   the fault of every operation;
//! - [`damaged_history`] generates stored histories with many kinds of damage;
//! - [`hostile`] generates unusual conversations, and describes everything that a service would refuse in
//!   a request;
//! - [`cases!`] combines lists of parameters, and prints the case in which a test fails;
//! - [`RecordedMetrics`] contains every metric that was recorded on a thread or in a process;
//! - [`skip`] reports a test that cannot run on this machine;
//! - [`Rng`] generates the same random numbers in every run;
//! - [`store_contract!`] tests every rule of
//!   [`HistoryStore`](tower_chat_core::store::HistoryStore), with one line in the crate of a store;
//! - [`validate`] checks whether a provider would accept a request body, and shares no code with the
//!   renderers of these crates;
//! - `recordings`, with the feature of that name, reads recorded HTTP exchanges and conversations;
//! - `server`, with the feature of that name, starts throwaway database servers.
//!
//! The model client and the stores do not sleep or read a clock: a [`Gate`] signals when a task has
//! reached it, and blocks the task until the test opens it.

mod cases;
mod damaged_history;
mod faulty_store;
mod gate;
pub mod hostile;
mod recorded_metrics;
#[cfg(feature = "recordings")]
pub mod recordings;
mod rng;
mod scripted_model;
#[cfg(all(unix, feature = "server"))]
pub mod server;
mod skipped;
pub mod store_contract;
pub mod validate;

pub use self::{
    cases::Cases,
    damaged_history::{assert_valid_replay, damaged_history},
    faulty_store::{FaultInjector, FaultyStore, Injection, Operation, StoreFault},
    gate::Gate,
    recorded_metrics::RecordedMetrics,
    rng::Rng,
    scripted_model::{ScriptError, ScriptedModel, Step},
    skipped::skip,
};
