//! Chooses the turns that the next summary covers. A turn is the messages of one run. The last
//! stored summary of a conversation is in force: requests contain this summary in place of the
//! turns that it covers.

use tower_chat_core::Messages;

use crate::replay::{DanglingCalls, Replay, TokenCounter, Turns};

/// The limits of the turns that the next summary covers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// The number of the newest turns that are not covered, at least 1.
    pub(super) kept_turns: usize,
    /// The maximum number of tokens of the turns that are not covered.
    pub(super) kept_tokens: usize,
    /// The number of tokens that one summary may cover. A further summary covers the rest.
    pub(super) covered_tokens: usize,
}

/// The end of a turn at which a summary may end.
struct TurnEnd {
    /// The number of messages up to and including the turn.
    messages: usize,
    tokens: usize,
    /// Whether no call of these messages waits for a result.
    is_closed: bool,
}

/// Returns the number of messages that the next summary covers, or `None` if no turn may be
/// covered. `messages` begin after those of the summary in force.
///
/// The covered messages are whole turns. None of their calls waits for approval, or for a result
/// from the caller. Calls of interrupted runs may be covered, because one interrupted run would
/// otherwise prevent all later summaries.
pub(super) fn messages_to_cover(
    messages: &Messages,
    counter: &dyn TokenCounter,
    limits: Limits,
) -> Option<usize> {
    let (ends, total) = turn_ends(messages, counter);
    let turns = limits.kept_turns.clamp(1, ends.len() + 1);
    let kept_after = |end: &TurnEnd| total.saturating_sub(end.tokens);
    let newest = match ends.len() + 1 - turns {
        0 if total <= limits.kept_tokens => return None,
        covered => covered.saturating_sub(1),
    };
    let all = ends.iter().skip(newest);
    let more = all.take_while(|end| kept_after(end) > limits.kept_tokens).count();
    let newest = (newest + more).min(ends.len().checked_sub(1)?);
    let closed = || ends.iter().take(newest + 1).filter(|end| end.is_closed);
    let fitting = closed().take_while(|end| end.tokens <= limits.covered_tokens).last();
    fitting.or_else(|| closed().next()).map(|end| end.messages)
}

fn turn_ends(messages: &Messages, counter: &dyn TokenCounter) -> (Vec<TurnEnd>, usize) {
    let mut turns = Turns::default();
    let mut replay = Replay::new(DanglingCalls::default());
    let (mut ends, mut tokens) = (Vec::new(), 0_usize);
    for (position, message) in messages.iter().enumerate() {
        // The input of the next turn completes the last calls and results of this turn.
        replay.push(message);
        if turns.begins_with(message) && position > 0 {
            let is_closed = !replay.awaits_results();
            ends.push(TurnEnd { messages: position, tokens, is_closed });
        }
        tokens = tokens.saturating_add(counter.tokens(message));
    }
    (ends, tokens)
}

#[cfg(test)]
mod tests {
    use tower_chat_core::{
        ApprovalRequest, CallPosition, EndedBy, Message, MessageId, Part, RunId, ToolCall,
        ToolResult,
    };

    use super::*;
    use crate::replay::{mark_ended, mark_ended_by};

    /// Returns the number in the text, or 10.
    fn counter(message: &Message) -> usize {
        message.text().parse().unwrap_or(10)
    }

    fn runs(runs: impl IntoIterator<Item = Vec<Message>>) -> Messages {
        let numbered = (1..).zip(runs).flat_map(|(run, messages)| {
            let run = RunId::from_bytes([run; 16]);
            (0..).zip(messages).map(move |(index, mut message)| {
                message.id = Some(MessageId { run, index });
                message
            })
        });
        numbered.collect()
    }

    fn turn(tokens: usize) -> Vec<Message> {
        vec![Message::user((tokens - 10).to_string()), Message::assistant("ten")]
    }

    fn call() -> Message {
        Message::tool_calls([ToolCall::new("c", "look", "{}")])
    }

    fn result() -> Message {
        Message::tool_results([ToolResult::new("c", "found")])
    }

    fn asks(rest: Vec<Message>) -> Vec<Message> {
        [vec![Message::user("ask")], rest].concat()
    }

    fn returned() -> Message {
        let mut call = std::sync::Arc::new(call());
        mark_ended(&mut call);
        (*call).clone()
    }

