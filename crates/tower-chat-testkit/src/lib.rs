//! For tests of agents and of stores: a model that answers from a script, stores that fail on command,
//! and everything that a store promises as one test macro.
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
//! // A model with two prepared answers. A stack of layers around it is called in the same way.
//! let mut model = ScriptedModel::new([Step::text("Rain."), Step::error("the model is overloaded")]);
//! poll_fn(|cx| model.poll_ready(cx)).await?;
//! let answer = model.call(ChatRequest::user("Paris?")).await?.collect().await?;
//! assert_eq!(answer.text(), "Rain.");
//! assert_eq!(model.requests()[0].messages.len(), 1);
//! poll_fn(|cx| model.poll_ready(cx)).await?;
//! assert!(model.call(ChatRequest::user("Rome?")).await.is_err());
//!
//! // A store whose next load fails, and the one after it does not.
//! let store = FaultyStore::new(MemoryStore::new());
//! store.fail_next_load(StoreError::backend("read", true, "the disk is away"));
//! let key = ConversationKey::new("alice", "weather");
//! assert!(store.load(&key).await.is_err());
//! assert!(store.load(&key).await?.messages.is_empty());
//! # Ok::<(), tower_chat_core::BoxError>(())
//! # }).unwrap().unwrap();
//! ```
//!
//! - [`ScriptedModel`] is a model that answers from a script and remembers what it was sent;
//! - [`FaultyStore`] makes any store fail, or hold its writes, on command, or asks a test at every
//!   operation what goes wrong with it;
//! - [`hostile`] has conversations that no service has seen, and says what a service would refuse;
//! - [`cases!`] combines lists of cases, and names the one in which a test fails;
//! - [`RecordedMetrics`] has every metric that was recorded on a thread or in a process;
//! - [`skip`] names a test that cannot run on this machine;
//! - [`Rng`] makes numbers that are the same at every run;
//! - [`store_contract!`] tests everything that
//!   [`HistoryStore`](tower_chat_core::store::HistoryStore) promises, with one line in the crate of a store;
//! - `recordings`, with the feature of that name, reads recorded HTTP exchanges and conversations;
//! - `server`, with the feature of that name, starts throwaway database servers.
//!
//! None of them sleeps or looks at a clock: a [`Gate`] says when something has been reached, and
//! decides when it goes on.

mod cases;
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

pub use self::{
    cases::Cases,
    faulty_store::{Fault, FaultInjector, FaultyStore, Injection, Operation},
    gate::Gate,
    recorded_metrics::RecordedMetrics,
    rng::Rng,
    scripted_model::{ScriptError, ScriptedModel, Step},
    skipped::skip,
};
