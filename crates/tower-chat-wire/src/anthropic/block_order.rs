//! Puts the blocks of each message into the order that the service requires.

use tower_chat_core::{RawJson, Text};

use super::content;
use crate::fields::{Fields, raw};

/// The role of a message in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    System,
    User,
    Assistant,
}

/// The kind of a block, which determines its position among the blocks of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Thinking,
    Call,
    Result,
    Other,
}

/// A content block.
#[derive(Debug)]
pub(super) struct Block {
    kind: Kind,
    json: RawJson,
    /// Whether `json` is a string, which is written as a text block if there are other blocks.
    is_bare: bool,
}

impl Block {
    pub(super) fn new(kind: Kind, json: RawJson) -> Self {
        Self { kind, json, is_bare: false }
    }

    pub(super) fn text(text: &Text) -> Self {
        if content::is_bare(text) {
            Self { kind: Kind::Text, json: raw(&text.text), is_bare: true }
        } else {
            Self::new(Kind::Text, content::render_text(text))
        }
    }

    fn into_json(self) -> RawJson {
        if !self.is_bare {
            return self.json;
        }
        let mut fields = Fields::default();
        fields.set("type", raw("text"));
        fields.set("text", self.json);
        raw(&fields)
    }
}

/// A message of the request that is being written.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) speaker: Speaker,
    pub(super) blocks: Vec<Block>,
    /// The fields of the message besides its role and its blocks. The field `content` is among them
    /// only if the message was read with an empty content.
    pub(super) other_fields: Fields,
}

impl Turn {
    pub(super) fn new(speaker: Speaker, other_fields: Fields) -> Self {
        Self { speaker, blocks: Vec::new(), other_fields }
    }

    fn into_json(mut self) -> RawJson {
        let role = match self.speaker {
            Speaker::System => "system",
            Speaker::User => "user",
            Speaker::Assistant => "assistant",
        };
        self.other_fields.set("role", raw(role));
        if let Some(content) = content_of(self.blocks) {
            self.other_fields.set("content", content);
        }
        raw(&self.other_fields)
    }

    /// Returns whether the message is written: if it has blocks, or if the service accepts the
    /// empty content with which it was read. `is_last` is whether it is the last message of the
    /// request.
    fn is_rendered(&self, is_last: bool) -> bool {
        let may_be_empty = match self.speaker {
            Speaker::System => true,
            Speaker::User => false,
            Speaker::Assistant => is_last,
        };
        !self.blocks.is_empty() || may_be_empty && self.other_fields.contains("content")
    }

    /// Moves the results of a user message before its other blocks. In an assistant message, moves
    /// the texts after the first call to the position before this call.
    fn sort(&mut self) {
        match self.speaker {
            Speaker::System => {}
            Speaker::User => self.blocks.sort_by_key(|block| block.kind != Kind::Result),
            Speaker::Assistant => {
                let is_call = |block: &Block| block.kind == Kind::Call;
                let Some(first_call) = self.blocks.iter().position(is_call) else { return };
                let called = self.blocks.split_off(first_call);
                let is_text = |block: &Block| block.kind == Kind::Text;
                let (texts, calls): (Vec<_>, Vec<_>) = called.into_iter().partition(is_text);
                self.blocks.extend(texts.into_iter().chain(calls));
            }
        }
    }
}

/// Returns the value of `content` for these blocks: a string, a list, or `None` without blocks.
pub(super) fn content_of(blocks: Vec<Block>) -> Option<RawJson> {
    match blocks.as_slice() {
        [] => None,
        [Block { json, is_bare: true, .. }] => Some(json.clone()),
        _ => {
            let list: Vec<RawJson> = blocks.into_iter().map(Block::into_json).collect();
            Some(raw(&list))
        }
    }
}

/// Returns the JSON of the messages in the form that the service requires. Messages that cannot be
/// written are omitted. If the messages before and after an omitted one have the same role, they
/// are joined, unless the later one has fields besides its role and content.
pub(super) fn ordered_blocks(mut turns: Vec<Turn>) -> Vec<RawJson> {
    turns.iter_mut().for_each(Turn::sort);
    drop_last_thoughts(&mut turns);
    let last = turns.len().saturating_sub(1);
    let mut kept: Vec<Turn> = Vec::with_capacity(turns.len());
    for (index, turn) in turns.into_iter().enumerate() {
        if !turn.is_rendered(index == last) {
            continue;
        }
        match kept.last_mut() {
            // The messages between `before` and `turn` were omitted.
            Some(before) if before.speaker == turn.speaker && turn.other_fields.is_empty() => {
                before.blocks.extend(turn.blocks);
                before.sort();
            }
            _ => kept.push(turn),
        }
    }
    kept.into_iter().map(Turn::into_json).collect()
}

/// Removes thinking blocks at the end of each group of consecutive assistant messages.
fn drop_last_thoughts(turns: &mut [Turn]) {
    let mut may_end = true;
    for turn in turns.iter_mut().rev() {
        if turn.speaker != Speaker::Assistant {
            may_end |= !turn.blocks.is_empty();
            continue;
        }
        while may_end && turn.blocks.pop_if(|block| block.kind == Kind::Thinking).is_some() {}
        may_end &= turn.blocks.is_empty();
    }
}