    fn stopped() -> Message {
        let mut call = std::sync::Arc::new(returned());
        mark_ended_by(&mut call, EndedBy::Stop);
        (*call).clone()
    }

    /// Returns the result of the call of the first run. The result has ended that run.
    fn ending() -> Message {
        let message = MessageId { run: RunId::from_bytes([1; 16]), index: 1 };
        let mut result =
            ToolResult::new("c", "stopped").answering(CallPosition { message, index: 0 });
        result.ends_run = true;
        Message::tool_results([result])
    }

    fn waiting() -> Message {
        let request = ApprovalRequest::new("r", ToolCall::new("c", "pay", "{}"), true);
        Message::new(tower_chat_core::Role::Assistant, vec![Part::ApprovalRequest(request)])
    }

    fn approved() -> Message {
        let request = ApprovalRequest::new("r", ToolCall::new("c", "pay", "{}"), true);
        Message::new(tower_chat_core::Role::User, vec![Part::ApprovalResponse(request.approve())])
    }

    const LIMITS: Limits = Limits { kept_turns: 2, kept_tokens: 1000, covered_tokens: 1000 };

    #[test]
    fn the_newest_turns_remain() {
        let sizes = |sizes: &[usize]| runs(sizes.iter().map(|tokens| turn(*tokens)));
        let limits = |kept_turns, kept_tokens, covered_tokens| Limits {
            kept_turns,
            kept_tokens,
            covered_tokens,
        };
        for (name, tokens, limits, expected) in [
            ("no messages", &[][..], LIMITS, None),
            ("one turn", &[100], limits(1, 0, 1000), None),
            ("as many turns as remain", &[100, 100], LIMITS, None),
            ("two of four turns remain", &[100, 100, 100, 100], LIMITS, Some(4)),
            ("0 turns are 1 turn", &[100, 100, 100], limits(0, 1000, 1000), Some(4)),
            ("the two newest turns are too large", &[10, 100, 600, 600], LIMITS, Some(6)),
            ("two turns of three are too large", &[100, 900, 50], limits(3, 500, 1000), Some(4)),
            ("all turns remain, but are too large", &[500, 600], limits(5, 1000, 1000), Some(2)),
            ("all turns remain, and fit", &[400, 600], limits(5, 1000, 1000), None),
            ("the newest turn alone is too large", &[10, 2000], limits(5, 1000, 1000), Some(2)),
            ("one summary covers at most 1000 tokens", &[400, 400, 400, 10, 10], LIMITS, Some(4)),
            ("one turn has more than that", &[1400, 400, 10, 10], LIMITS, Some(2)),
        ] {
            let found = messages_to_cover(&sizes(tokens), &counter, limits);
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn a_call_that_waits_is_not_covered() {
        let end = || [turn(20), turn(20)];
        let with = |turns: Vec<Vec<Message>>| runs(turns.into_iter().chain(end()));
        for (name, turns, expected) in [
            ("a call with its result", vec![asks(vec![call(), result()])], Some(3)),
            ("a call for approval", vec![asks(vec![waiting()])], None),
            (
                "a call for approval in the second turn",
                vec![turn(20), asks(vec![waiting()])],
                Some(2),
            ),
            (
                "an approved call without its result",
                { vec![asks(vec![waiting()]), vec![approved()]] },
                None,
            ),
            (
                "an approved call with its result",
                {
                    vec![
                        asks(vec![waiting()]),
                        vec![approved(), result(), Message::assistant("paid")],
                    ]
                },
                Some(5),
            ),
            ("a call that was returned to the caller", vec![asks(vec![returned()])], None),
            (
                "a later turn has the result",
                {
                    vec![
                        asks(vec![returned()]),
                        vec![result(), Message::assistant("found")],
                        turn(20),
                    ]
                },
                Some(6),
            ),
            (
                "a call that was returned before the result of a call that has ended an earlier run",
                vec![
                    asks(vec![call()]),
                    asks(vec![returned()]),
                    vec![ending(), Message::user("q")],
                ],
                Some(2),
            ),
            ("a call that a stop has prevented", vec![asks(vec![stopped()])], Some(2)),
            ("a call of an interrupted run", vec![asks(vec![call()])], Some(2)),
        ] {
            assert_eq!(messages_to_cover(&with(turns), &counter, LIMITS), expected, "{name}");
        }
    }
}
