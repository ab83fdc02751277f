//! The check right above the model client: no provider may be the first to notice a broken
//! sequence.
//!
//! [`validate_messages`] knows the rules that all providers share, in the crate's own vocabulary;
//! the rules of one provider's wire, with their sources, are in `tower-chat-wire`. The layer
//! [`ValidateTranscript`] applies the former to every request.
//!
//! # Where it stands
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
//! Above `PerServiceCallPersistence` it sees results whose calls are stored below it, and refuses
//! them. Above the tool loop it never sees a round.

mod empty;
mod fault;
mod layer;
mod messages;
mod service;

pub(crate) use self::empty::{check_content, check_not_empty, may_be_empty};
pub use self::{
    fault::{Fault, InvalidMessages, InvalidRequest},
    layer::ValidateTranscript,
    messages::{validate_messages, validate_request},
    service::ValidateTranscriptService,
};

#[cfg(test)]
mod tests;
