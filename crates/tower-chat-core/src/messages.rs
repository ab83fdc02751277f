//! A sequence of messages that is cheap to clone, extend and join.

use std::{ops::Range, sync::Arc};

use imbl::Vector;

use crate::{Message, well_formed::WellFormedPrefix};

/// A persistent sequence of shared messages.
///
/// Cloning is O(1); [`push`](Self::push), [`append`](Self::append) and indexing are O(log n). A
/// clone shares its messages with the original, and later changes to the original do not change the
/// clone. A request can therefore be stored, retried and extended without copying the history. A
/// pushed message may stay in memory until the last clone that shares it is dropped.
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
    /// Creates an empty sequence.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of messages.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no messages.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the message at an index, from 0.
    pub fn get(&self, index: usize) -> Option<&Arc<Message>> {
        self.0.get(index)
    }

    /// Returns the newest message.
    pub fn last(&self) -> Option<&Arc<Message>> {
        self.0.last()
    }

    /// Adds a message at the end.
    pub fn push(&mut self, message: impl Into<Arc<Message>>) {
        self.0.push_back(message.into());
    }

    /// Adds all messages of another sequence at the end, in O(log n) of both lengths.
    pub fn append(&mut self, other: &Messages) {
        if other.len() <= FEW {
            self.0.extend(other.iter().cloned());
        } else {
            self.0.append(other.0.clone());
        }
    }

    /// Adds a range of another sequence at the end, and ignores the part of the range after the end
    /// of that sequence. The time is O(log n) of both lengths.
    pub fn append_range(&mut self, other: &Messages, range: Range<usize>) {
        let count = range.end.min(other.len()).saturating_sub(range.start);
        self.append(&other.skip(range.start).take(count));
    }

    /// Returns the messages after the first `count` ones; an empty sequence if there are fewer
    /// messages.
    #[must_use]
    pub fn skip(&self, count: usize) -> Self {
        Self(self.0.skip(count.min(self.len())))
    }

    /// Returns the first `count` messages; all messages if there are fewer.
    #[must_use]
    pub fn take(&self, count: usize) -> Self {
        Self(self.0.take(count.min(self.len())))
    }

    /// Iterates over all messages, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Message>> + ExactSizeIterator {
        self.0.iter()
    }

    /// Iterates over the messages from an index on, without visiting the earlier ones.
    pub fn iter_from(&self, from: usize) -> impl Iterator<Item = &Arc<Message>> {
        let rest = (from < self.len()).then(|| self.0.focus().narrow(from..));
        rest.into_iter().flatten()
    }

    /// Counts the messages, beginning at the index `from`, that are valid for every provider: each
    /// call has a unique id and is answered once, in order, directly after its message. Only
    /// complete rounds are counted. A round consists of the calls of one answer and their results.
    ///
    /// The number may be too small, but is never too large.
    ///
    /// ```
    /// use tower_chat_core::{Message, Messages, ToolCall, ToolResult};
    /// let messages: Messages = [
    ///     Message::user("Weather?"),
    ///     Message::tool_calls([ToolCall::new("c1", "weather", "{}")]),
    ///     Message::tool_results([ToolResult::new("c1", "sunny")]),
    ///     Message::tool_calls([ToolCall::new("c2", "weather", "{}")]), // never answered
    /// ].into();
    /// assert_eq!(messages.well_formed_from(0), 3);
    /// assert_eq!(messages.well_formed_from(3), 0);
    /// ```
    pub fn well_formed_from(&self, from: usize) -> usize {
        let mut prefix = WellFormedPrefix::default();
        for message in self.iter_from(from) {
            prefix.push(message);
            if prefix.has_ended() {
                break;
            }
        }
        prefix.messages()
    }
}

/// The maximum number of appended messages that are pushed one by one. For more messages, the two
/// trees are joined. A join copies nodes of both trees: appending one message to 10,000 took 16 us
/// by a join, and 0.2 us by a push. The difference is a fifth of the time of a service call that is
/// stored without syncs (case `single` of the benches).
const FEW: usize = 64;

impl std::fmt::Debug for Messages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// An iterator over the messages of a [`Messages`], oldest first.
pub struct IntoIter(<Vector<Arc<Message>> as IntoIterator>::IntoIter);

/// An iterator over references to the messages of a [`Messages`], oldest first.
pub struct Iter<'m>(<&'m Vector<Arc<Message>> as IntoIterator>::IntoIter);

impl IntoIterator for Messages {
    type Item = Arc<Message>;
    type IntoIter = IntoIter;

    fn into_iter(self) -> IntoIter {
        IntoIter(self.0.into_iter())
    }
}

/// ```
/// use tower_chat_core::{Message, Messages};
/// let messages: Messages = [Message::user("hi"), Message::assistant("hello")].into();
/// for message in &messages {
///     println!("{:?}: {}", message.role, message.text());
/// }
/// let texts: Vec<String> = messages.into_iter().map(|message| message.text()).collect();
/// assert_eq!(texts, ["hi", "hello"]);
/// ```
impl<'m> IntoIterator for &'m Messages {
    type Item = &'m Arc<Message>;
    type IntoIter = Iter<'m>;

    fn into_iter(self) -> Iter<'m> {
        Iter(self.0.iter())
    }
}

