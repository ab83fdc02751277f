//! Step 8 of the [replay](super): limits the replay to the newest turns. A turn is the messages of
//! one run, from the input to the final answer.

use std::{collections::VecDeque, fmt, sync::Arc};

use tower_chat_core::{Message, Messages, Part, Role};

use super::turns::Turns;

/// Limits the length of a replay. Only the newest turns are sent. A turn is sent completely or not
/// at all, so that no result is sent without its call.
///
/// When the length exceeds the limit, the oldest turns are removed until the length is at most the
/// low-water mark, a lower limit. By default, the mark is three quarters of the limit. Until the
/// next removal, the replay only grows at its end, and the prompt caches of providers remain valid.
/// Which turns are removed depends only on the messages.
///
/// System and developer messages at the beginning of the conversation, and a summary after them,
/// are never removed, but count towards the limit. The newest turn is never removed, even if its
/// length exceeds the limit.
///
/// ```
/// use tower_chat::{Message, message::Messages, replay::Window};
/// let turn = |n: usize| [Message::user(format!("question {n}")), Message::assistant("answer")];
/// let messages: Messages = (0..5).flat_map(turn).collect();
/// assert_eq!(Window::turns(4).apply(&messages).len(), 6); // turns 3 to 5 remain
/// ```
#[derive(Clone)]
pub struct Window {
    unit: Unit,
    limit: usize,
    low_water: usize,
}

#[derive(Clone)]
enum Unit {
    Messages,
    Turns,
    Tokens(Arc<dyn TokenCounter>),
}

/// Counts the tokens of a message. Closures with the signature of [`tokens`](Self::tokens)
/// implement this trait.
///
/// ```
/// use tower_chat::{Message, replay::{TokenCounter, Window}};
///
/// // Your tokenizer. In this example, each token has four bytes.
/// let count = |message: &Message| message.text().len() / 4;
/// assert_eq!(count.tokens(&Message::user("a sentence of 24 bytes..")), 6);
/// let window = Window::tokens_counted_by(100_000, count);
/// # let _ = window;
/// ```
pub trait TokenCounter: Send + Sync {
    /// Returns the number of tokens of a message. Every call with the same message must return the
    /// same number.
    fn tokens(&self, message: &Message) -> usize;
}

impl<F: Fn(&Message) -> usize + Send + Sync> TokenCounter for F {
    fn tokens(&self, message: &Message) -> usize {
        self(message)
    }
}

/// A rough estimate for use without a tokenizer. The estimate is one token for every four bytes of
/// text, names, arguments and results, and four tokens for each message and each part. The estimate
/// is about right for English text, and too high for code and other languages. An image or a file
/// counts as a thousand tokens, because the number of its tokens does not depend on its size in
/// bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct EstimatedTokens;

impl TokenCounter for EstimatedTokens {
    fn tokens(&self, message: &Message) -> usize {
        4 + message.parts.iter().map(|part| 4 + tokens_of(part)).sum::<usize>()
    }
}

fn tokens_of(part: &Part) -> usize {
    let bytes = match part {
        Part::Text(text) => text.text.len(),
        Part::Reasoning(reasoning) => reasoning.text.len(),
        Part::ToolCall(call) => call.name.len() + call.arguments.len(),
        Part::ToolResult(result) => return result.content.iter().map(tokens_of).sum(),
        Part::Media(_) => 4 * 1000,
        Part::Error(error) => error.message.len(),
        Part::Native(native) => native.item.get().len(),
        // These parts are never sent to a model.
        _ => 0,
    };
    bytes.div_ceil(4)
}

impl Window {
    /// Limits the replay to this number of messages.
    pub fn messages(limit: usize) -> Self {
        Self::of(Unit::Messages, limit)
    }

    /// Limits the replay to this number of turns.
    pub fn turns(limit: usize) -> Self {
        Self::of(Unit::Turns, limit)
    }

    /// Limits the replay to this number of tokens, as [`EstimatedTokens`] counts them.
    pub fn tokens(limit: usize) -> Self {
        Self::tokens_counted_by(limit, EstimatedTokens)
    }

    /// Limits the replay to this number of tokens, as `counter` counts them.
    ///
    /// ```
    /// use tower_chat::{Message, replay::Window};
    /// let window = Window::tokens_counted_by(8_000, |message: &Message| message.text().len());
    /// ```
    pub fn tokens_counted_by(limit: usize, counter: impl TokenCounter + 'static) -> Self {
        Self::of(Unit::Tokens(Arc::new(counter)), limit)
    }

