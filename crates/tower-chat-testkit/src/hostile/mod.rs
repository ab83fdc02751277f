//! Generates conversations for tests of request bodies, and checks the bodies.
//!
//! [`history`] generates a conversation with unusual content: ids, names and arguments that
//! services may refuse, media, items in the formats of several services, and answers without
//! content. Each call has one result. [`violations`] describes each reason for which a service
//! would refuse a request body. The checks share no code with the crates that write request bodies,
//! and have their own table of rules.

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
