//! Anthropic Messages.

mod body;
mod own;
mod vertex;

pub(crate) use self::{body::render, own::complete, vertex::complete_for_vertex};
