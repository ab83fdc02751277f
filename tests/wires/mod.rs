//! Tests with recorded conversations that providers have accepted. The conversations are stored,
//! loaded, replayed, and sent to other providers.

mod codec;
mod data;
mod normalised;
mod switching;
mod through_the_store;
