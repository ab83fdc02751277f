//! Reduces messages to the content that identifies them when a client repeats them.

use std::{borrow::Cow, collections::HashSet};

use tower_chat_core::{
    MediaSource, Message, Messages, Part, Role,
    pairing::{AnswerIds, AnswerKey, CallLog, ResultPosition, ids_of_calls},
};

use super::{approval, media_source};

/// The content of a message that identifies it when a client repeats it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Entry {
    /// The text of a system message.
    System(String),
    /// The text and media of a user message.
    User { text: String, media: Vec<MediaSource> },
    /// The text and the calls of an assistant message.
    Assistant { text: String, calls: Vec<Call> },
    /// The results in one message: for each result the id of its call or, without an id, its text.
    Results(Vec<String>),
    /// For each decision, the id of the approval request, whether it was approved, and the
    /// arguments.
    Approvals(Vec<(String, bool, Option<String>)>),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Call {
    id: Option<String>,
    name: String,
    /// The arguments of a call without an id, which identify the call.
    arguments: Option<String>,
}

impl Entry {
    pub(super) fn is_system(&self) -> bool {
        matches!(self, Self::System(_))
    }

    pub(super) fn is_assistant(&self) -> bool {
        matches!(self, Self::Assistant { .. })
    }

    /// Returns whether the entry has text or calls of the model, by which it can be recognised.
    pub(super) fn is_statement(&self) -> bool {
        matches!(self, Self::Assistant { text, calls } if !(text.is_empty() && calls.is_empty()))
    }

    /// Returns the entry of a message for a client that repeats the messages of an answer one by
    /// one.
    pub(super) fn verbatim(message: &Message) -> Self {
        match message.role {
            Role::System | Role::Developer => Self::system(message),
            Role::Assistant => {
                let calls = message.asked_calls().map(|call| {
                    let id = call.id.clone().filter(|id| !id.is_empty());
                    let arguments = id.is_none().then(|| call.arguments.clone());
                    Call { id, name: call.name.clone(), arguments }
                });
                Self::Assistant { text: text(message), calls: calls.collect() }
            }
            _ if message.results().next().is_some() => {
                let key = |result: &tower_chat_core::ToolResult| {
                    let id = result.call_id.clone().filter(|id| !id.is_empty());
                    id.unwrap_or_else(|| result.text())
                };
                Self::Results(message.results().map(key).collect())
            }
            _ if is_about_approval(message) => {
                let owned = |(id, approved, arguments): (&str, bool, Option<&str>)| {
                    (id.to_owned(), approved, arguments.map(str::to_owned))
                };
                let answers = message.parts.iter().filter_map(approval).map(owned);
                Self::Approvals(answers.collect())
            }
            _ => Self::user(message),
        }
    }

    /// Returns the entry of a message from a client that received each answer as one message.
    pub(super) fn sent_by_client(message: &Message) -> Self {
        match message.role {
            Role::System | Role::Developer => Self::system(message),
            Role::Assistant => {
                let calls = client_calls(message, ids_of_calls(message), |_, _| true);
                Self::Assistant { text: text(message), calls }
            }
            _ => match message.results().next() {
                Some(result) => Self::Results(vec![result.call_id.clone().unwrap_or_default()]),
                None => Self::user(message),
            },
        }
    }

    fn system(message: &Message) -> Self {
        Self::System(text(message))
    }

    fn user(message: &Message) -> Self {
        let media = message.parts.iter().filter_map(media_source).cloned();
        Self::User { text: text(message), media: media.collect() }
    }
}

/// Returns the names of the tools whose calls are in the messages of a client. Calls of other tools
/// ran in the stack, and the client has not received them.
pub(super) fn names_of_calls<'e>(sent: impl IntoIterator<Item = &'e Entry>) -> HashSet<&'e str> {
    let calls = sent.into_iter().filter_map(|entry| {
        let Entry::Assistant { calls, .. } = entry else { return None };
        Some(calls)
    });
    calls.flatten().map(|call| &*call.name).collect()
}

