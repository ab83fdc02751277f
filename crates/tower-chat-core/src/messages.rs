//! A sequence of messages that is cheap to clone, extend and join.

use std::{hint::black_box, iter::Flatten, ops::Range, sync::Arc};

use imbl::{Vector, shared_ptr::DefaultSharedPtr, vector::Chunks};

use crate::{Message, Part, sound::Soundness};

/// A persistent sequence of shared messages.
///
/// Cloning is O(1); [`push`](Self::push), [`append`](Self::append) and indexing are O(log n).
/// A clone shares its messages with the original and never sees later changes to it, so a request
/// can be kept, retried and extended without copying the history.
///
/// ```
/// use tower_chat_core::{Message, Messages};
/// let mut history: Messages = [Message::user("hi"), Message::assistant("hello")].into_iter().collect();
/// let snapshot = history.clone();
/// history.push(Message::user("bye"));
/// assert_eq!((snapshot.len(), history.len()), (2, 3));
/// ```
#[derive(Clone, Default, PartialEq)]
pub struct Messages(Vector<Arc<Message>>);

impl Messages {
    /// No messages.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The message at a position, from 0.
    pub fn get(&self, index: usize) -> Option<&Arc<Message>> {
        self.0.get(index)
    }

    /// The newest message.
    pub fn last(&self) -> Option<&Arc<Message>> {
        self.0.last()
    }

    /// Adds one message at the end.
    pub fn push(&mut self, message: impl Into<Arc<Message>>) {
        self.0.push_back(message.into());
    }

    /// Adds all messages of another sequence at the end, in O(log n) of both.
    pub fn append(&mut self, other: &Messages) {
        if self.is_empty() {
            self.0 = other.0.clone();
        } else if other.len() <= SMALL {
            self.0.extend(other.0.iter().cloned());
        } else {
            self.0.append(other.0.clone());
        }
    }

    /// Adds a stretch of another sequence at the end. What lies outside of that sequence is left
    /// out; a long stretch is shared in O(log n) of both.
    pub fn append_range(&mut self, other: &Messages, range: Range<usize>) {
        let count = range.end.min(other.len()).saturating_sub(range.start);
        if count <= SMALL {
            self.0.extend(other.iter_from(range.start).take(count).cloned());
        } else {
            self.append(&other.take(range.start + count).skip(range.start));
        }
    }

    /// The messages from a position on; empty if there are fewer.
    #[must_use]
    pub fn skip(&self, count: usize) -> Self {
        if count == 0 {
            return self.clone();
        }
        if count >= self.len() {
            return Self::new();
        }
        if self.len() - count <= SMALL {
            return self.iter_from(count).cloned().collect();
        }
        Self(self.0.clone().split_off(count))
    }

    /// The first `count` messages; all if there are fewer.
    #[must_use]
    pub fn take(&self, count: usize) -> Self {
        match count {
            0 => Self::new(),
            _ if count >= self.len() => self.clone(),
            _ => Self(self.0.take(count)),
        }
    }

    /// All messages, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Message>> + ExactSizeIterator {
        Iter { messages: self.0.leaves().flatten(), left: self.len() }
    }

    /// All messages, oldest first, for a walk that looks into every one of them.
    ///
    /// It gives what [`iter`](Self::iter) gives, but fetches the messages of a stretch from memory
    /// together, and not each as the walk comes to it: on a long history a walk mostly waits for
    /// memory.
    pub fn walk(&self) -> impl Iterator<Item = &Arc<Message>> {
        self.0.leaves().inspect(|stretch| fetch(stretch)).flatten()
    }

    /// The messages from a position on, without walking those before it.
    pub fn iter_from(&self, from: usize) -> impl Iterator<Item = &Arc<Message>> {
        let from = from.min(self.len());
        self.0.focus().narrow(from..).into_iter()
    }

    /// How many messages from a position on stand as every provider wants them: each call has an
    /// id of its own and is answered once, in order, right after its message. Whole rounds count
    /// alone.
    ///
    /// It errs on the safe side: a message that it does not count may be sound too.
    ///
    /// ```
    /// use tower_chat_core::{Message, Messages, ToolCall, ToolResult};
    /// let messages: Messages = [
    ///     Message::user("Weather?"),
    ///     Message::tool_calls([ToolCall::new("c1", "weather", "{}")]),
    ///     Message::tool_results([ToolResult::new("c1", "sunny")]),
    ///     Message::tool_calls([ToolCall::new("c2", "weather", "{}")]), // never answered
    /// ].into();
    /// assert_eq!(messages.sound_from(0), 3);
    /// assert_eq!(messages.sound_from(3), 0);
    /// ```
    pub fn sound_from(&self, from: usize) -> usize {
        let mut soundness = Soundness::<&str>::default();
        let mut push = |message| {
            soundness.push(message);
            !soundness.has_ended()
        };
        let _is_sound = match from {
            0 => self.walk().all(|message| push(message)),
            from => self.iter_from(from).all(|message| push(message)),
        };
        soundness.messages()
    }
}

