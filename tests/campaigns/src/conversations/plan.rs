//! The runs of the conversations, and their texts.

use serde::{Deserialize, Serialize};
use tower_chat::{ConversationKey, PersistenceMode};
use tower_chat_testkit::Rng;

/// A run: the number of its conversation, and its number in the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Turn {
    pub(crate) conversation: u32,
    pub(crate) number: u32,
}

/// The plan of a run. It depends only on the run, so that every process makes the same plan.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    pub(crate) mode: PersistenceMode,
    /// The number of tool calls in each answer before the final one.
    pub(crate) rounds: Vec<usize>,
}

const SCOPES: u32 = 7;

pub(crate) fn key(conversation: u32) -> ConversationKey {
    ConversationKey::new(format!("user {}", conversation % SCOPES), format!("about {conversation}"))
}

impl Turn {
    /// Returns the token of the input.
    pub(crate) fn token(self) -> String {
        format!("c{}t{}", self.conversation, self.number)
    }

    /// Returns the turn of an input.
    pub(crate) fn of_text(text: &str) -> Option<Self> {
        let token = text.split_whitespace().next()?;
        let (conversation, number) = token.strip_prefix('c')?.split_once('t')?;
        let turn = Self { conversation: conversation.parse().ok()?, number: number.parse().ok()? };
        (self::text(token) == text).then_some(turn)
    }
}

impl Plan {
    pub(crate) fn of(seed: u64, turn: Turn) -> Self {
        let case = (u64::from(turn.conversation) << 32) | u64::from(turn.number);
        let mut rng = Rng::of(seed, case);
        let mode = match rng.below(3) {
            0 => PersistenceMode::PerRun,
            1 => PersistenceMode::PerServiceCall,
            _ => PersistenceMode::Journaled,
        };
        let rounds = (0..rng.below(3)).map(|_| 1 + rng.below(3)).collect();
        Self { mode, rounds }
    }
}

/// Returns the token, followed by words that are generated from it. Most texts are short, but about
/// one in thirty has thousands of bytes.
pub(crate) fn text(token: &str) -> String {
    let hash = token.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut rng = Rng::of(hash, 0);
    let words = if rng.one_in(30) { 200 + rng.below(800) } else { 1 + rng.below(20) };
    let mut text = token.to_owned();
    for _ in 0..words {
        text.push_str(&format!(" {:x}", rng.next() & 0xff_ffff));
    }
    text
}

/// Returns the token of a text, if [`text`] generates exactly this text from it.
pub(crate) fn token_of(text: &str) -> Option<&str> {
    let token = text.split_whitespace().next()?;
    (self::text(token) == text).then_some(token)
}
