//! A model that answers from a script.

mod error;
mod model;
mod step;
mod updates;

pub use self::{error::ScriptError, model::ScriptedModel, step::Step};
