//! Builds the output for a round whose calls are not answered in order. A round consists of the
//! calls of one answer of the model and their results. A round is closed when it can receive no
//! more results.

use std::sync::Arc;

use tower_chat_core::{Message, Part, Role, ToolResult, pairing::asked_call};

use super::{After, Following, PlacedResult, Round, RoundCall};
use crate::replay::{
    broken_links,
    policy::{DanglingCalls, Strictness},
};

#[derive(Debug)]
pub(in crate::replay) enum AfterRound {
    /// Results that answer no call of the round, and the message of the last of them.
    Leftover(Vec<ToolResult>, Arc<Message>),
    Message(Arc<Message>),
}

impl Round {
    /// Closes a round whose calls are not answered in order. In the output, each message of the
    /// answer is followed by the results of the calls in this message. Returns the output, the calls
    /// without a result, and the messages and results after the round.
    pub(in crate::replay) fn close(
        self,
        strictness: Strictness,
    ) -> (Vec<Arc<Message>>, Vec<RoundCall>, Vec<AfterRound>) {
        let (calls, leftover) = self.pair();
        let is_of_ended_run = self.is_of_ended_run(&calls);
        let shows_interrupted = match strictness {
            Strictness::Repair(DanglingCalls::Interrupted | DanglingCalls::FromRecord) => {
                !is_of_ended_run
            }
            Strictness::Repair(_) | Strictness::Lenient => false,
        };
        let is_returned = is_of_ended_run && !self.has_end_reason(&calls);
        let forgotten = self.forgotten();
        let mut calls = calls.into_iter().enumerate().map(|(index, (mut call, result))| {
            let is_forgotten = forgotten.contains(&*call.id);
            call.is_awaited |= is_returned && !is_forgotten;
            PairedCall {
                is_hidden: self.after.hidden.contains(&index),
                is_interrupted: shows_interrupted && !is_forgotten,
                call,
                result,
            }
        });
        let mut unanswered = Vec::new();
        let mut output: Vec<OutputMessage> = Vec::new();
        for (message, _) in self.answer() {
            output.push(output_message(message, &mut calls, strictness, &mut unanswered));
        }
        if let Some(last) = output.iter().rposition(|message| message.is_answered) {
            // No provider accepts a request that ends with text of the model, so the text after the
            // last answered calls is moved before them.
            let from_last = output.split_off(last).into_iter();
            let (words, asking): (Vec<_>, Vec<_>) =
                from_last.partition(|message| message.results.is_empty());
            output.extend(words);
            output.extend(asking);
        }
        let mut messages = Vec::new();
        for OutputMessage { message, results, .. } in output {
            messages.extend(message);
            messages.extend(self.results_messages(results).into_iter().map(Arc::new));
        }
        let after = self.messages_after(leftover);
        (messages, unanswered, after)
    }

    /// Returns the messages and results after the round. Each message is after the results of its
    /// own run, and before those of later runs.
    fn messages_after(self, leftover: Vec<PlacedResult>) -> Vec<AfterRound> {
        let After { results, following, .. } = self.after;
        let run = |message: &Message| message.id.map(|id| id.run);
        let mut following = following.into_iter().peekable();
        let mut all = Vec::new();
        for (position, result) in leftover {
            let Some(message) = results.get(position) else { continue };
            let is_earlier = |next: &Following| {
                next.results_before <= position && run(&next.message) != run(message)
            };
            while let Some(next) = following.next_if(is_earlier) {
                all.push(AfterRound::Message(next.message));
            }
            match all.last_mut() {
                Some(AfterRound::Leftover(results, last)) => {
                    results.push(result);
                    last.clone_from(message);
                }
                Some(AfterRound::Message(_)) | None => {
                    all.push(AfterRound::Leftover(vec![result], message.clone()));
                }
            }
        }
        all.extend(following.map(|next| AfterRound::Message(next.message)));
        all
    }

