//! Opens the stores that the command line names.

mod conversations;
mod encryption;
mod location;
mod opened;
mod updates;

pub(crate) use self::{
    conversations::{keys, scopes},
    encryption::{KeysError, VARIABLE as KEYS_VARIABLE},
    location::StoreLocation,
    opened::{OpenedStore, postgres_options, redis_options},
};
