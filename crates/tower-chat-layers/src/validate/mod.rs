//! The check directly above the model client, which detects invalid message sequences before a provider
//! does.
//!
//! [`validate_messages`] checks the rules that all providers share, in the crate's own types; the rules
//! of one provider's wire, with their sources, are in `tower-chat-wire`. The layer
//! [`ValidateTranscriptLayer`] applies the shared rules to every request.
//!
//! # Position in a stack
//!
//! ```text
//! PerRunPersistence
//!   ToolLoop
//!     PerServiceCallPersistence
//!       retry, idle timeout, cache
//!         ValidateTranscript    right: sees what the model would send
//!           model
//! ```
//!
//! Above `PerServiceCallPersistence` the layer would refuse results whose calls are stored below it.
//! Above the tool loop it would never see a round.

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
