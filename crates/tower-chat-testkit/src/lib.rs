//! Test doubles for tower-chat.
//!
//! - [`ScriptedModel`] is a model that answers from a script and remembers what it was sent;
//! - [`FaultyStore`] makes any store fail, or hold its writes, on command, or asks a test at every
//!   operation what goes wrong with it;
//! - [`cases!`] combines lists of cases, and names the one in which a test fails;
//! - [`RecordedMetrics`] has every metric that was recorded on a thread or in a process;
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
mod recorded_metrics;
#[cfg(feature = "recordings")]
pub mod recordings;
mod rng;
mod scripted_model;
#[cfg(all(unix, feature = "server"))]
pub mod server;
pub mod store_contract;

pub use self::{
    cases::Cases,
    faulty_store::{Fault, FaultInjector, FaultyStore, Injection, Operation},
    gate::Gate,
    recorded_metrics::RecordedMetrics,
    rng::Rng,
    scripted_model::{ScriptError, ScriptedModel, Step},
};
