//! The rules that a conversation must satisfy, and their sources.

use std::fmt;

use super::Wire;

/// A rule of one or more providers for a conversation.
///
/// Most rules apply only to some wires (JSON formats of providers), and each provider states a rule
/// in other words. [`Wire::rules`] returns the rules of a wire.
///
/// ```
/// use tower_chat_testkit::validate::{Rule, Wire};
///
/// for citation in Wire::Anthropic.rules() {
///     println!("{:?}: {} ({})", citation.rule, citation.says, citation.source);
/// }
/// assert!(Rule::CallsAnswered.source(Wire::Anthropic).is_some());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// The JSON of the conversation and of its entries has the structure that the wire requires.
    Shape,
    /// Every role is one that the wire defines.
    KnownRole,
    /// The conversation begins with a user message.
    UserFirst,
    /// Messages of the user and of the assistant alternate.
    RolesAlternate,
    /// Every message has content.
    ContentPresent,
    /// No text is empty.
    TextNotEmpty,
    /// Only messages of the model contain calls, and only messages of the client contain results.
    SpeakerOfPart,
    /// A list of calls is not empty.
    CallListNotEmpty,
    /// Every call has an id in the form that the provider accepts.
    CallIdForm,
    /// The calls of a round have different ids. In OpenAI Responses, all calls of the input have
    /// different ids.
    CallIdsDistinct,
    /// A message with calls follows a message of the user or a result.
    CallsAfterUser,
    /// Every call has a result.
    CallsAnswered,
    /// No message is between a call and its result.
    ResultsDirectlyAfterCalls,
    /// Every result answers a call of its round.
    ResultAnswersCall,
    /// No call has two results.
    OneResultPerCall,
    /// Reasoning is followed by the item to which it belongs.
    ReasoningKeepsItem,
    /// If the conversation ends with tool results, the turn of the model that contains their calls
    /// begins with reasoning.
    ReasoningFirst,
    /// Reasoning has the signature that the provider has added to it.
    ReasoningSigned,
}

impl Rule {
    /// Returns the source of the rule for a wire, or `None` if the rule does not apply to the wire.
    pub fn source(self, wire: Wire) -> Option<&'static str> {
        self.citation(wire).map(|citation| citation.source)
    }

    /// Returns the rule in the words of the wire's provider, or `None` if the rule does not apply
    /// to the wire.
    pub fn citation(self, wire: Wire) -> Option<&'static Citation> {
        wire.rules().iter().find(|citation| citation.rule == self)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shape => "the conversation has the structure that the wire requires",
            Self::KnownRole => "every role is one that the wire defines",
            Self::UserFirst => "the conversation begins with the user",
            Self::RolesAlternate => "messages of the user and of the assistant alternate",
            Self::ContentPresent => "every message has content",
            Self::TextNotEmpty => "no text is empty",
            Self::SpeakerOfPart => {
                "calls are in messages of the model and results in messages of the client"
            }
            Self::CallListNotEmpty => "a list of calls is not empty",
            Self::CallIdForm => "every call has an id in the form that the provider accepts",
            Self::CallIdsDistinct => "the calls of a round have different ids",
            Self::CallsAfterUser => "calls follow a message of the user or a result",
            Self::CallsAnswered => "every call is answered",
            Self::ResultsDirectlyAfterCalls => "no message is between a call and its result",
            Self::ResultAnswersCall => "every result answers a call of its round",
            Self::OneResultPerCall => "no call is answered twice",
            Self::ReasoningKeepsItem => "the item that reasoning belongs to follows the reasoning",
            Self::ReasoningFirst => {
                "a turn that continues after tool results begins with reasoning"
            }
            Self::ReasoningSigned => "reasoning has the signature of the provider",
        })
    }
}

/// A rule in the words of one provider, with its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Citation {
    /// The rule.
    pub rule: Rule,
    /// The statement in the provider's documentation, or in an error of its server.
    pub says: &'static str,
    /// The document and its section, or the recording that contains the error of the server.
    pub source: &'static str,
}

impl Citation {
    pub(super) const fn new(rule: Rule, says: &'static str, source: &'static str) -> Self {
        Self { rule, says, source }
    }
}
