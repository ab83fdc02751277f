//! One step of an answer.

use std::sync::Arc;

use crate::{Finish, Message};

/// One step of an answer.
///
/// Deltas are a preview: what they add up to comes again, whole, as [`ChatUpdate::Message`].
///
/// A model client's stream:
///
/// ```
/// # futures_util::FutureExt::now_or_never(async {
/// use futures_util::stream;
/// use tower_chat_core::{BoxError, ChatResponse, ChatUpdate, Finish};
///
/// let updates = [
///     ChatUpdate::TextDelta("Take ".to_owned()),
///     ChatUpdate::TextDelta("a coat.".to_owned()),
///     ChatUpdate::Finish(Finish::stop().into()),
/// ];
/// let response = ChatResponse::stream(stream::iter(updates.map(Ok::<_, BoxError>)));
/// assert_eq!(response.collect().await?.text(), "Take a coat."); // the deltas make a message
/// # Ok::<(), BoxError>(())
/// # }).unwrap().unwrap();
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ChatUpdate {
    /// More text of the message under way.
    TextDelta(String),
    /// More reasoning of the message under way.
    ReasoningDelta(String),
    /// More of a tool call of the message under way.
    ToolCallDelta(ToolCallDelta),
    /// A whole message: of the model, or the results of tools that a loop ran.
    Message(Arc<Message>),
    /// The end of the answer.
    Finish(Box<Finish>),
}

/// More of a tool call.
///
/// The first id and the first name that are not empty count; providers repeat both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolCallDelta {
    /// Which call of the message. Gaps do not matter: some services count other items too.
    pub index: usize,
    /// The call's id.
    pub id: Option<String>,
    /// The tool's name.
    pub name: Option<String>,
    /// More text of the arguments.
    pub arguments: String,
}

impl ToolCallDelta {
    /// More text of the arguments of the call at an index.
    pub fn new(index: usize, arguments: impl Into<String>) -> Self {
        Self { index, arguments: arguments.into(), ..Self::default() }
    }

    /// Adds the id.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Adds the tool's name.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }
}
