//! Conversations that a campaign runs through the whole stack. Each is compared with a plain model.
//!
//! Every text is generated from a unique token, so a message that is lost, duplicated, damaged or in the
//! wrong conversation is recognised by its text alone. The model client and the tools report every answer
//! and execution to a [`Reporter`] before the store can receive it: a stored message that was never
//! reported is a fault.

mod entry;
mod inspection;
mod model;
mod plan;
mod stack;
mod turn;

pub(crate) use self::{
    inspection::ReadAt,
    model::ConversationModel,
    plan::{Plan, Turn, key, text},
    stack::{Job, Outcome, PLANNED, Reporter, Stack, chain},
    turn::TurnEvent,
};
