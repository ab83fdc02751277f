//! Changes accepted request bodies so that each result has one fault.

use serde_json::{Value, json};
use tower_chat_testkit::validate::{Rule, Wire};

use crate::validate::sites::{Pair, Site, block_list, messages, pairs, set_id};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mutation {
    DropResult,
    DropCall,
    SwapResultAndCall,
    DuplicateResult,
    /// Inserts a text, as a message or as a block, between a call and its result.
    TextBeforeResult,
    /// Moves the text of a message with calls after its calls.
    TextAfterCall,
    UserMessageBetweenResults,
    EmptyCallId,
    EmptyResultId,
    /// Removes the ids of a call and of its result. A body without any id is accepted, so the
    /// missing ids are a fault only if another call has an id.
    EmptyIds,
    /// Moves reasoning after the item that it belongs to.
    ReasoningLast,
}

/// What the documentation of a wire says about a mutation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The provider refuses every mutant, because every mutant breaks at least one of these rules.
    Forbidden(&'static [Rule]),
    /// The provider accepts every mutant.
    Allowed,
    /// The wire has no ids, no position for the text, or no reasoning.
    NotPossible,
}

impl Mutation {
    pub(crate) const ALL: [Self; 11] = [
        Self::DropResult,
        Self::DropCall,
        Self::SwapResultAndCall,
        Self::DuplicateResult,
        Self::TextBeforeResult,
        Self::TextAfterCall,
        Self::UserMessageBetweenResults,
        Self::EmptyCallId,
        Self::EmptyResultId,
        Self::EmptyIds,
        Self::ReasoningLast,
    ];

    /// Returns what the documentation of a wire says about this mutation.
    ///
    /// If the verdict contains several rules, the other calls of the conversation determine which
    /// of these rules a mutant breaks. The result of a removed call, for example, may answer no
    /// call, or be a second result of another call.
    pub(crate) fn verdict(self, wire: Wire) -> Verdict {
        use Verdict::{Allowed, Forbidden, NotPossible};
        let is_flat = block_list(wire).is_none() && wire != Wire::OpenAiResponses;
        match self {
            Self::DropResult => Forbidden(&[Rule::CallsAnswered]),
            Self::DropCall => Forbidden(&[Rule::ResultAnswersCall, Rule::OneResultPerCall]),
            Self::SwapResultAndCall => {
                Forbidden(&[Rule::ResultAnswersCall, Rule::OneResultPerCall])
            }
            Self::DuplicateResult => Forbidden(&[Rule::OneResultPerCall]),
            // On a wire without lists of blocks, a result that follows another message does not
            // belong to the call. The call therefore has no result.
            Self::TextBeforeResult if is_flat => Forbidden(&[Rule::CallsAnswered]),
            Self::TextBeforeResult => Forbidden(&[Rule::ResultsDirectlyAfterCalls]),
            Self::UserMessageBetweenResults if is_flat => Forbidden(&[Rule::CallsAnswered]),
            Self::UserMessageBetweenResults => match wire {
                Wire::BedrockConverse => Forbidden(&[Rule::RolesAlternate]),
                _ => Forbidden(&[Rule::ResultsDirectlyAfterCalls]),
            },
            Self::TextAfterCall => match wire {
                Wire::Anthropic => Forbidden(&[Rule::ResultsDirectlyAfterCalls]),
                Wire::BedrockConverse | Wire::Gemini => Allowed,
                _ => NotPossible,
            },
            Self::EmptyCallId | Self::EmptyResultId => match wire {
                Wire::Ollama => NotPossible,
                _ => Forbidden(&[Rule::CallIdForm]),
            },
            Self::EmptyIds => match wire {
                Wire::Ollama => NotPossible,
                Wire::Gemini => Allowed,
                _ => Forbidden(&[Rule::CallIdForm]),
            },
            Self::ReasoningLast => match wire {
                Wire::Anthropic | Wire::OpenAiResponses => Forbidden(&[Rule::ReasoningKeepsItem]),
                _ => NotPossible,
            },
        }
    }

    /// Returns one mutant for each position of the body at which this mutation is possible.
    pub(crate) fn mutants(self, wire: Wire, body: &Value) -> Vec<Value> {
        if self == Self::ReasoningLast {
            return reasoning_last(wire, body);
        }
        let pairs = pairs(wire, body);
        if self == Self::EmptyIds && pairs.len() == 1 {
            return Vec::new();
        }
        let mutants = pairs.into_iter().filter_map(|pair| {
            let mut mutant = body.clone();
            self.mutate(wire, &mut mutant, pair).then_some(mutant)
        });
        mutants.collect()
    }

