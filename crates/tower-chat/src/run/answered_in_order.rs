//! Which calls results answer, where that is seen without a replay of what stands before.

use tower_chat_core::{Message, MessageId, Part, Role};

use crate::replay::has_distinct_ids;

/// The message before a message of results, with its id, if those answer its calls as they mostly
/// do: from the first on, in order, each by an id that no other has, and no other message of the
/// same answer asks for anything. So much is seen without a replay of what stands before.
///
/// `before` are the messages before the results, the nearest first.
pub(super) fn answered_in_order<'m>(
    mut before: impl Iterator<Item = &'m Message>,
    results: &Message,
) -> Option<(MessageId, &'m Message)> {
    let is_plain = |part: &Part| {
        !matches!(part, Part::ToolResult(_) | Part::ApprovalRequest(_) | Part::ApprovalResponse(_))
    };
    let asking = before.next()?;
    let is_round = asking.role == Role::Assistant
        && results.role == Role::Tool
        && asking.parts.iter().all(is_plain);
    let id = asking.id.filter(|_| is_round)?;
    let mut calls = asking.calls();
    let mut results = results.results().peekable();
    let is_answered = results.peek().is_some()
        && results.all(|result| {
            result.call.is_none() && calls.next().is_some_and(|call| call.id == result.call_id)
        })
        && has_distinct_ids(asking)
        && !continues_round(before, asking);
    is_answered.then_some((id, asking))
}

/// Whether the messages before a message of an answer, the nearest first, include one of the same
/// answer that asks for something.
pub(super) fn continues_round<'m>(
    before: impl Iterator<Item = &'m Message>,
    message: &Message,
) -> bool {
    let run = message.id.map(|id| id.run);
    before
        .take_while(|earlier| earlier.role == Role::Assistant && earlier.id.map(|id| id.run) == run)
        .any(|earlier| earlier.asked_calls().next().is_some())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tower_chat_core::{RunId, ToolCall, ToolDefinition, ToolResult};

    use super::*;
    use crate::{
        approval::request_approvals,
        replay::{DanglingCalls, Replay},
    };

    const IDS: [&str; 4] = ["", "a", "b", "c"];

    fn asking(ids: &[&str]) -> Message {
        let mut message =
            Message::tool_calls(ids.iter().map(|id| ToolCall::new(*id, "look", "{}")));
        message.id = Some(MessageId { run: RunId::from_bytes([7; 16]), index: 3 });
        message
    }

    fn results(ids: &[&str]) -> Message {
        Message::tool_results(ids.iter().map(|id| ToolResult::new(*id, "found")))
    }

    /// Up to three of the ids, in every order, repeated ones too.
    fn lists() -> Vec<Vec<&'static str>> {
        let mut lists = vec![Vec::new()];
        let mut longest = lists.clone();
        for _ in 0..3 {
            let longer = |list: &Vec<&'static str>| {
                let list = list.clone();
                IDS.map(move |id| list.iter().copied().chain([id]).collect::<Vec<_>>())
            };
            longest = longest.iter().flat_map(longer).collect();
            lists.extend(longest.iter().cloned());
        }
        lists
    }

    #[test]
    fn what_is_seen_at_once_is_what_a_replay_finds() {
        let mut seen = 0;
        for calls in lists() {
            let asking = asking(&calls);
            let mut replay = Replay::new(DanglingCalls::Drop);
            replay.push(&Arc::new(Message::user("hi")));
            replay.push(&Arc::new(asking.clone()));
            for answers in lists() {
                let results = results(&answers);
                let Some((id, before)) = answered_in_order([&asking].into_iter(), &results) else {
                    continue;
                };
                let found = replay.clone().push_answering(&[Arc::new(results)]);
                let found: Vec<_> = found
                    .into_iter()
                    .flatten()
                    .map(|it| it.map(|it| (it.call_position, it.call)))
                    .collect();
                let expected: Vec<_> = (0..)
                    .zip(before.calls().take(answers.len()))
                    .map(|(index, call)| Some(((id, index), call.clone())))
                    .collect();
                assert_eq!(found, expected, "{calls:?} answered by {answers:?}");
                seen += 1;
            }
        }
        // Of one, two and three calls with ids of their own, each beginning.
        assert_eq!(seen, 3 + 6 * 2 + 6 * 3);
    }

    #[test]
    fn everything_else_is_left_to_the_replay() {
        let of = |before: &Message, results: &Message| {
            answered_in_order([before].into_iter(), results).is_some()
        };
        assert!(of(&asking(&["a", "b"]), &results(&["a", "b"])));
        let tools = [ToolDefinition::new("look", "", serde_json::json!({})).needs_approval()];
        let waiting = request_approvals(Arc::new(asking(&["a"])), &tools);
        assert!(!of(&waiting, &results(&["a"])));
        let mut nameless = asking(&["a"]);
        nameless.id = None;
        assert!(!of(&nameless, &results(&["a"])));
        let mut whole = asking(&["a"]);
        whole.parts.push(Part::ToolResult(ToolResult::new("a", "found")));
        assert!(!of(&whole, &results(&["a"])));
        assert!(!of(&asking(&["a"]), &Message::user("and?")));
        let many: Vec<String> = (0..17).map(|id| id.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(of(&asking(&many), &results(&many)));
    }
}
