//! Formats the stored messages of a conversation for people.

use std::sync::Arc;

use tower_chat::{Message, Part, Role, run::RunId};

/// The number of characters of a text after which the printed line is cut off.
const SHOWN_CHARACTERS: usize = 200;

const TITLE_CHARACTERS: usize = 60;

/// Returns the beginning of a text as a single line.
pub(super) fn cut(text: &str) -> String {
    cut_at(text, SHOWN_CHARACTERS)
}

/// Returns a title that is formed from the text of a message, or `None` if the text is empty.
pub(super) fn title_of(text: &str) -> Option<String> {
    let title = cut_at(text, TITLE_CHARACTERS);
    (!title.is_empty()).then_some(title)
}

fn cut_at(text: &str, max_characters: usize) -> String {
    let words = text.split(|it: char| it.is_whitespace() || it.is_control());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let line = words.join(" ");
    match line.char_indices().nth(max_characters) {
        None => line,
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default().trim_end()),
    }
}

/// Formats a message as lines for its text, its calls and its results.
pub(super) fn lines_of(message: &Message) -> Vec<String> {
    let mut lines = Vec::new();
    let text = cut(&message.text());
    if !text.is_empty() {
        let mark = if message.role == Role::User { "> " } else { "" };
        lines.push(format!("{mark}{text}"));
    }
    lines.extend(call_lines_of(message));
    lines
}

/// Formats the calls and the results of a message, one line for each.
pub(super) fn call_lines_of(message: &Message) -> Vec<String> {
    let mut lines = Vec::new();
    for part in &message.parts {
        match part {
            Part::ToolCall(call) => lines.push(call_line(&call.name, &call.arguments)),
            Part::ApprovalRequest(request) => {
                let call = call_line(&request.call.name, &request.call.arguments);
                lines.push(format!("{call} (needed approval)"));
            }
            Part::ToolResult(result) => {
                let name = result.name.as_deref().unwrap_or("result");
                lines.push(format!("  {name}: {}", cut(&result.text())));
            }
            Part::ApprovalResponse(response) => {
                let decision = if response.approved { "approved" } else { "refused" };
                lines.push(format!("> {decision}"));
            }
            _ => {}
        }
    }
    lines
}

pub(super) fn call_line(tool: &str, arguments: &str) -> String {
    format!("* {tool} {}", cut(arguments)).trim_end().to_owned()
}

/// Returns a description of the stored messages of a run, such as
/// `your message, 2 tool calls, 2 results and 1 text of the model`.
pub(super) fn stored_of_run<'m>(
    messages: impl Iterator<Item = &'m Arc<Message>>,
    run: RunId,
) -> Option<String> {
    let of_run: Vec<_> =
        messages.filter(|message| message.id.is_some_and(|id| id.run == run)).collect();
    let from = |role| of_run.iter().filter(move |message| message.role == role);
    let decisions = |message: &&&Arc<Message>| {
        message.parts.iter().any(|part| matches!(part, Part::ApprovalResponse(_)))
    };
    let questions = from(Role::User).filter(|message| !decisions(message)).count();
    let decisions = from(Role::User).filter(decisions).count();
    let calls: usize = of_run.iter().map(|message| message.asked_calls().count()).sum();
    let results: usize = of_run.iter().map(|message| message.results().count()).sum();
    let texts = from(Role::Assistant).filter(|message| !message.text().is_empty());
    let is_cut = |message: &&&Arc<Message>| message.metadata.contains_key("interrupted");
    let whole = texts.clone().filter(|message| !is_cut(message)).count();
    let partial = texts.filter(is_cut).count();
    let counted = [
        (questions, "your message", "of your messages"),
        (decisions, "your decision", "of your decisions"),
        (calls, "1 tool call", "tool calls"),
        (results, "1 result", "results"),
        (whole, "1 text of the model", "texts of the model"),
        (partial, "the partial answer", "partial answers"),
    ];
    let counted: Vec<String> = counted
        .into_iter()
        .filter_map(|(count, one, several)| match count {
            0 => None,
            1 => Some(one.to_owned()),
            _ => Some(format!("{count} {several}")),
        })
        .collect();
    let (last, others) = counted.split_last()?;
    match others {
        [] => Some(last.clone()),
        _ => Some(format!("{} and {last}", others.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use tower_chat::{ToolCall, ToolResult, message::MessageId};

    use super::*;

    #[test]
    fn a_title_is_one_line_and_is_shortened_to_60_characters() {
        assert_eq!(cut("two\n lines\u{1b}[2J"), "two lines [2J");
        assert_eq!(title_of(&"é".repeat(61)), Some(format!("{}…", "é".repeat(60))));
        assert_eq!(title_of(&"ü".repeat(60)), Some("ü".repeat(60)));
        assert_eq!(title_of(" \n\t"), None);
    }

    #[test]
    fn the_stored_messages_of_a_run_are_counted_in_words() {
        let (run, other) = (RunId::new(), RunId::new());
        let numbered = |mut message: Message, run, index| {
            message.id = Some(MessageId { run, index });
            Arc::new(message)
        };
        let mut partial = Message::assistant("the answer beg");
        partial.metadata.insert("interrupted".to_owned(), true.into());
        let messages = [
            numbered(Message::user("an earlier question"), other, 0),
            numbered(Message::user("the question"), run, 0),
            numbered(Message::tool_calls([ToolCall::new("c1", "look", "{}")]), run, 1),
            numbered(Message::tool_results([ToolResult::new("c1", "seen")]), run, 2),
            numbered(partial, run, 3),
        ];
        let stored = |count: usize| stored_of_run(messages.iter().take(count), run);
        assert_eq!(stored(1), None);
        assert_eq!(stored(2).as_deref(), Some("your message"));
        assert_eq!(stored(3).as_deref(), Some("your message and 1 tool call"));
        let all = "your message, 1 tool call, 1 result and the partial answer";
        assert_eq!(stored(5).as_deref(), Some(all));
    }
}
