//! Tests the inspector by sending HTTP requests to its router or its server.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that fails says where")]

mod browser;
mod following;
mod guard;
mod pages;
mod support;
