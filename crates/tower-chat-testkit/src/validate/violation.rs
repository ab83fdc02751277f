//! The violations of rules in a conversation.

use std::fmt;

use super::{Rule, Wire};

/// A conversation that its provider would refuse.
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

    /// Returns all violations in the order in which they were found. One fault often breaks several
    /// rules.
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

/// A position in a conversation that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// The wire.
    pub wire: Wire,
    /// The rule.
    pub rule: Rule,
    /// The message's index in the body's list of messages, items or contents; 0 if the list itself
    /// is missing.
    pub message: usize,
    /// The call, if the rule is about a call.
    pub call: Option<CallInMessage>,
    /// The provider's statement of the rule.
    pub says: &'static str,
    /// The source of the statement.
    pub source: &'static str,
}

/// A call or result in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallInMessage {
    /// The index in the message's list of calls, blocks or parts; 0 if the message itself is the call or
    /// result.
    pub index: usize,
    /// The id of the call as it was received; `None` if there is none.
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
