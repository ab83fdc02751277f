//! Test doubles for agents and stores: a model client with scripted answers, a store that fails
//! when a test requires it, and a macro that tests whether a store fulfils its contract.
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
//! - [`FaultyStore`] wraps any store, and makes its operations fail or wait when a test requires
//!   it;
//! - [`damaged_history`] generates stored histories with many kinds of damage;
//! - [`hostile`] generates unusual conversations, and describes the reasons for which a service
//!   would refuse a request;
//! - [`cases!`] iterates over combinations of test parameters, and prints the combination with
//!   which a test fails;
//! - [`RecordedMetrics`] records the metrics of a thread or of the process;
//! - [`skip`] reports a test that cannot run on this machine;
//! - [`Rng`] generates pseudorandom numbers from a seed;
//! - [`store_contract!`] defines tests for the rules of
//!   [`HistoryStore`](tower_chat_core::store::HistoryStore). The crate of a store calls this macro
//!   in one line;
//! - [`validate`] checks whether a provider would accept a request body. The check shares no code
//!   with the crates that write request bodies;
//! - `recordings` reads recorded HTTP exchanges and conversations, and needs the feature
//!   `recordings`;
//! - `server` starts temporary database servers, and needs the feature `server`.
//!
//! The model client and the stores neither sleep nor read a clock. Instead, a [`Gate`] blocks a
//! task until the test opens the gate, and the test can wait until a task has reached the gate.

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
