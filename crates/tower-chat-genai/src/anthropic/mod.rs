//! Anthropic Messages.

mod answer;
mod body;
mod draft;
mod own;
mod thinking;
mod vertex;

pub(crate) use self::{
    answer::parse, body::render, draft::AnthropicDraft, own::complete,
    thinking::goes_on_without_thinking, vertex::complete_for_vertex,
};
