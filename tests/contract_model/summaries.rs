//! The service that writes summaries of conversations, and the policy with which runs make them.

use tower_chat::{Finish, Message, Part, policy::Summarize, request::FinishReason};
use tower_chat_testkit::{ScriptedModel, Step};

use crate::contract_model::case::{Case, Limit};

/// The prompt with which a summary is requested.
pub(crate) const PROMPT: &str = "Summarise.";

/// An answer of the service that writes summaries.
pub(crate) enum Written {
    Text(String),
    /// The answer has no text.
    Nothing,
    /// The answer is cut off.
    Half,
    /// The service fails.
    Error,
}

/// Returns the answer of the service to the request with this number.
pub(crate) fn written(case: &Case, number: usize) -> Written {
    let is_failure = case.failing_summaries >> (number % 64) & 1 == 1;
    match number % 3 {
        _ if !is_failure => Written::Text(format!("S{number}")),
        0 => Written::Nothing,
        1 => Written::Half,
        _ => Written::Error,
    }
}

impl Written {
    pub(crate) fn into_step(self) -> Step {
        match self {
            Self::Text(text) => Step::text(text),
            Self::Nothing => Step::text(" "),
            Self::Half => {
                let half = [Message::assistant("half a summary")];
                Step::answer(half, Finish::new(FinishReason::Length))
            }
            Self::Error => Step::error("no summary"),
        }
    }
}

/// Returns the text of a summary that is added to the store without the service.
pub(crate) fn added_text(entries: usize) -> String {
    format!("D{entries}")
}

/// The beginning of the message of a request that contains a summary.
const HEADING: &str =
    "user: [Summary of the earlier conversation, whose messages are not sent again:]";

/// Returns the message of a request that contains the text of a summary.
pub(crate) fn request_text(text: &str) -> String {
    format!("{HEADING}\n\n{text}")
}

/// Returns whether a message of a request contains a summary.
pub(crate) fn is_request_text(text: &str) -> bool {
    text.starts_with(HEADING)
}

/// Creates the policy that makes summaries of conversations above this limit. The size of a message
/// is the number of its texts, media and results.
pub(crate) fn policy(limit: Limit, service: ScriptedModel) -> Summarize {
    let is_counted =
        |part: &&Part| matches!(part, Part::Text(_) | Part::Media(_) | Part::ToolResult(_));
    let counter = move |message: &Message| message.parts.iter().filter(is_counted).count();
    Summarize::above(limit.size, service)
        .with_token_counter(counter)
        .with_kept_turns(limit.turns)
        .with_prompt(PROMPT)
}
