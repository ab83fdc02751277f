//! A streamed answer.

use std::collections::VecDeque;

use futures_util::{Stream, StreamExt, stream};
use tower_chat_core::{BoxError, ChatUpdate, RawJson};
use tower_chat_wire::stream::Accumulator;

use crate::{
    OpenAiError, answer, completion,
    draft::Draft,
    object::{Object, take},
    transport::Events,
};

/// The updates that the events of a stream make; the message and the end come with `[DONE]`.
pub(crate) fn updates(
    events: Events,
) -> impl Stream<Item = Result<ChatUpdate, BoxError>> + Send + 'static {
    stream::unfold(Some(Reader::new(events)), |reader| async move {
        let mut reader = reader?;
        match reader.next().await {
            Ok(Some(update)) => Some((Ok(update), Some(reader))),
            Ok(None) => None,
            Err(error) => Some((Err(error.into()), None)),
        }
    })
}

struct Reader {
    /// `None` once they have ended.
    events: Option<Events>,
    ready: VecDeque<ChatUpdate>,
    draft: Draft,
    fields: Object,
    choice: Accumulator,
}

impl Reader {
    fn new(events: Events) -> Self {
        Self {
            events: Some(events),
            ready: VecDeque::new(),
            draft: Draft::default(),
            fields: Object::new(),
            choice: Accumulator::default(),
        }
    }

    async fn next(&mut self) -> Result<Option<ChatUpdate>, OpenAiError> {
        loop {
            if let Some(update) = self.ready.pop_front() {
                return Ok(Some(update));
            }
            let Some(events) = &mut self.events else { return Ok(None) };
            match events.next().await {
                Some(Ok(event)) => self.accept(&event)?,
                Some(Err(error)) => return Err(error.after(self.draft.text())),
                None => self.end()?,
            }
        }
    }

    fn accept(&mut self, event: &RawJson) -> Result<(), OpenAiError> {
        let mut fields: Object = event
            .parse()
            .map_err(|_| OpenAiError::malformed("an event is no JSON object", event.get()))?;
        if let Some(error) = completion::error_in(&fields) {
            return Err(error);
        }
        if let Some(choices) = take(&mut fields, "choices")
            && let Some(mut choice) = answer::only_choice(&choices)?
        {
            // A service that cannot stream answers with the whole message.
            let delta = take(&mut choice, "delta").or_else(|| take(&mut choice, "message"));
            if let Some(delta) = delta {
                let delta = delta
                    .parse()
                    .map_err(|_| OpenAiError::malformed("a delta is no object", delta.get()))?;
                self.ready.extend(self.draft.push(delta)?);
            }
            self.choice.push(choice);
        }
        // Every event repeats these, and some count as they go: the last one counts.
        let said = fields.into_iter().filter(|(_, value)| value.get() != "null");
        for (name, value) in said {
            if name != "model" || value.get() != r#""""# {
                self.fields.insert(name, value);
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), OpenAiError> {
        self.events = None;
        let draft = std::mem::take(&mut self.draft);
        if !draft.has_begun() {
            let reason = "its stream was done before a message began".to_owned();
            return Err(OpenAiError::Truncated { text: String::new(), reason });
        }
        self.ready.push_back(ChatUpdate::Message(draft.into_message()?.into()));
        let (fields, choice) = (std::mem::take(&mut self.fields), std::mem::take(&mut self.choice));
        self.ready
            .push_back(ChatUpdate::Finish(completion::finish(fields, choice.into_object()).into()));
        Ok(())
    }
}
