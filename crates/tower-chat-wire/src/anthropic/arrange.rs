//! Blocks in the order that the wire wants, message by message.

use tower_chat_core::RawJson;

use crate::fields::{Fields, raw};

/// Who speaks on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    System,
    User,
    Assistant,
}

/// What a block is, as far as its place depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Thinking,
    Call,
    Result,
    Other,
}

/// A block, and the text alone if that can stand in the place of a list.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) kind: Kind,
    pub(super) json: RawJson,
    pub(super) bare: Option<RawJson>,
}

impl Block {
    pub(super) fn new(kind: Kind, json: RawJson) -> Self {
        Self { kind, json, bare: None }
    }
}

/// A message of the wire as it grows.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) speaker: Speaker,
    pub(super) blocks: Vec<Block>,
    /// Its other fields.
    pub(super) rest: Fields,
}

impl Turn {
    pub(super) fn new(speaker: Speaker, rest: Fields) -> Self {
        Self { speaker, blocks: Vec::new(), rest }
    }

    fn into_json(mut self) -> RawJson {
        let role = match self.speaker {
            Speaker::System => "system",
            Speaker::User => "user",
            Speaker::Assistant => "assistant",
        };
        self.rest.set("role", raw(role));
        if let Some(content) = content_of(self.blocks) {
            self.rest.set("content", content);
        }
        raw(&self.rest)
    }

    /// Results before everything else; texts before calls.
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

/// The content that blocks make, or `None` if there are none: a bare text, or a list.
pub(super) fn content_of(blocks: Vec<Block>) -> Option<RawJson> {
    match blocks.as_slice() {
        [] => None,
        [Block { bare: Some(text), .. }] => Some(text.clone()),
        _ => {
            let list: Vec<RawJson> = blocks.into_iter().map(|block| block.json).collect();
            Some(raw(&list))
        }
    }
}

/// The messages in their final form.
pub(super) fn arranged(mut turns: Vec<Turn>) -> Vec<RawJson> {
    turns.iter_mut().for_each(Turn::sort);
    drop_last_thoughts(&mut turns);
    let count = turns.len();
    let is_kept = |(index, turn): &(usize, Turn)| {
        !turn.blocks.is_empty()
            || turn.rest.contains("content")
                && match turn.speaker {
                    Speaker::System => true,
                    Speaker::User => false,
                    Speaker::Assistant => index + 1 == count,
                }
    };
    turns.into_iter().enumerate().filter(is_kept).map(|(_, turn)| turn.into_json()).collect()
}

/// Takes away thoughts with which an assistant's turn would end.
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
