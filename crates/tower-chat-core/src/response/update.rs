//! One update of a streamed answer.

use std::sync::Arc;

use crate::{Finish, Message};

/// One update of a streamed answer.
///
/// Deltas are a preview: the complete content follows in a [`ChatUpdate::Message`].
///
/// The example creates a response from the stream of a model client:
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
    /// The next piece of the text of the current message.
    TextDelta(String),
    /// The next piece of the reasoning of the current message.
    ReasoningDelta(String),
    /// The next piece of a tool call of the current message.
    ToolCallDelta(ToolCallDelta),
    /// A complete message: a message of the model, or the results of the tools that a tool loop has
    /// run.
    Message(Arc<Message>),
    /// The end of the answer.
    Finish(Box<Finish>),
}

/// The next piece of a tool call.
///
/// A service may send the id and the name of a call in several deltas of the call. The first id and
/// the first name that are not empty apply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolCallDelta {
    /// The index of the call in the message. There may be gaps, because some services number other
    /// items of the answer too.
    pub index: usize,
    /// The call's id.
    pub id: Option<String>,
    /// The tool's name.
    pub name: Option<String>,
    /// The next piece of the text of the arguments.
    pub arguments: String,
}

impl ToolCallDelta {
    /// Creates the next piece of the arguments of the call at an index.
    pub fn new(index: usize, arguments: impl Into<String>) -> Self {
        Self { index, arguments: arguments.into(), ..Self::default() }
    }

    /// Sets the id.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets the tool's name.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }
}