/// Returns the entries of a stored conversation for a client that received each answer as one
/// message. Omits the calls that ran in the stack, the results of these calls, and calls of tools
/// that are not in `names`.
pub(super) fn as_client_knows(messages: &Messages, names: &HashSet<&str>) -> Vec<Entry> {
    let answers = Answers::of(messages);
    let mut known = Vec::new();
    let mut answering = None;
    let mut ids = AnswerIds::default();
    let mut before: Option<&Message> = None;
    for (number, message) in (0..).zip(messages.iter()) {
        let run = message.id.map(|id| id.run);
        let ids = ids.next(message);
        match message.role {
            Role::System | Role::Developer => known.push(Entry::system(message)),
            Role::Assistant => {
                let is_open = |index: u32, name: &str| {
                    names.contains(name) && !answers.within_run.contains(&(number, index))
                };
                let (own_text, asked) = (message.text(), client_calls(message, ids, is_open));
                match known.last_mut() {
                    Some(Entry::Assistant { text, calls }) if run.is_some() && run == answering => {
                        if !text.is_empty() && !own_text.is_empty() {
                            text.push_str("\n\n");
                        }
                        text.push_str(&own_text);
                        // The client received only the calls of the run's final answer, which may
                        // have several messages.
                        if !before.is_some_and(|before| AnswerKey::is_shared(before, message)) {
                            calls.clear();
                        }
                        calls.extend(asked);
                        calls.sort_unstable();
                    }
                    _ => known.push(Entry::Assistant { text: own_text, calls: asked }),
                }
            }
            _ if message.results().next().is_some() => {
                let of_client = |(index, _): &(u32, _)| {
                    answers.from_client.contains(&ResultPosition { message: number, index: *index })
                };
                let results = (0..).zip(message.results()).filter(of_client);
                let ids = results.filter_map(|(_, result)| result.call_id.clone());
                known.extend(ids.map(|id| Entry::Results(vec![id])));
            }
            // The client has not sent messages that were queued during a run.
            _ if run.is_some() && run == answering => {}
            _ if is_about_approval(message) => {}
            _ => known.push(Entry::user(message)),
        }
        if message.role == Role::Assistant {
            answering = run;
        }
        before = Some(message);
    }
    for entry in &mut known {
        if let Entry::Assistant { text, .. } = entry {
            *text = text.trim().to_owned();
        }
    }
    known
}

/// The origin of the results of calls.
#[derive(Default)]
struct Answers {
    /// The calls that ran in the stack, whose results are in the same run: the number of the
    /// message and the index of the call in it.
    within_run: HashSet<(u64, u32)>,
    /// The results that a client sent in a later run, except results of calls that had to be
    /// approved.
    from_client: HashSet<ResultPosition>,
}

impl Answers {
    fn of(messages: &Messages) -> Self {
        let mut answers = Self::default();
        let run_of = |number: u64| {
            let message = messages.get(usize::try_from(number).ok()?)?;
            Some(message.id?.run)
        };
        for call in CallLog::of(messages.iter().map(|message| &**message)).calls() {
            let Some(result) = call.result.filter(|_| !call.needs_approval) else { continue };
            let run = run_of(call.message);
            if run.is_some() && run == run_of(result.position.message) {
                answers.within_run.insert((call.message, call.index));
            } else {
                answers.from_client.insert(result.position);
            }
        }
        answers
    }
}

/// Returns the sorted calls for which `is_open` returns `true`, with the ids that a client uses in
/// its results. Omits calls that wait for approval.
fn client_calls(
    message: &Message,
    ids: Vec<Cow<'_, str>>,
    is_open: impl Fn(u32, &str) -> bool,
) -> Vec<Call> {
    if message.calls().next().is_none() {
        return Vec::new();
    }
    let asked = message.parts.iter().filter_map(|part| match part {
        Part::ToolCall(call) if !call.provider_executed => Some(Some(call)),
        Part::ApprovalRequest(_) => Some(None),
        _ => None,
    });
    let calls = (0..).zip(ids.into_iter().zip(asked));
    let calls = calls.filter_map(|(index, (id, call))| Some((index, id, call?)));
    let mut calls: Vec<Call> = calls
        .filter(|(index, _, call)| is_open(*index, &call.name))
        .map(|(_, id, call)| Call {
            id: Some(id.into_owned()),
            name: call.name.clone(),
            arguments: None,
        })
        .collect();
    calls.sort_unstable();
    calls
}

fn text(message: &Message) -> String {
    message.text().trim().to_owned()
}

fn is_about_approval(message: &Message) -> bool {
    let is_it = |part: &Part| matches!(part, Part::ApprovalResponse(_) | Part::ApprovalRequest(_));
    !message.parts.is_empty() && message.parts.iter().all(is_it)
}
