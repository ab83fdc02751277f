//! Tests every parser of external data with damaged and hostile inputs.
//!
//! A target is a parser with recorded inputs. A search damages these inputs at random, reproducibly
//! from a seed. Every execution must satisfy these rules: the parser neither panics nor ends the
//! process, it terminates, and its time and memory are at most proportional to the length of its
//! input. Targets have further rules: a decoded message can be stored and read again, and the
//! result of a stream does not depend on the pieces in which it arrives.
//!
//! The program runs each search in a child process, the worker. A search can therefore find inputs
//! that end or hang the process.

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
