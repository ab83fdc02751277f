//! A store that gathers writes for a slower one.
//!
//! Data flows one way: [`WriteBehindStore`] puts a write into what is [`gathered`], which says whether
//! it is stored as far as its caller is concerned; the [`writer`]'s thread takes what is due from
//! there, submits it to the store inside, and puts the outcome back.

mod gathered;
mod store;
mod writer;

pub use self::store::WriteBehindStore;