/// The messages of a sequence, stretch by stretch as they lie in memory: finding each by its
/// position costs several times as much.
struct Iter<'a> {
    messages: Flatten<Chunks<'a, Arc<Message>, DefaultSharedPtr>>,
    left: usize,
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a Arc<Message>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.messages.next();
        self.left -= usize::from(next.is_some());
        next
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let next = self.messages.next_back();
        self.left -= usize::from(next.is_some());
        next
    }
}

impl ExactSizeIterator for Iter<'_> {}

/// Looks at messages in a way that does not wait for one before the next is asked for.
fn fetch(messages: &[Arc<Message>]) {
    for message in messages {
        black_box((message.role, message.parts.first().map(look_at)));
    }
}

/// Reads what lies in a part itself, at its beginning and at its end; what it says is of no use.
fn look_at(part: &Part) -> (bool, usize) {
    match part {
        Part::ToolCall(call) => (call.provider_executed, call.id.as_ref().map_or(0, String::len)),
        Part::ToolResult(result) => {
            (result.is_error, result.call_id.as_ref().map_or(0, String::len))
        }
        Part::Text(text) => (text.native.is_some(), text.text.len()),
        Part::Reasoning(_)
        | Part::ApprovalRequest(_)
        | Part::ApprovalResponse(_)
        | Part::Media(_)
        | Part::Error(_)
        | Part::Native(_) => (false, 0),
    }
}

/// Up to this many messages, copying pointers is faster than joining trees.
const SMALL: usize = 64;

impl std::fmt::Debug for Messages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<M: Into<Arc<Message>>> FromIterator<M> for Messages {
    fn from_iter<I: IntoIterator<Item = M>>(messages: I) -> Self {
        Self(messages.into_iter().map(Into::into).collect())
    }
}

impl<M: Into<Arc<Message>>> Extend<M> for Messages {
    fn extend<I: IntoIterator<Item = M>>(&mut self, messages: I) {
        self.0.extend(messages.into_iter().map(Into::into));
    }
}

impl From<Message> for Messages {
    fn from(message: Message) -> Self {
        std::iter::once(message).collect()
    }
}

impl From<Vec<Message>> for Messages {
    fn from(messages: Vec<Message>) -> Self {
        messages.into_iter().collect()
    }
}

impl<const N: usize> From<[Message; N]> for Messages {
    fn from(messages: [Message; N]) -> Self {
        messages.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(count: usize) -> Messages {
        (0..count).map(|number| Message::user(number.to_string())).collect()
    }

    #[test]
    fn iteration_goes_from_both_ends_and_knows_what_is_left() {
        for count in [0, 1, 63, 64, 65, 1000] {
            // A joined sequence lies in memory in stretches of all lengths.
            let mut messages = numbered(count);
            messages.append(&numbered(300).skip(count % 7));
            let expected: Vec<_> = (0..messages.len()).filter_map(|at| messages.get(at)).collect();
            assert!(messages.iter().eq(expected.iter().copied()));
            assert!(messages.walk().eq(expected.iter().copied()));
            assert!(messages.iter().rev().eq(expected.iter().rev().copied()));
            let mut iter = messages.iter();
            let (mut front, mut back) = (Vec::new(), Vec::new());
            while iter.len() > 0 {
                front.extend(iter.next());
                back.extend(iter.next_back());
                assert_eq!(iter.len(), messages.len() - front.len() - back.len());
            }
            front.extend(back.into_iter().rev());
            assert_eq!(front, expected);
        }
    }

    #[test]
    fn a_stretch_is_added_and_what_is_not_there_is_left_out() {
        let source = numbered(500);
        for range in [0..500, 0..0, 3..9, 100..400, 450..900, 700..800, 64..129] {
            let mut messages = numbered(2);
            messages.append_range(&source, range.clone());
            let stretch = source.iter().skip(range.start).take(range.len());
            assert!(messages.iter().skip(2).eq(stretch), "{range:?}");
        }
    }
}