macro_rules! iterates {
    ($name:ty, $item:ty $(, $lifetime:lifetime)?) => {
        impl$(<$lifetime>)? Iterator for $name {
            type Item = $item;

            fn next(&mut self) -> Option<$item> {
                self.0.next()
            }

            fn size_hint(&self) -> (usize, Option<usize>) {
                self.0.size_hint()
            }
        }

        impl$(<$lifetime>)? DoubleEndedIterator for $name {
            fn next_back(&mut self) -> Option<$item> {
                self.0.next_back()
            }
        }

        impl$(<$lifetime>)? ExactSizeIterator for $name {}

        impl$(<$lifetime>)? std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{} messages", self.len())
            }
        }
    };
}
iterates!(IntoIter, Arc<Message>);
iterates!(Iter<'m>, &'m Arc<Message>, 'm);

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

impl From<Vec<Arc<Message>>> for Messages {
    fn from(messages: Vec<Arc<Message>>) -> Self {
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
    fn shared_messages_are_not_copied() {
        let message = Arc::new(Message::user("hi"));
        let messages = Messages::from(vec![message.clone()]);
        assert!(messages.iter().all(|stored| Arc::ptr_eq(stored, &message)) && messages.len() == 1);
    }

    #[test]
    fn iterators_run_from_both_ends_and_report_their_exact_length() {
        for count in [0, 1, 63, 64, 65, 1000] {
            // A sequence that was joined several times has chunks of many different lengths in
            // memory.
            let mut messages = numbered(count);
            messages.append(&numbered(300).skip(count % 7));
            let expected: Vec<_> = (0..messages.len()).filter_map(|at| messages.get(at)).collect();
            assert!(messages.iter().eq(expected.iter().copied()));
            assert!((&messages).into_iter().eq(expected.iter().copied()));
            assert!(messages.clone().into_iter().eq(expected.iter().map(|it| (*it).clone())));
            assert_eq!((&messages).into_iter().len(), expected.len());
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
    fn append_range_appends_the_part_of_the_range_that_the_source_contains() {
        let source = numbered(500);
        for range in [0..500, 0..0, 3..9, 100..400, 450..900, 700..800, 64..129] {
            let mut messages = numbered(2);
            messages.append_range(&source, range.clone());
            let stretch = source.iter().skip(range.start).take(range.len());
            assert!(messages.iter().skip(2).eq(stretch), "{range:?}");
        }
    }

    /// A sequence, and the numbers that it should contain.
    #[derive(Clone, Default)]
    struct Version {
        messages: Messages,
        expected: Vec<Arc<Message>>,
    }

    impl Version {
        fn assert(&self) {
            let Self { messages, expected } = self;
            assert_eq!(messages.len(), expected.len());
            assert!(messages.iter().eq(expected));
            assert!(messages.iter().rev().eq(expected.iter().rev()));
            assert_eq!(messages.last(), expected.last());
            for at in [0, expected.len() / 2, expected.len().saturating_sub(3), expected.len()] {
                assert_eq!(messages.get(at), expected.get(at));
                assert!(messages.iter_from(at).eq(expected.iter().skip(at)));
            }
            let collected: Messages = expected.iter().cloned().collect();
            assert_eq!(*messages, collected);
            assert_eq!(collected, *messages);
        }
    }

    #[test]
    fn changes_of_one_clone_are_invisible_to_all_other_clones() {
        for seed in 0..200_u64 {
            let mut state = seed;
            let mut next = |below: usize| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 33) as usize % below
            };
            let mut versions = vec![Version::default()];
            let mut count = 0;
            for _ in 0..60 {
                let from = versions[next(versions.len())].clone();
                let mut version = versions[next(versions.len())].clone();
                let Version { messages, expected } = &mut version;
                match next(6) {
                    0..3 => {
                        for _ in 0..next(50) {
                            count += 1;
                            let message = Arc::new(Message::user(count.to_string()));
                            messages.push(message.clone());
                            expected.push(message);
                        }
                    }
                    3 => {
                        messages.append(&from.messages);
                        expected.extend(from.expected);
                    }
                    4 => {
                        let kept = next(expected.len() + 2);
                        *messages = messages.take(kept);
                        expected.truncate(kept);
                    }
                    _ => {
                        let gone = next(expected.len() + 2);
                        *messages = messages.skip(gone);
                        expected.drain(..gone.min(expected.len()));
                    }
                }
                versions.push(version);
            }
            versions.iter().for_each(Version::assert);
        }
    }

    #[test]
    fn clones_that_push_concurrently_contain_no_messages_of_each_other() {
        for count in [0, 3, 4, 5, 35, 36, 100] {
            let common = numbered(count);
            let mut pushed = common.clone();
            pushed.extend((0..3).map(|_| Message::user("before")));
            let versions: Vec<Version> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4)
                    .map(|thread| {
                        let messages = pushed.clone();
                        scope.spawn(move || {
                            let expected = messages.iter().cloned().collect();
                            let mut version = Version { messages, expected };
                            for number in 0..70 {
                                let message = Message::user(format!("{thread} {number}"));
                                let message = Arc::new(message);
                                version.messages.push(message.clone());
                                version.expected.push(message);
                            }
                            version
                        })
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            versions.iter().for_each(Version::assert);
            assert_eq!((common.len(), pushed.len()), (count, count + 3));
        }
    }
}
