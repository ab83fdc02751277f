//! A model that answers from a script.

mod error;
mod leaf;
mod step;
mod updates;

pub use self::{error::LeafError, leaf::ScriptedLeaf, step::Step};
