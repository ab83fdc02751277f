//! Step 6: only the newest turns.

use std::{collections::VecDeque, fmt, sync::Arc};

use tower_chat_core::{Message, Messages, Part, Role};

use super::turns::Turns;

/// Keeps a replay short: only the newest turns are shown, whole ones alone, and never a result
/// without its call.
///
/// When the limit is exceeded, the oldest turns leave until the rest is down to a low-water mark,
/// three quarters of the limit unless another is set. Up to the next such move the replay only
/// grows at its end, so that the prompt caches of providers keep hitting. Where the boundary
/// stands follows from the messages alone.
///
/// System and developer messages at the beginning of the conversation always stay, and count. The
/// newest turn always stays, however long it is: a single turn over the limit is shown whole.
///
/// ```
/// use tower_chat::{Message, Messages, replay::Window};
/// let turn = |n: usize| [Message::user(format!("question {n}")), Message::assistant("answer")];
/// let messages: Messages = (0..5).flat_map(turn).collect();
/// assert_eq!(Window::turns(4).apply(&messages).len(), 6); // the fifth brought it down to three
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

/// Says how many tokens a message costs. Implemented by closures.
///
/// ```
/// use tower_chat::{Message, replay::{TokenCounter, Window}};
///
/// // A tokenizer of yours; here every four bytes are a token.
/// let count = |message: &Message| message.text().len() / 4;
/// assert_eq!(count.tokens(&Message::user("a sentence of 24 bytes..")), 6);
/// let window = Window::tokens_counted_by(100_000, count);
/// # let _ = window;
/// ```
pub trait TokenCounter: Send + Sync {
    /// The tokens of a message; the same at every call.
    fn tokens(&self, message: &Message) -> usize;
}

impl<F: Fn(&Message) -> usize + Send + Sync> TokenCounter for F {
    fn tokens(&self, message: &Message) -> usize {
        self(message)
    }
}

/// A rough estimate for when no tokenizer is at hand: one token for four bytes of text, names,
/// arguments and results, and four for each message and each part. English text comes out about
/// right, code and other languages too high; an image or a file counts as a thousand, as its size
/// says little.
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
        // Never sent to a model.
        _ => 0,
    };
    bytes.div_ceil(4)
}

impl Window {
    /// At most so many messages.
    pub fn messages(limit: usize) -> Self {
        Self::of(Unit::Messages, limit)
    }

    /// At most so many turns.
    pub fn turns(limit: usize) -> Self {
        Self::of(Unit::Turns, limit)
    }

    /// At most so many tokens, as [`EstimatedTokens`] counts them.
    pub fn tokens(limit: usize) -> Self {
        Self::tokens_counted_by(limit, EstimatedTokens)
    }

    /// At most so many tokens, as somebody else counts them.
    ///
    /// ```
    /// use tower_chat::{Message, replay::Window};
    /// let window = Window::tokens_counted_by(8_000, |message: &Message| message.text().len());
    /// ```
    pub fn tokens_counted_by(limit: usize, counter: impl TokenCounter + 'static) -> Self {
        Self::of(Unit::Tokens(Arc::new(counter)), limit)
    }

    /// What is left when turns leave, in the unit of the limit; no more than the limit counts.
    #[must_use]
    pub fn with_low_water(mut self, low_water: usize) -> Self {
        self.low_water = low_water.min(self.limit);
        self
    }

    /// The messages inside the window.
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

/// Where the window of a conversation begins, found out message by message.
///
/// Kept beside a conversation that grows, it costs the same for every message, however many came
/// before.
#[derive(Debug, Clone)]
pub(crate) struct Boundary {
    window: Window,
    turns: Turns,
    /// How many messages at the beginning always stay, and what they cost.
    head: usize,
    head_cost: usize,
    pushed: usize,
    /// The turns inside the window, oldest first.
    visible: VecDeque<Turn>,
    cost: usize,
}

#[derive(Debug, Clone)]
struct Turn {
    begin: usize,
    cost: usize,
}

impl Boundary {
    /// The boundary of a conversation without messages.
    pub(crate) fn of(window: &Window) -> Self {
        Self {
            window: window.clone(),
            turns: Turns::default(),
            head: 0,
            head_cost: 0,
            pushed: 0,
            visible: VecDeque::new(),
            cost: 0,
        }
    }

    /// Takes the next message.
    pub(crate) fn push(&mut self, message: &Message) {
        let position = self.pushed;
        self.pushed += 1;
        let is_head =
            self.head == position && matches!(message.role, Role::System | Role::Developer);
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

    /// The messages inside the window, out of those that were pushed.
    pub(crate) fn cut(&self, messages: &Messages) -> Messages {
        let begin = self.begin();
        if begin <= self.head {
            return messages.clone();
        }
        let mut cut = messages.take(self.head);
        cut.append(&messages.skip(begin));
        cut
    }

    /// How many messages at the beginning always stay.
    pub(super) fn head(&self) -> usize {
        self.head
    }

    /// The position of the oldest message that is shown, apart from those that always stay.
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
