//! Conversations that a campaign runs through the whole stack, and a plain model with which each
//! stored conversation is compared.
//!
//! Every text is generated from a unique token. The text of a message alone shows whether the
//! message is lost, duplicated, damaged or in the wrong conversation. The model client and the
//! tools report every answer and execution to a [`Reporter`] before the store can receive it. A
//! stored message that was never reported is therefore a fault.

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