    /// Sets the low-water mark, in the unit of the limit: messages, turns or tokens. A value above
    /// the limit is reduced to the limit.
    #[must_use]
    pub fn with_low_water(mut self, low_water: usize) -> Self {
        self.low_water = low_water.min(self.limit);
        self
    }

    /// Returns the limit and the low-water mark of a window in turns.
    pub(crate) fn as_turns(&self) -> Option<(usize, usize)> {
        matches!(self.unit, Unit::Turns).then_some((self.limit, self.low_water))
    }

    /// Returns the messages inside the window.
    pub fn apply(&self, messages: &Messages) -> Messages {
        let mut boundary = Boundary::of(self);
        messages.iter().for_each(|message| boundary.push(message));
        boundary.cut(messages)
    }

    fn of(unit: Unit, limit: usize) -> Self {
        Self { unit, limit, low_water: limit / 4 * 3 + limit % 4 * 3 / 4 }
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.unit {
            Unit::Messages => "messages",
            Unit::Turns => "turns",
            Unit::Tokens(_) => "tokens",
        };
        f.debug_struct("Window")
            .field("unit", &unit)
            .field("limit", &self.limit)
            .field("low_water", &self.low_water)
            .finish()
    }
}

/// The position at which the window of a conversation begins. [`push`](Self::push) updates the
/// position.
#[derive(Debug, Clone)]
pub(crate) struct Boundary {
    window: Window,
    turns: Turns,
    /// The number of messages at the beginning that are never removed: the `pinned` ones, and
    /// system and developer messages.
    head: usize,
    /// The number of messages at the beginning that are never removed, whatever their role is: the
    /// summary and the messages before it.
    pinned: usize,
    /// The cost of the first `head` messages, in the unit of the window.
    head_cost: usize,
    pushed: usize,
    /// The turns inside the window, from the oldest to the newest.
    visible: VecDeque<Turn>,
    cost: usize,
}

#[derive(Debug, Clone)]
struct Turn {
    begin: usize,
    cost: usize,
}

impl Boundary {
    pub(crate) fn of(window: &Window) -> Self {
        Self {
            window: window.clone(),
            turns: Turns::default(),
            head: 0,
            pinned: 0,
            head_cost: 0,
            pushed: 0,
            visible: VecDeque::new(),
            cost: 0,
        }
    }

    pub(super) fn with_pinned(mut self, pinned: usize) -> Self {
        self.pinned = pinned;
        self
    }

    pub(crate) fn push(&mut self, message: &Message) {
        let position = self.pushed;
        self.pushed += 1;
        let is_pinned =
            position < self.pinned || matches!(message.role, Role::System | Role::Developer);
        let is_head = self.head == position && is_pinned;
        let begins = !is_head && (self.turns.begins_with(message) || self.visible.is_empty());
        let cost = match &self.window.unit {
            Unit::Messages => 1,
            Unit::Turns => usize::from(begins),
            Unit::Tokens(counter) => counter.tokens(message),
        };
        if is_head {
            self.head += 1;
            self.head_cost = self.head_cost.saturating_add(cost);
            return;
        }
        if begins {
            self.visible.push_back(Turn { begin: position, cost: 0 });
        }
        if let Some(turn) = self.visible.back_mut() {
            turn.cost = turn.cost.saturating_add(cost);
        }
        self.cost = self.cost.saturating_add(cost);
        if self.total() > self.window.limit {
            self.go_down_to(self.window.low_water);
        }
    }

    pub(crate) fn cut(&self, messages: &Messages) -> Messages {
        let begin = self.begin();
        if begin <= self.head {
            return messages.clone();
        }
        let mut cut = messages.take(self.head);
        cut.append(&messages.skip(begin));
        cut
    }

    pub(super) fn head(&self) -> usize {
        self.head
    }

    /// Returns the position of the first message after the removed turns.
    pub(crate) fn begin(&self) -> usize {
        self.visible.front().map_or(self.head, |turn| turn.begin)
    }

    fn total(&self) -> usize {
        self.head_cost.saturating_add(self.cost)
    }

    fn go_down_to(&mut self, mark: usize) {
        while self.total() > mark && self.visible.len() > 1 {
            let Some(turn) = self.visible.pop_front() else { return };
            self.cost = self.cost.saturating_sub(turn.cost);
        }
    }
}

#[cfg(test)]
mod tests;
