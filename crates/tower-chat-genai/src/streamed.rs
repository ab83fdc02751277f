//! A streamed answer.

use std::collections::VecDeque;

use futures_util::{Stream, StreamExt, stream};
use tower_chat_core::{BoxError, ChatUpdate, Finish, Message};

use crate::{
    GenAiError,
    frame::{Frame, Frames},
};

/// What the frames of one wire's stream add up to.
pub(crate) trait Draft: Default + Send + 'static {
    /// Takes a frame, and gives what it adds for somebody who looks on.
    ///
    /// An error that the service reports in it is an error here.
    fn push(&mut self, frame: &Frame) -> Result<Vec<ChatUpdate>, GenAiError>;

    /// Whether the end of the answer, and a reason for it, have come.
    fn is_complete(&self) -> bool;

    /// The text so far.
    fn text(&self) -> String;

    /// The whole answer.
    fn finish(self) -> Result<(Message, Finish), GenAiError>;
}

/// The updates that frames make. The message and the end come once the draft is complete and the
/// stream has ended; a stream that ends before is an error.
pub(crate) fn updates<D: Draft>(
    frames: Frames,
) -> impl Stream<Item = Result<ChatUpdate, BoxError>> + Send + 'static {
    let reader = Reader::<D> { frames: Some(frames), ready: VecDeque::new(), draft: D::default() };
    stream::unfold(Some(reader), |reader| async move {
        let mut reader = reader?;
        match reader.next().await {
            Ok(Some(update)) => Some((Ok(update), Some(reader))),
            Ok(None) => None,
            Err(error) => Some((Err(error.into()), None)),
        }
    })
}

struct Reader<D> {
    /// `None` once they have ended.
    frames: Option<Frames>,
    ready: VecDeque<ChatUpdate>,
    draft: D,
}

impl<D: Draft> Reader<D> {
    async fn next(&mut self) -> Result<Option<ChatUpdate>, GenAiError> {
        loop {
            if let Some(update) = self.ready.pop_front() {
                return Ok(Some(update));
            }
            let Some(frames) = &mut self.frames else { return Ok(None) };
            match frames.next().await {
                Some(Ok(frame)) => match self.draft.push(&frame) {
                    Ok(updates) => self.ready.extend(updates),
                    Err(error) => return Err(error),
                },
                None => self.end()?,
                // Nothing that counts comes after the end of an answer.
                Some(Err(_)) if self.draft.is_complete() => self.end()?,
                Some(Err(error)) => return Err(self.cut_off(error)),
            }
        }
    }

    fn end(&mut self) -> Result<(), GenAiError> {
        self.frames = None;
        let draft = std::mem::take(&mut self.draft);
        if !draft.is_complete() {
            let reason = "its stream ended before it said that it was complete".to_owned();
            return Err(GenAiError::Truncated { text: draft.text(), reason });
        }
        let (message, finish) = draft.finish()?;
        self.ready.push_back(ChatUpdate::Message(message.into()));
        self.ready.push_back(ChatUpdate::Finish(finish.into()));
        Ok(())
    }

    fn cut_off(&self, error: GenAiError) -> GenAiError {
        match error {
            GenAiError::Truncated { reason, .. } => {
                GenAiError::Truncated { text: self.draft.text(), reason }
            }
            error => error,
        }
    }
}
