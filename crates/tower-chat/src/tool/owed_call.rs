//! A call on its way from the model's message to its tool.

use std::{borrow::Cow, sync::Arc};

use tower_chat_core::{Message, Part, ToolCall};

use crate::{replay::ids_of_calls, run::CallOfRun};

/// A call that is owed a result. It is passed on without a copy of its arguments, through the
/// futures of the loop and of the tool.
#[derive(Clone)]
pub(crate) struct OwedCall(Arc<Owed>);

#[derive(Clone)]
struct Owed {
    stands: Stands,
    /// The id its result names, where it is not the one it came with.
    made_id: Option<String>,
    place: Option<CallOfRun>,
}

#[derive(Clone)]
enum Stands {
    /// In a message, as the part of this number.
    In(Arc<Message>, usize),
    Alone(ToolCall),
}

impl OwedCall {
    /// The calls of a message that the provider did not run itself.
    pub(crate) fn of_message(message: &Arc<Message>) -> impl Iterator<Item = Self> {
        let is_owed = |part: &Part| matches!(part, Part::ToolCall(call) if !call.provider_executed);
        let parts = message.parts.iter().enumerate().filter(move |(_, part)| is_owed(part));
        let calls = parts.zip(ids_of_calls(message)).enumerate();
        calls.map(|(index, ((part, _), id))| {
            Self(Arc::new(Owed {
                stands: Stands::In(message.clone(), part),
                made_id: match id {
                    Cow::Borrowed(_) => None,
                    Cow::Owned(made) => Some(made),
                },
                place: message.id.map(|message| (message, index)),
            }))
        })
    }

    /// A call that is known by itself, with the id its result names.
    pub(crate) fn alone(call: ToolCall, id: String, place: Option<CallOfRun>) -> Self {
        Self(Arc::new(Owed { stands: Stands::Alone(call), made_id: Some(id), place }))
    }

    /// The same call at another place.
    pub(crate) fn at(&self, place: Option<CallOfRun>) -> Self {
        if self.0.place == place {
            return self.clone();
        }
        let Owed { stands, made_id, place: _ } = &*self.0;
        Self(Arc::new(Owed { stands: stands.clone(), made_id: made_id.clone(), place }))
    }

    /// Where it stands in its run, if its message has an id.
    pub(crate) fn place(&self) -> Option<CallOfRun> {
        self.0.place
    }

    /// The call as the model made it.
    pub(crate) fn call(&self) -> &ToolCall {
        match &self.0.stands {
            Stands::In(message, part) => match message.parts.get(*part) {
                Some(Part::ToolCall(call)) => call,
                _ => unreachable!("it was found there, and a shared message does not change"),
            },
            Stands::Alone(call) => call,
        }
    }

    /// The name of its tool.
    pub(crate) fn name(&self) -> &str {
        &self.call().name
    }

    /// The id its result names.
    pub(crate) fn id(&self) -> &str {
        self.0.made_id.as_deref().or(self.call().id.as_deref()).unwrap_or_default()
    }
}
