//! The steps of a scripted model client.

use std::fmt;

use tower_chat_core::{BoxError, ChatRequest, ChatUpdate, Finish, Message};

use crate::Gate;

/// One step of a script: the answer of a [`ScriptedModel`](crate::ScriptedModel) to one call.
///
/// ```
/// use tower_chat_core::{Message, ToolCall};
/// use tower_chat_testkit::{Gate, ScriptedModel, Step};
/// let gate = Gate::closed();
/// let model = ScriptedModel::new([
///     Step::message(Message::tool_calls([ToolCall::new("c1", "weather", "{}")])),
///     Step::error("overloaded"),
///     Step::text("It rains in").cut_off_after(1),
///     Step::text("It rains in Paris.").waits(&gate),
///     Step::respond(|request| Step::text(format!("{} messages", request.messages().len()))),
/// ]);
/// assert_eq!(model.remaining(), 5);
/// ```
#[derive(Debug)]
pub struct Step {
    pub(super) reply: Reply,
    pub(super) streamed: Option<bool>,
    pub(super) gate: Option<Gate>,
    /// The number of updates after which the answer is interrupted, and the kind of interruption.
    pub(super) interruption: Option<(usize, Interruption)>,
}

pub(super) enum Reply {
    Answer(Vec<Message>, Box<Finish>),
    Updates(Vec<ChatUpdate>),
    Error(BoxError),
    Hang,
    Respond(Box<dyn FnOnce(&ChatRequest) -> Step + Send>),
}

#[derive(Debug)]
pub(super) enum Interruption {
    Fail(BoxError),
    CutOff,
    Hang,
    Wait(Gate),
}

impl Step {
    fn new(reply: Reply) -> Self {
        Self { reply, streamed: None, gate: None, interruption: None }
    }

    /// Answers with messages and a finish.
    pub fn answer(messages: impl IntoIterator<Item = Message>, finish: Finish) -> Self {
        Self::new(Reply::Answer(messages.into_iter().collect(), Box::new(finish)))
    }

    /// Answers with one message and the reason
    /// [`FinishReason::Stop`](tower_chat_core::FinishReason::Stop).
    pub fn message(message: Message) -> Self {
        Self::answer([message], Finish::stop())
    }

    /// Answers with a text and the reason
    /// [`FinishReason::Stop`](tower_chat_core::FinishReason::Stop).
    pub fn text(text: impl Into<String>) -> Self {
        Self::message(Message::assistant(text))
    }

    /// Streams exactly these updates, even if the request does not ask for a stream.
    pub fn updates(updates: impl IntoIterator<Item = ChatUpdate>) -> Self {
        Self::new(Reply::Updates(updates.into_iter().collect()))
    }

    /// Fails the call.
    pub fn error(error: impl Into<BoxError>) -> Self {
        Self::new(Reply::Error(error.into()))
    }

    /// Never answers the call.
    pub fn hang() -> Self {
        Self::new(Reply::Hang)
    }

    /// Computes the step from the request. For streaming, gate and interruption, the settings of
    /// the computed step take precedence over the settings of this step.
    pub fn respond(decide: impl FnOnce(&ChatRequest) -> Step + Send + 'static) -> Self {
        Self::new(Reply::Respond(Box::new(decide)))
    }

    /// Streams the answer, even if the request does not ask for a stream.
    #[must_use]
    pub fn streamed(mut self) -> Self {
        self.streamed = Some(true);
        self
    }

    /// Returns a whole answer, even if the request asks for a stream.
    #[must_use]
    pub fn whole(mut self) -> Self {
        self.streamed = Some(false);
        self
    }

    /// Waits at a gate before the answer.
    #[must_use]
    pub fn waits(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    /// Streams `updates` updates, waits at a gate, and then streams the remaining updates.
    #[must_use]
    pub fn waits_after(self, updates: usize, gate: &Gate) -> Self {
        self.interrupted(updates, Interruption::Wait(gate.clone()))
    }

    /// Streams `updates` updates, and then an error.
    #[must_use]
    pub fn fails_after(self, updates: usize, error: impl Into<BoxError>) -> Self {
        self.interrupted(updates, Interruption::Fail(error.into()))
    }

    /// Streams `updates` updates, and then ends the stream without a finish.
    #[must_use]
    pub fn cut_off_after(self, updates: usize) -> Self {
        self.interrupted(updates, Interruption::CutOff)
    }

    /// Streams `updates` updates, and then neither another update nor the end of the stream.
    #[must_use]
    pub fn hangs_after(self, updates: usize) -> Self {
        self.interrupted(updates, Interruption::Hang)
    }

    fn interrupted(mut self, updates: usize, interruption: Interruption) -> Self {
        self.interruption = Some((updates, interruption));
        self
    }

    /// Returns this step, or the step that [`respond`](Self::respond) computes for the request.
    pub(super) fn resolve(self, request: &ChatRequest) -> Self {
        let Reply::Respond(decide) = self.reply else { return self };
        let chosen = decide(request).resolve(request);
        Self {
            reply: chosen.reply,
            streamed: chosen.streamed.or(self.streamed),
            gate: chosen.gate.or(self.gate),
            interruption: chosen.interruption.or(self.interruption),
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer(messages, _) => f.debug_tuple("Answer").field(messages).finish(),
            Self::Updates(updates) => f.debug_tuple("Updates").field(updates).finish(),
            Self::Error(error) => f.debug_tuple("Error").field(error).finish(),
            Self::Hang => f.write_str("Hang"),
            Self::Respond(_) => f.write_str("Respond"),
        }
    }
}
