//! The recorded exchanges.

use tower_chat_testkit::recordings::Recordings;
pub(crate) use tower_chat_testkit::recordings::{Api, Cassette, Exchange};

/// All cassettes, in order; `None`, and a line about it, where no data are named.
pub(crate) fn all() -> Option<Vec<Cassette>> {
    Some(Recordings::from_env()?.cassettes().unwrap())
}
