//! Tests of conversations that providers accepted: through the stores, and to the other wires.

mod codec;
mod data;
mod normalised;
mod switching;
mod through_the_store;
