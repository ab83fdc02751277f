//! A store that gathers writes for a slower store.
//!
//! [`WriteBehindStore`] adds a write to the [`gathered`] writes, and acknowledges it if it was
//! gathered. The thread of the [`writer`] takes the writes that are due from there, submits them to
//! the inner store, and reports the outcome.
//! there, submits it to the store inside, and puts the outcome back.

mod gathered;
mod store;
mod writer;

pub use self::store::WriteBehindStore;
