//! Tests of the types of a conversation and of their stored form.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is a failing test")]

mod answer_end;
mod bare_store;
mod branches;
mod cache_key;
mod messages;
mod request;
mod response;
mod store_rules;
mod store_types;
mod stored_format;
