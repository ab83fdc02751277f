//! Conversations that no service has seen, and what each service would refuse of a request.
//!
//! [`history`] makes a conversation of all kinds of parts: odd ids, names and arguments, media, the native
//! items of several services, answers without a content. Each call has one result. [`violations`] says what
//! a service would refuse of a request body. It shares no code with the crates that write bodies: its rules
//! are its own table.

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
