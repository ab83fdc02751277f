//! For programs that bring along the histories which other systems have stored.
//!
//! - [`rows`]: histories of systems that store one row for each turn.

#![warn(clippy::too_many_lines)]

pub mod rows;
