//! Damaged and hostile input for every parser of foreign bytes.
//!
//! A target is a parser with recorded inputs, which are damaged by seed. Every execution
//! keeps these rules: the parser neither panics nor ends the process, it comes to an end, and it takes
//! time and memory in proportion to the length of its input. A target has rules of its own besides: what
//! is read can be stored and read again, and the pieces in which a stream arrives do not matter.
//!
//! The program runs a search in a second process, so that an input that ends or hangs it is found too.

mod damage;
mod figures;
mod finding;
mod memory;
mod plant;
mod program;
mod search;
mod seeds;
mod supervisor;
mod targets;

pub use self::{
    figures::Figures,
    finding::{Finding, Rule},
    plant::Plant,
    program::{Arguments, run},
    supervisor::SupervisorError,
};
