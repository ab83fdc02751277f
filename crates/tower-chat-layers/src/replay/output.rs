//! The output of one step of the replay.

use std::{borrow::Cow, sync::Arc};

use tower_chat_core::{Message, Messages};

/// A message in the output of a step. Unchanged messages are borrowed from the input.
pub(super) type MessageRef<'a> = Cow<'a, Arc<Message>>;

/// Returns the output of a step that changes or removes each message separately.
pub(super) fn after_step<'a>(
    messages: &'a Messages,
    step: impl FnMut(&'a Arc<Message>) -> Option<MessageRef<'a>>,
) -> Messages {
    shared_or_new(messages, messages.iter().filter_map(step).collect())
}

/// Returns the output of a step. If the step has changed no message, the output shares the sequence
/// of the original messages.
pub(super) fn shared_or_new(original: &Messages, output: Vec<MessageRef<'_>>) -> Messages {
    let is_original = output.len() == original.len()
        && output.iter().all(|message| matches!(message, Cow::Borrowed(_)));
    match is_original {
        true => original.clone(),
        false => output.into_iter().map(Cow::into_owned).collect(),
    }
}

pub(super) fn changed<'a>(message: Message) -> MessageRef<'a> {
    Cow::Owned(Arc::new(message))
}
