//! The conversation as a run has loaded and extended it.

use std::{sync::Arc, time::SystemTime};

use tower_chat_core::{
    Message, RunId,
    store::{History, Revision, ServiceIdChange, author::LoadFrom},
};

use super::{
    added_messages::AddedMessages,
    recording::{Adopted, Recording},
};
use crate::{replay::Replay, summarize::Summarizable};

/// The conversation as the run has loaded and extended it.
pub(crate) struct LoadedConversation {
    /// The history as it was loaded. Usually empty if the service stores the history.
    pub(super) history: History,
    /// The range that the next run needs to load, which the first write of the run stores.
    pub(super) next_range: Option<Arc<LoadFrom>>,
    /// Whether the stored range omits messages.
    pub(super) has_range: bool,
    /// Whether the next run needs all messages, because a tool loop of another crate executes this
    /// run, and its requests are compared with the whole history.
    pub(super) needs_all_later: bool,
    /// The replay of the history and of the messages that this run has added.
    pub(super) replay: Replay,
    /// The revision that the next write expects.
    pub(super) revision: Revision,
    /// The service id, if the service stores the history.
    pub(super) service_id: Option<Arc<str>>,
    /// The service id in the store. Differs from `service_id` until a write stores the id of the
    /// request or of an answer.
    pub(super) stored_service_id: Option<Arc<str>>,
    pub(super) recording: Recording,
    pub(super) added: AddedMessages,
    /// The replay without the messages that no write contains yet. `None` if there are none.
    pub(super) submitted_replay: Option<Replay>,
    /// The id of the summary in the requests of the run.
    pub(super) summary: Option<u64>,
    /// The loaded history for a summary, until the first service call.
    pub(super) summarizable: Option<Box<Summarizable>>,
}

impl LoadedConversation {
    /// Returns a conversation without messages, to which `run` adds the first ones.
    pub(super) fn empty(run: RunId) -> Self {
        Self {
            history: History::empty(),
            next_range: None,
            has_range: false,
            needs_all_later: false,
            replay: Replay::lenient(),
            revision: Revision::ABSENT,
            service_id: None,
            stored_service_id: None,
            recording: Recording::History,
            added: AddedMessages::stored(run, Vec::new()),
            submitted_replay: None,
            summary: None,
            summarizable: None,
        }
    }

    /// Adds the messages of an answered service call to those that the write at the end of the run
    /// stores.
    pub(super) fn add_unsubmitted(
        &mut self,
        messages: Vec<Arc<Message>>,
        adopted: Adopted,
        now: Option<SystemTime>,
    ) {
        self.service_id = adopted.service_id;
        self.recording = adopted.recording;
        if self.added.is_discontinuous {
            return;
        }
        self.submitted_replay.get_or_insert_with(|| self.replay.clone());
        let messages = self.added.assign_ids(messages, false, now);
        messages.iter().for_each(|message| self.replay.push(message));
        self.added.push_unsubmitted(messages);
    }

    /// Removes the unsubmitted answer of the last service call, which the tool loop repeats.
    pub(super) fn drop_last_answer(&mut self) {
        let Some(submitted) = &self.submitted_replay else { return };
        self.replay = submitted.clone();
        self.added.drop_last_answer().iter().for_each(|message| self.replay.push(message));
    }

    /// Takes all messages of a run that is stored at its end. `answer` contains the last ones, with
    /// their ids.
    pub(super) fn take_run(&mut self, answer: &[Arc<Message>]) -> Vec<Arc<Message>> {
        if let Some(submitted) = self.submitted_replay.take() {
            self.replay = submitted;
        }
        self.added.take_run(answer)
    }

    /// Sets the history owner. Returns the change of the service id in the store, if there is one.
    pub(super) fn adopt(&mut self, adopted: Adopted) -> Option<ServiceIdChange> {
        let Adopted { recording, service_id, change } = adopted;
        self.recording = recording;
        self.service_id.clone_from(&service_id);
        let is_known = self.stored_service_id == service_id;
        self.stored_service_id = service_id;
        change.filter(|_| !is_known)
    }

    /// Returns the history owner of a run that is stored at its end.
    pub(super) fn history_owner(&self) -> Adopted {
        match &self.service_id {
            Some(service_id) => Adopted::named(service_id.clone(), self.recording),
            None => Adopted::kept_here(self.recording),
        }
    }
}
