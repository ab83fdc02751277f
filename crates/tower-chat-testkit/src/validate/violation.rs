//! The violations of rules that were found in a conversation.

use std::fmt;

use super::{Rule, Wire};

/// The error of a conversation that its provider would refuse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidTranscript {
    first: Box<Violation>,
    more: Vec<Violation>,
}

impl InvalidTranscript {
    pub(super) fn new(first: Violation, more: Vec<Violation>) -> Self {
        Self { first: Box::new(first), more }
    }

    /// Returns the first violation.
    pub fn first(&self) -> &Violation {
        &self.first
    }

    /// Returns all violations in the order in which they were found. A single fault often breaks
    /// several rules.
    pub fn violations(&self) -> impl Iterator<Item = &Violation> {
        std::iter::once(&*self.first).chain(&self.more)
    }
}

impl fmt::Display for InvalidTranscript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        match self.more.len() {
            0 => Ok(()),
            more => write!(f, " (and {more} more)"),
        }
    }
}

impl std::error::Error for InvalidTranscript {}

/// A violation of a rule, with its position in the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// The wire (JSON format of a provider) of the request.
    pub wire: Wire,
    /// The rule that is broken.
    pub rule: Rule,
    /// The index of the message in the list of messages, items or contents of the body. 0 if the
    /// list is missing.
    pub message: usize,
    /// The call or result that breaks the rule, if the rule concerns a call or a result.
    pub call: Option<CallInMessage>,
    /// The rule in the words of the provider.
    pub says: &'static str,
    /// The source of these words.
    pub source: &'static str,
}

/// A call or a result in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallInMessage {
    /// The index in the list of calls, blocks or parts of the message. 0 if the message itself is
    /// the call or the result.
    pub index: usize,
    /// The id of the call in the body, or `None` if the body contains no id.
    pub id: Option<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}[{}]", self.wire, self.wire.conversation_field(), self.message)?;
        match &self.call {
            Some(CallInMessage { index, id: Some(id) }) => write!(f, ", call {index} (id {id:?})")?,
            Some(CallInMessage { index, id: None }) => write!(f, ", call {index} (no id)")?,
            None => {}
        }
        write!(f, " breaks the rule that {}: {} [{}]", self.rule, self.says, self.source)
    }
}
