//! Generated conversations for tests of request bodies, and a checker of the bodies.
//!
//! [`history`] generates a conversation with all kinds of parts: unusual ids, names and arguments, media,
//! the native items of several services, and answers without content. Each call has one result.
//! [`violations`] returns descriptions of everything that a service would refuse in a request body. The
//! checker shares no code with the crates that write bodies, and has its own table of rules.

#[allow(clippy::indexing_slicing, reason = "a JSON value gives null for what it has not")]
mod checker;
mod generator;
#[allow(clippy::indexing_slicing, reason = "a JSON value gives null for what it has not")]
mod paths;
mod service;

pub use self::{
    checker::violations,
    generator::{definitions, history},
    paths::{calls, texts},
    service::Service,
};
