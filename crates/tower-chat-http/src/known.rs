//! A conversation as its client knows it.

use std::collections::{HashMap, HashSet};

use tower_chat::{
    core::{Media, Message, Messages, Part, Role, RunId},
    replay::effective_call_ids,
};

/// One entry of a conversation, as far as a client can repeat it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Known {
    /// What whoever set the conversation up says.
    System(String),
    /// What the user says.
    User { text: String, media: Vec<Media> },
    /// What the model says, in all messages of one run, and the calls that nobody has answered
    /// within the run: ids and names.
    Assistant { text: String, calls: Vec<(String, String)> },
    /// The result of the call with this id.
    Result(String),
}

impl Known {
    /// Whether what was sent is a repetition of this, which was stored.
    ///
    /// The client may know fewer calls of a message than were stored with it: those of tools that
    /// the stack has are not its own.
    pub(crate) fn is_repeated_by(&self, sent: &Self) -> bool {
        match (self, sent) {
            (Self::System(stored), Self::System(sent)) => stored.trim() == sent.trim(),
            (
                Self::User { text: stored, media: stored_media },
                Self::User { text: sent, media: sent_media },
            ) => {
                let is_same = |(a, b): (&Media, &Media)| a.source == b.source;
                stored.trim() == sent.trim()
                    && stored_media.len() == sent_media.len()
                    && stored_media.iter().zip(sent_media).all(is_same)
            }
            (
                Self::Assistant { text: stored, calls: stored_calls },
                Self::Assistant { text: sent, calls: sent_calls },
            ) => {
                stored.trim() == sent.trim()
                    && sent_calls.iter().all(|call| stored_calls.contains(call))
            }
            (Self::Result(stored), Self::Result(sent)) => stored == sent,
            (Self::System(_) | Self::User { .. } | Self::Assistant { .. } | Self::Result(_), _) => {
                false
            }
        }
    }

    pub(crate) fn is_system(&self) -> bool {
        matches!(self, Self::System(_))
    }

    pub(crate) fn is_assistant(&self) -> bool {
        matches!(self, Self::Assistant { .. })
    }

    /// What a message of a request says.
    pub(crate) fn of_sent(message: &Message) -> Self {
        match message.role {
            Role::System | Role::Developer => Self::System(message.text()),
            Role::Assistant => {
                Self::Assistant { text: message.text(), calls: calls(message, |_| true) }
            }
            _ => match message.results().next() {
                Some(result) => Self::Result(result.call_id.clone().unwrap_or_default()),
                None => Self::User { text: message.text(), media: media(message) },
            },
        }
    }
}

/// A stored conversation, and whether its last entry is one that the client may not have got: a
/// message with calls, after which the run broke off.
pub(crate) fn of_stored(messages: &Messages) -> (Vec<Known>, bool) {
    let answers = Answers::of(messages);
    let mut known = Vec::new();
    let mut speaking = None;
    let mut may_be_unseen = false;
    for message in messages.iter() {
        let run = message.id.map(|id| id.run);
        may_be_unseen = match message.role {
            Role::Assistant => message.calls().next().is_some(),
            Role::Tool => may_be_unseen && run == speaking && run.is_some(),
            _ => false,
        };
        match message.role {
            Role::System | Role::Developer => known.push(Known::System(message.text())),
            Role::Assistant => {
                let is_open = |id: &str| !answers.is_within_run(run, id);
                let (said, asked) = (message.text(), calls(message, is_open));
                match known.last_mut() {
                    Some(Known::Assistant { text, calls }) if run.is_some() && run == speaking => {
                        if !text.is_empty() && !said.is_empty() {
                            text.push_str("\n\n");
                        }
                        text.push_str(&said);
                        *calls = asked;
                    }
                    _ => known.push(Known::Assistant { text: said, calls: asked }),
                }
            }
            _ if message.results().next().is_some() => {
                let shown = message
                    .results()
                    .filter_map(|result| result.call_id.as_deref())
                    .filter(|id| answers.is_from_client(run, id));
                known.extend(shown.map(|id| Known::Result(id.to_owned())));
            }
            // What was queued for a run under way did not come from its client.
            _ if run.is_some() && run == speaking => {}
            _ if message.parts.iter().all(is_about_approval) && !message.parts.is_empty() => {}
            _ => known.push(Known::User { text: message.text(), media: media(message) }),
        }
        if message.role == Role::Assistant {
            speaking = run;
        }
    }
    (known, may_be_unseen)
}

/// Which calls were answered in the run that asked for them, by tools of the stack.
struct Answers {
    asked: HashMap<String, Vec<Option<RunId>>>,
    within_run: HashSet<(Option<RunId>, String)>,
}

impl Answers {
    fn of(messages: &Messages) -> Self {
        let mut answers = Self { asked: HashMap::new(), within_run: HashSet::new() };
        for message in messages.iter() {
            let run = message.id.map(|id| id.run);
            for (id, _) in calls(message, |_| true) {
                answers.asked.entry(id).or_default().push(run);
            }
            for id in message.results().filter_map(|result| result.call_id.as_ref()) {
                if run.is_some() && answers.asked.get(id).is_some_and(|runs| runs.contains(&run)) {
                    answers.within_run.insert((run, id.clone()));
                }
            }
        }
        answers
    }

    fn is_within_run(&self, run: Option<RunId>, id: &str) -> bool {
        self.within_run.contains(&(run, id.to_owned()))
    }

    /// Whether a result in this run came from the client: results of calls that are not known are
    /// those of calls that had to be approved.
    fn is_from_client(&self, run: Option<RunId>, id: &str) -> bool {
        self.asked.contains_key(id) && !self.is_within_run(run, id)
    }
}

fn calls(message: &Message, is_shown: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    if message.calls().next().is_none() {
        return Vec::new();
    }
    let ids = effective_call_ids(message);
    let asked = message.parts.iter().filter_map(|part| match part {
        Part::ToolCall(call) if !call.provider_executed => Some(Some(call)),
        Part::ApprovalRequest(_) => Some(None),
        _ => None,
    });
    let calls = ids.into_iter().zip(asked).filter_map(|(id, call)| Some((id, call?.name.clone())));
    calls.filter(|(id, _)| is_shown(id)).collect()
}

fn media(message: &Message) -> Vec<Media> {
    let media = message.parts.iter().filter_map(|part| match part {
        Part::Media(media) => Some(media.clone()),
        _ => None,
    });
    media.collect()
}

fn is_about_approval(part: &Part) -> bool {
    matches!(part, Part::ApprovalResponse(_) | Part::ApprovalRequest(_))
}
