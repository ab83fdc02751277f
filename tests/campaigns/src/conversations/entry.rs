//! A stored message, as an entry of the model of a conversation.

use tower_chat::{Message, Part, Role, ToolResult};

use super::plan::{Turn, token_of};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    Input(Turn),
    Answer {
        token: String,
        calls: Vec<String>,
    },
    /// Calls, each with its result.
    Results(Vec<(String, CallResult)>),
    /// Content that was not created by a caller, the model or a tool of the campaign.
    Foreign(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallResult {
    /// The result of the tool execution with this unique token.
    Of(String),
    /// An error result that reports that the tool may or may not have run.
    Unknown,
    /// An error result that reports that the tool did not run.
    NeverRun,
}

impl Entry {
    pub(crate) fn of(message: &Message) -> Self {
        Self::read(message).unwrap_or_else(|| Self::Foreign(shortened(message)))
    }

    fn read(message: &Message) -> Option<Self> {
        match message.role {
            Role::User => Turn::of_text(&message.text()).map(Self::Input),
            Role::Assistant => {
                let token = token_of(&message.text())?.to_owned();
                let calls = message.calls().map(|call| call.id.clone());
                Some(Self::Answer { token, calls: calls.collect::<Option<_>>()? })
            }
            Role::Tool => {
                let results: Option<Vec<_>> = message.results().map(result).collect();
                let is_whole = message.parts.iter().all(|part| matches!(part, Part::ToolResult(_)));
                results.filter(|results| is_whole && !results.is_empty()).map(Self::Results)
            }
            _ => None,
        }
    }
}

fn result(result: &ToolResult) -> Option<(String, CallResult)> {
    let text = result.text();
    let what = if let Some(token) = token_of(&text) {
        CallResult::Of(token.to_owned())
    } else if text.contains("may or may not have taken effect") {
        CallResult::Unknown
    } else if text.contains("was not run") {
        CallResult::NeverRun
    } else {
        // The text of the failed tool is part of the error result.
        let (_, after) = text.split_once('<')?;
        CallResult::Of(token_of(after.split_once('>')?.0)?.to_owned())
    };
    Some((result.call_id.clone()?, what))
}

fn shortened(message: &Message) -> String {
    format!("{message:?}").chars().take(300).collect()
}
