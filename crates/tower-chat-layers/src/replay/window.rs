//! Step 8 of the [replay](super): limits the replay to the newest turns. A turn is the messages of
//! one run, from the input to the final answer.

use std::{collections::VecDeque, fmt, sync::Arc};

use serde::Deserialize;
use tower_chat_core::{Message, Messages, Part};

use super::{settings::WindowFields, turns::Turns};
use crate::transcript::is_system;

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
#[derive(Clone, Deserialize)]
#[serde(try_from = "WindowFields")]
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
        self.apply_after(messages, 0)
    }

    /// Like [`apply`](Self::apply), but does not remove the first `pinned` messages: the summary
    /// and the messages before it.
    pub(super) fn apply_after(&self, messages: &Messages, pinned: usize) -> Messages {
        let (head, begin) = self.bounds(messages, pinned);
        if begin <= head {
            return messages.clone();
        }
        let mut inside = messages.take(head);
        inside.append(&messages.skip(begin));
        inside
    }

    /// Returns the number of messages at the beginning that are never removed, and the position of
    /// the first message after the removed turns.
    fn bounds(&self, messages: &Messages, pinned: usize) -> (usize, usize) {
        let is_head =
            |(position, message): &(usize, &Arc<Message>)| *position < pinned || is_system(message);
        let head = messages.iter().enumerate().take_while(is_head).count();
        let cost = |message: &Message, begins: bool| match &self.unit {
            Unit::Messages => 1,
            Unit::Turns => usize::from(begins),
            Unit::Tokens(counter) => counter.tokens(message),
        };
        let of_head = messages.iter().take(head).map(|message| cost(message, false));
        let of_head = of_head.fold(0, usize::saturating_add);
        // The beginnings and costs of the turns inside the window, and the sum of these costs.
        let (mut visible, mut of_visible) = (VecDeque::new(), 0_usize);
        let mut turns = Turns::default();
        for (position, message) in messages.iter().enumerate().skip(head) {
            let begins = turns.begins_with(message);
            let cost = cost(message, begins);
            if begins {
                visible.push_back((position, 0_usize));
            }
            if let Some((_, turn)) = visible.back_mut() {
                *turn = turn.saturating_add(cost);
            }
            of_visible = of_visible.saturating_add(cost);
            if of_head.saturating_add(of_visible) <= self.limit {
                continue;
            }
            while of_head.saturating_add(of_visible) > self.low_water && visible.len() > 1 {
                let Some((_, turn)) = visible.pop_front() else { break };
                of_visible = of_visible.saturating_sub(turn);
            }
        }
        (head, visible.front().map_or(head, |(begin, _)| *begin))
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

#[cfg(test)]
mod tests;
