//! Tests every parser of external data with damaged and hostile inputs.
//!
//! A target is a parser with seed inputs, most of which are recorded. A search in a target damages
//! these inputs at random, reproducibly from a number. Every execution must satisfy these rules:
//!
//! - The parser neither panics nor ends the process.
//! - The parser terminates.
//! - Its time and memory are at most proportional to the length of the input.
//!
//! Some targets have further rules: a decoded message can be stored and read again, and the result
//! of a stream does not depend on the pieces in which the stream arrives.
//!
//! A search runs in a child process, the worker, because an input can end or hang the process.

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
