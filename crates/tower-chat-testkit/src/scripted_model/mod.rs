//! A model client with scripted answers.

mod error;
mod model;
mod step;
mod updates;

pub use self::{error::ScriptError, model::ScriptedModel, step::Step};