    /// Returns messages with these results, in their order. Consecutive results that one run has
    /// added are in one message, which has the other fields of the first message with results of
    /// this run. The error result of an interrupted call belongs to the run of the call.
    fn results_messages(&self, results: Vec<(Option<usize>, ToolResult)>) -> Vec<Message> {
        let run = |message: &Message| message.id.map(|id| id.run);
        let mut output: Vec<Message> = Vec::new();
        let mut run_of_last = None;
        for (position, result) in results {
            let source = position.and_then(|position| self.results().get(position));
            let of_run = source.map_or_else(|| run(&self.message), |source| run(source));
            let last = output.last_mut().filter(|_| run_of_last == Some(of_run));
            run_of_last = Some(of_run);
            if let Some(last) = last {
                last.parts.push(Part::ToolResult(result));
                continue;
            }
            let first = self.results().iter().find(|message| run(message) == of_run);
            let mut message = match first {
                Some(first) => (**first).clone(),
                None => Message::new(Role::Tool, Vec::new()),
            };
            message.parts = vec![Part::ToolResult(result)];
            output.push(message);
        }
        output
    }
}

/// Returns whether one of the results of a round has ended its run.
pub(super) fn is_ended_by_tool(calls: &[(RoundCall, Option<PlacedResult>)]) -> bool {
    calls.iter().any(|(_, result)| result.as_ref().is_some_and(|(_, result)| result.ends_run))
}

/// A call of a round with its result.
struct PairedCall {
    call: RoundCall,
    result: Option<PlacedResult>,
    is_hidden: bool,
    /// Whether the call gets an error result that reports an interruption if it has no result.
    is_interrupted: bool,
}

/// The output for a message of the answer.
struct OutputMessage {
    /// `None` if no part remains.
    message: Option<Arc<Message>>,
    /// The results, each with the index of its message, or `None` for an interrupted call.
    results: Vec<(Option<usize>, ToolResult)>,
    /// Whether a call of the message has its real result.
    is_answered: bool,
}

/// Returns the output for a message of the answer, whose calls are the next items of `calls`. Adds
/// the calls without a result to `unanswered`.
fn output_message(
    message: &Arc<Message>,
    calls: &mut impl Iterator<Item = PairedCall>,
    strictness: Strictness,
    unanswered: &mut Vec<RoundCall>,
) -> OutputMessage {
    let mut results = Vec::new();
    if !Round::opens_with(message) {
        return OutputMessage { message: Some(message.clone()), results, is_answered: false };
    }
    let mut message = (**message).clone();
    let (mut retained, mut gaps, mut is_answered) = (0, Vec::new(), false);
    message.parts.retain_mut(|part| {
        retained += 1;
        if asked_call(part).is_none() {
            return true;
        }
        let Some(PairedCall { call, result, is_hidden, is_interrupted }) = calls.next() else {
            return true;
        };
        let keep = !is_hidden
            && match (result, call.is_pending_approval(), strictness) {
                (Some((position, result)), _, _) => {
                    is_answered = true;
                    results.push((Some(position), call.answer(result)));
                    true
                }
                (None, false, Strictness::Lenient) => true,
                (None, false, _) if is_interrupted => {
                    results.push((None, call.interrupted()));
                    unanswered.push(RoundCall { is_visible: true, ..call.clone() });
                    true
                }
                (None, _, _) => {
                    unanswered.push(call.clone());
                    false
                }
            };
        if keep {
            *part = Part::ToolCall(call.into_call());
        } else {
            retained -= 1;
            gaps.push(retained);
        }
        keep
    });
    let dropped_a_call = !gaps.is_empty();
    if dropped_a_call {
        broken_links::unlink(&mut message.parts, &gaps);
        drop_trailing_reasoning(&mut message.parts);
    }
    let is_visible = has_content(&message) || !dropped_a_call;
    let message = is_visible.then(|| Arc::new(message));
    OutputMessage { message, results, is_answered }
}

/// Removes the reasoning and native items at the end, which belong to a removed part after them. A
/// summary by the service remains, because it belongs to the messages before it.
pub(in crate::replay) fn drop_trailing_reasoning(parts: &mut Vec<Part>) {
    let belongs_to_next = |part: &Part| match part {
        Part::Reasoning(_) => true,
        Part::Native(native) => !native.is_summary(),
        _ => false,
    };
    while parts.last().is_some_and(belongs_to_next) {
        parts.pop();
    }
}

/// Returns whether a message contains more than empty text, reasoning and native items. A summary by
/// the service is content.
pub(in crate::replay) fn has_content(message: &Message) -> bool {
    message.parts.iter().any(|part| match part {
        Part::Text(text) => !text.text.is_empty(),
        Part::Reasoning(_) => false,
        Part::Native(native) => native.is_summary(),
        _ => true,
    })
}
