//! What a conversation must obey, and who says so.

use std::fmt;

use super::Wire;

/// Something that providers demand of a conversation.
///
/// Not every wire has every rule, and each states it in its own words: see [`Wire::rules`].
///
/// ```
/// use tower_chat_wire::validate::{Rule, Wire};
///
/// for citation in Wire::Anthropic.rules() {
///     println!("{:?}: {} ({})", citation.rule, citation.says, citation.source);
/// }
/// assert!(Rule::CallsAnswered.source(Wire::Anthropic).is_some());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// The conversation and its entries are of the wire's shape.
    Shape,
    /// Every role is one of the wire's.
    KnownRole,
    /// The conversation begins with the user.
    UserFirst,
    /// User and assistant take turns.
    RolesAlternate,
    /// Every message says something.
    ContentPresent,
    /// No text is empty.
    TextNotEmpty,
    /// Calls come from the model, results from the caller.
    SpeakerOfPart,
    /// A list of calls has calls.
    CallListNotEmpty,
    /// Every call names itself, in the form that the provider takes.
    CallIdForm,
    /// No two calls that wait for results at the same time have one id.
    CallIdsDistinct,
    /// The model's calls come after something to answer.
    CallsAfterUser,
    /// Every call is answered.
    CallsAnswered,
    /// Nothing stands between a call and its result.
    ResultsDirectlyAfterCalls,
    /// Every result answers a call of the round before it.
    ResultAnswersCall,
    /// No call is answered twice.
    OneResultPerCall,
    /// Reasoning is followed by what it led to.
    ReasoningKeepsItem,
    /// A turn of the model that goes on after tool results still begins with its reasoning.
    ReasoningFirst,
    /// Reasoning carries the provider's signature.
    ReasoningSigned,
}

impl Rule {
    /// Where the provider of a wire states the rule; `None` if it does not.
    pub fn source(self, wire: Wire) -> Option<&'static str> {
        self.citation(wire).map(|citation| citation.source)
    }

    /// What the provider of a wire says about it; `None` if it says nothing.
    pub fn citation(self, wire: Wire) -> Option<&'static Citation> {
        wire.rules().iter().find(|citation| citation.rule == self)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shape => "the conversation has the shape of the wire",
            Self::KnownRole => "every role is one of the wire's",
            Self::UserFirst => "the conversation begins with the user",
            Self::RolesAlternate => "user and assistant take turns",
            Self::ContentPresent => "every message has content",
            Self::TextNotEmpty => "no text is empty",
            Self::SpeakerOfPart => "calls come from the model and results from the caller",
            Self::CallListNotEmpty => "a list of calls is not empty",
            Self::CallIdForm => "every call has an id of the provider's form",
            Self::CallIdsDistinct => "calls that are open at once have ids of their own",
            Self::CallsAfterUser => "calls come after a turn of the user",
            Self::CallsAnswered => "every call is answered",
            Self::ResultsDirectlyAfterCalls => "nothing stands between a call and its result",
            Self::ResultAnswersCall => "every result answers a call of the round before it",
            Self::OneResultPerCall => "no call is answered twice",
            Self::ReasoningKeepsItem => "reasoning is followed by the item it belongs to",
            Self::ReasoningFirst => "a turn that goes on after results begins with its reasoning",
            Self::ReasoningSigned => "reasoning carries its signature",
        })
    }
}

/// A rule as one provider states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Citation {
    /// The rule.
    pub rule: Rule,
    /// What the provider says, in its document or in the error of its server.
    pub says: &'static str,
    /// Where: the document and its section, or where the server's error was recorded.
    pub source: &'static str,
}

impl Citation {
    pub(super) const fn new(rule: Rule, says: &'static str, source: &'static str) -> Self {
        Self { rule, says, source }
    }
}
