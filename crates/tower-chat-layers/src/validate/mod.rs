//! Checks requests directly above the model client, so that a request with invalid messages fails
//! before a provider receives it.
//!
//! [`validate_messages`] checks the rules that all providers share. The layer
//! [`ValidateTranscriptLayer`] applies these rules to every request. `tower-chat-wire` contains the
//! rules of each provider's JSON format.
//!
//! # Position in a stack
//!
//! ```text
//! PerRunPersistence
//!   ToolLoop
//!     PerServiceCallPersistence
//!       retry, idle timeout, cache
//!         ValidateTranscript    right: checks the messages that the model client sends
//!           model
//! ```
//!
//! Above `PerServiceCallPersistence`, the layer would refuse results whose calls
//! `PerServiceCallPersistence` adds. Above the tool loop, the layer would never receive the calls
//! and results of a run.

mod empty;
mod fault;
mod layer;
mod messages;
mod service;

pub(crate) use self::empty::{check_content, check_not_empty, may_be_empty};
pub use self::{
    fault::{Fault, InvalidMessages, InvalidRequest},
    layer::ValidateTranscriptLayer,
    messages::{validate_messages, validate_request},
    service::ValidateTranscript,
};

#[cfg(test)]
mod tests;
