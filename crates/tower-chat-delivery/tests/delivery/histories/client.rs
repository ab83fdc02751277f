//! A client of a run, which checks the rules for the events that it receives.

use std::{collections::BTreeMap, sync::Arc};

use tower_chat::{ChatUpdate, Message, PersistenceMode, Role, message::MessageId};
use tower_chat_delivery::{RunEnd, RunEvent, UpdatePosition};

/// The updates that a client has received over all its connections. The client checks the contents
/// of the updates: the text of each delta must be the index of the delta in its message.
#[derive(Debug, Default)]
pub(crate) struct Client {
    /// The position of the most recent event.
    pub(crate) after: Option<UpdatePosition>,
    pub(crate) end: Option<RunEnd>,
    /// The most recent message with each id.
    messages: BTreeMap<MessageId, Arc<Message>>,
    /// The deltas of the unfinished message.
    unfinished: String,
    deltas: usize,
    attempt: u32,
    is_finished: bool,
}

impl Client {
    pub(crate) fn receive(&mut self, event: RunEvent) -> Result<(), String> {
        if self.is_finished && !matches!(event, RunEvent::Ended(RunEnd::Completed)) {
            return Err(format!("{event:?} follows the end of the response"));
        }
        match event {
            RunEvent::Update { position, update } => {
                self.move_to(position)?;
                self.attempt = self.attempt.max(1);
                if position.attempt != self.attempt {
                    return Err(format!("{position} in attempt {}", self.attempt));
                }
                self.update(update)
            }
            RunEvent::Restarted { position, attempt } => {
                self.move_to(position)?;
                self.attempt = attempt;
                self.unfinished.clear();
                self.deltas = 0;
                Ok(())
            }
            RunEvent::Ended(end) => {
                if end == RunEnd::Completed && !self.is_finished {
                    return Err("the run is complete without the end of its response".to_owned());
                }
                self.end = Some(end);
                Ok(())
            }
            other => Err(format!("an unknown event: {other:?}")),
        }
    }

    fn move_to(&mut self, position: UpdatePosition) -> Result<(), String> {
        if self.after.is_some_and(|after| position <= after) {
            return Err(format!("{position} follows {:?}", self.after));
        }
        self.after = Some(position);
        Ok(())
    }

    fn update(&mut self, update: ChatUpdate) -> Result<(), String> {
        match update {
            ChatUpdate::TextDelta(text) => {
                if text.trim() != self.deltas.to_string() {
                    return Err(format!("delta {} instead of {}", text.trim(), self.deltas));
                }
                self.deltas += 1;
                self.unfinished += &text;
                Ok(())
            }
            ChatUpdate::Message(message) => {
                let id = message.id.ok_or("a message without an id")?;
                let has_text = message.role == Role::Assistant && !message.text().is_empty();
                // A message without deltas is permitted in a later attempt: an earlier attempt may
                // have stored the message before its deltas were sent.
                let is_whole = self.attempt > 1 && self.deltas == 0;
                if has_text && !is_whole && message.text() != self.unfinished {
                    return Err(format!("message {id} differs from its deltas"));
                }
                self.unfinished.clear();
                self.deltas = 0;
                let before = self.messages.get(&id);
                if before.is_some_and(|before| before.parts == message.parts) {
                    return Err(format!("message {id} is sent twice"));
                }
                self.messages.retain(|other, _| *other < id);
                self.messages.insert(id, message);
                Ok(())
            }
            ChatUpdate::Finish(_) => {
                self.is_finished = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Checks that a client of a completed run has received exactly the messages of the history. In
    /// per-run mode, the client may have received more messages, because an attempt that repeats
    /// the run may have stored fewer.
    pub(crate) fn check(
        &self,
        stored: &BTreeMap<MessageId, String>,
        mode: PersistenceMode,
    ) -> Result<(), String> {
        if self.end != Some(RunEnd::Completed) {
            return Err(format!("the end of the run is {:?}", self.end));
        }
        let texts = self.messages.iter().map(|(id, message)| (*id, text_of(message)));
        let mut received: BTreeMap<MessageId, String> = texts.collect();
        if self.attempt > 1 && mode == PersistenceMode::PerRun {
            received.retain(|id, _| stored.contains_key(id));
        }
        if received != *stored {
            return Err(format!("received {received:?}, and stored are {stored:?}"));
        }
        Ok(())
    }
}

/// Returns the texts of those answers in a history that readers receive. If a run was stopped
/// before the model had sent any text, the history ends with a message without parts, which readers
/// do not receive.
pub(crate) fn stored_answers<'m>(
    messages: impl IntoIterator<Item = &'m Arc<Message>>,
) -> BTreeMap<MessageId, String> {
    let is_sent = |message: &&Arc<Message>| message.role != Role::User && !message.parts.is_empty();
    let answers = messages.into_iter().filter(is_sent);
    answers.filter_map(|message| Some((message.id?, text_of(message)))).collect()
}

fn text_of(message: &Message) -> String {
    let results: String = message.results().map(|result| result.text()).collect();
    message.text() + &results
}
