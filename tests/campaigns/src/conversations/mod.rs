//! Conversations that a campaign drives through the whole stack, and the plain model that each of them
//! is held against.
//!
//! Every text is made of a token that nothing else has, so a message that is lost, doubled, damaged or
//! in the wrong conversation is known by its text alone. Whatever the model client and the tools do is
//! told to a [`Reporter`] before the store can have it: what is stored and was never told of is a fault.

mod entry;
mod inspection;
mod model;
mod plan;
mod stack;
mod turn;

pub(crate) use self::{
    inspection::Asked,
    model::ConversationModel,
    plan::{Plan, Turn, key, text},
    stack::{Job, Outcome, PLANNED, Reporter, Stack, chain},
    turn::TurnEvent,
};