    fn mutate(self, wire: Wire, body: &mut Value, Pair { call, result }: Pair) -> bool {
        let field = wire.conversation_field();
        match self {
            Self::DropResult => remove(field, body, result),
            Self::DropCall => remove(field, body, call),
            Self::SwapResultAndCall => {
                list(body, field).swap(call.message, result.message);
            }
            Self::DuplicateResult => {
                let (list, index) = site_list(field, body, result);
                list.insert(index, list[index].clone());
            }
            Self::TextBeforeResult => {
                let text = match (wire, result.entry) {
                    (Wire::Anthropic, Some(_)) => json!({"type": "text", "text": "Wait."}),
                    (_, Some(_)) => json!({"text": "Wait."}),
                    (_, None) => json!({"role": "assistant", "content": "Wait."}),
                };
                let (list, index) = site_list(field, body, result);
                list.insert(index, text);
            }
            Self::TextAfterCall => {
                let Some(name) = block_list(wire) else { return false };
                let blocks = list(&mut body[field][call.message], name);
                let Some(text) = blocks.iter().position(|block| block["text"].is_string()) else {
                    return false;
                };
                let text = blocks.remove(text);
                blocks.push(text);
            }
            Self::UserMessageBetweenResults => user_message_before(wire, body, result),
            Self::EmptyCallId => return set_id(wire, body, call, ""),
            Self::EmptyResultId => return set_id(wire, body, result, ""),
            Self::EmptyIds => {
                return set_id(wire, body, call, "") && set_id(wire, body, result, "");
            }
            Self::ReasoningLast => return false,
        }
        true
    }
}

fn list<'a>(value: &'a mut Value, field: &str) -> &'a mut Vec<Value> {
    value[field].as_array_mut().unwrap()
}

/// Returns the list that contains the entry at `site`, and the index of the entry.
fn site_list<'a>(field: &str, body: &'a mut Value, site: Site) -> (&'a mut Vec<Value>, usize) {
    match site.entry {
        Some((name, index)) => (list(&mut body[field][site.message], name), index),
        None => (list(body, field), site.message),
    }
}

/// Removes the entry at `site`. If the message is then empty, also removes the message.
fn remove(field: &str, body: &mut Value, site: Site) {
    let (entries, index) = site_list(field, body, site);
    entries.remove(index);
    let is_empty = entries.is_empty();
    if let (true, Some((name, _))) = (is_empty, site.entry) {
        let message = body[field][site.message].as_object_mut().unwrap();
        message.remove(name);
        let says = message.get("content").or_else(|| message.get("parts"));
        let is_silent = says.is_none_or(|says| {
            says.is_null() || says == "" || says.as_array().is_some_and(Vec::is_empty)
        });
        if is_silent {
            list(body, field).remove(site.message);
        }
    }
}

fn user_message_before(wire: Wire, body: &mut Value, result: Site) {
    let field = wire.conversation_field();
    let user = match wire {
        Wire::Gemini => json!({"role": "user", "parts": [{"text": "Well?"}]}),
        Wire::BedrockConverse => json!({"role": "user", "content": [{"text": "Well?"}]}),
        _ => json!({"role": "user", "content": "Well?"}),
    };
    let mut rest = body[field][result.message].clone();
    let before = match result.entry {
        None => result.message,
        Some((_, 0)) => {
            list(body, field).remove(result.message);
            result.message
        }
        Some((name, index)) => {
            list(&mut body[field][result.message], name).truncate(index);
            list(&mut rest, name).drain(..index);
            result.message + 1
        }
    };
    let messages = list(body, field);
    if result.entry.is_some() {
        messages.insert(before, rest);
    }
    messages.insert(before, user);
}

fn reasoning_last(wire: Wire, body: &Value) -> Vec<Value> {
    let field = wire.conversation_field();
    let mut mutants = Vec::new();
    for (index, message) in messages(wire, body).iter().enumerate() {
        let mut mutant = body.clone();
        if wire == Wire::OpenAiResponses && message["type"] == "reasoning" {
            let items = list(&mut mutant, field);
            let reasoning = items.remove(index);
            let is_input = |item: &Value| {
                let is_output = item["type"].as_str().is_some_and(|kind| kind.ends_with("_output"));
                is_output || matches!(item["role"].as_str(), Some("user" | "system"))
            };
            let next = items.iter().skip(index).position(is_input);
            let next = next.map_or(items.len(), |next| index + next);
            items.insert(next, reasoning);
            mutants.push(mutant);
        } else if wire == Wire::Anthropic && message["content"][0]["type"] == "thinking" {
            list(&mut mutant[field][index], "content").rotate_left(1);
            mutants.push(mutant);
        }
    }
    mutants
}
