//! The information about a request that the reader of its answer needs.

use std::sync::Arc;

use tower_chat_core::{Answer, Change, ChatUpdate, Message, Native, Part};

use crate::{
    AnswerError,
    openai_responses::HistoryLocation,
    rules::NameMap,
    stream::{Frame, ResponseAccumulator, SurrogateJoiner},
};

/// The information about a request that the reader of its answer needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AnswerContext {
    /// Where the history of the request is stored: in the request, or at the service. This location
    /// determines the service id of the answer, under which the service stores the conversation. If
    /// `None`, the fields of the answer determine the service id.
    pub history: Option<HistoryLocation>,
    /// Whether the request is for a background answer, which the service generates after the call
    /// has returned. If `true`, an answer that is still in progress is read as an answer without
    /// messages. The id of the answer is then the continuation token, with which the client fetches
    /// the answer. If `false`, an answer that is still in progress is an error.
    pub is_background: bool,
    /// The name of the service that answers. Native items of the answer (JSON that only this
    /// service understands) get this name as their [issuer](Native::issuer), unless they have one.
    pub issuer: Option<Arc<str>>,
    /// The tools that were sent under another name. The reader of the answer restores their
    /// original names.
    pub names: NameMap,
    /// The differences between the stored messages and the messages that were sent. The reader of
    /// the answer stores these differences in the [`Finish`](tower_chat_core::Finish) of the
    /// answer.
    pub changes: Vec<Change>,
}

impl AnswerContext {
    /// Creates the context of a request whose history is stored at this location.
    pub fn of_history(location: HistoryLocation) -> Self {
        Self { history: Some(location), ..Self::default() }
    }

    /// Sets whether the request is for a background answer.
    #[must_use]
    pub fn with_background(mut self, is_background: bool) -> Self {
        self.is_background = is_background;
        self
    }

    /// Sets the name of the service that answers.
    #[must_use]
    pub fn with_issuer(mut self, issuer: Arc<str>) -> Self {
        self.issuer = Some(issuer);
        self
    }

    /// Sets the tools that were sent under another name, and the differences between the stored
    /// messages and the messages that were sent.
    #[must_use]
    pub fn with_changes(mut self, names: NameMap, changes: Vec<Change>) -> Self {
        (self.names, self.changes) = (names, changes);
        self
    }

    /// Sets the issuers, the original tool names and the changes in an answer.
    pub(super) fn complete(&self, answer: &mut Answer) {
        if self.issuer.is_some() || !self.names.is_empty() {
            for message in &mut answer.messages {
                self.complete_message(Arc::make_mut(message));
            }
        }
        answer.finish.changes.clone_from(&self.changes);
    }

    /// Wraps an accumulator. The wrapper also joins the halves of surrogate pairs in the events,
    /// and calls [`complete`](Self::complete) for the answer.
    pub(super) fn wrap(
        self,
        accumulator: Box<dyn ResponseAccumulator>,
    ) -> Box<dyn ResponseAccumulator> {
        Box::new(CompletingAccumulator {
            accumulator,
            surrogates: SurrogateJoiner::default(),
            context: self,
        })
    }

    fn complete_message(&self, message: &mut Message) {
        for part in &mut message.parts {
            self.complete_part(part);
        }
    }

    fn complete_part(&self, part: &mut Part) {
        match part {
            Part::Text(text) => self.set_issuer(text.native.as_mut()),
            Part::Reasoning(reasoning) => self.set_issuer(reasoning.native.as_mut()),
            Part::ToolCall(call) => {
                self.set_issuer(call.native.as_mut());
                if !call.provider_executed
                    && let Some(name) = self.names.original(&call.name)
                {
                    name.clone_into(&mut call.name);
                }
            }
            Part::ToolResult(result) => {
                self.set_issuer(result.native.as_mut());
                result.content.iter_mut().for_each(|part| self.complete_part(part));
            }
            Part::Media(media) => self.set_issuer(media.native.as_mut()),
            Part::Native(native) => self.set_issuer(Some(native)),
            _ => {}
        }
    }

    fn set_issuer(&self, native: Option<&mut Native>) {
        if let (Some(native), Some(issuer)) = (native, &self.issuer) {
            native.issuer.get_or_insert_with(|| Arc::clone(issuer));
        }
    }
}

/// The wrapper that [`AnswerContext::wrap`] returns.
#[derive(Debug)]
struct CompletingAccumulator {
    accumulator: Box<dyn ResponseAccumulator>,
    surrogates: SurrogateJoiner,
    context: AnswerContext,
}

impl ResponseAccumulator for CompletingAccumulator {
    fn push(&mut self, frame: &Frame) -> Result<Vec<ChatUpdate>, AnswerError> {
        let mut updates = self.accumulator.push(&self.surrogates.join(frame))?;
        for update in &mut updates {
            if let ChatUpdate::ToolCallDelta(call) = update
                && let Some(name) = call.name.as_deref()
                && let Some(name) = self.context.names.original(name)
            {
                call.name = Some(name.to_owned());
            }
        }
        Ok(updates)
    }

    fn is_complete(&self) -> bool {
        self.accumulator.is_complete()
    }

    fn is_last(&self) -> bool {
        self.accumulator.is_last()
    }

    fn text(&self) -> String {
        self.accumulator.text()
    }

    fn finish(self: Box<Self>) -> Result<Answer, AnswerError> {
        let mut answer = self.accumulator.finish()?;
        self.context.complete(&mut answer);
        Ok(answer)
    }
}
