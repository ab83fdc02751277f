//! The errors of opening a store.

use std::error::Error;

use tokio_postgres::error::SqlState;
use tower_chat_core::{Classified, is_retryable};

/// A store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The address cannot be parsed.
    #[error("the address of the PostgreSQL server cannot be parsed: see the cause")]
    Address {
        /// The error of the parser.
        source: Classified,
    },
    /// The root certificates, which verify the server's certificate, cannot be loaded.
    #[error(
        "the root certificates that verify the PostgreSQL server cannot be loaded: give the root certificate of the \
         server, or set `sslmode=disable` on a network that you trust"
    )]
    Certificates {
        /// The cause.
        source: Classified,
    },
    /// The server cannot be reached, or refuses the connection.
    #[error("{}", not_connected(source))]
    Connect {
        /// The cause. Its chain of sources shows whether a repeated attempt may succeed.
        source: Classified,
    },
    /// The certificate of the server is not valid, for example because it does not contain the host
    /// in the address, or because its issuer is not known.
    #[error(
        "the certificate of the PostgreSQL server is not valid for the host in the address: check that the \
         certificate contains the host, and give the root certificate that signed it"
    )]
    Untrusted {
        /// The cause.
        source: Classified,
    },
    /// The tables could not be created or migrated.
    #[error("the tables in schema `{schema}` could not be created or migrated: see the cause")]
    Migrate {
        /// The schema.
        schema: String,
        /// The server's error. Its chain of sources shows whether a repeated attempt may succeed.
        source: Classified,
    },
    /// There are no tables, and the options do not allow creating them.
    #[error(
        "schema `{schema}` does not have the tables: check the address and the schema, or allow creating them \
         (`with_migration`)"
    )]
    NoTables {
        /// The schema.
        schema: String,
    },
    /// An older release created the tables, and the options do not allow a migration.
    #[error(
        "the tables in schema `{schema}` have version {version} and must be migrated to version {supported}: open \
         them once with a migration (`with_migration`)"
    )]
    Older {
        /// The schema.
        schema: String,
        /// The version of the tables.
        version: i64,
        /// The required version.
        supported: i64,
    },
    /// A newer release created the tables.
    #[error(
        "the tables in schema `{schema}` have version {version}, and this release supports versions up to \
         {supported}: use the newer release that created them"
    )]
    Newer {
        /// The schema.
        schema: String,
        /// The version of the tables.
        version: i64,
        /// The newest supported version.
        supported: i64,
    },
    /// The encoding of the database is not UTF-8.
    #[error(
        "the encoding of the database is {encoding}: create the database with `ENCODING 'UTF8'`"
    )]
    Encoding {
        /// The encoding of the database.
        encoding: String,
    },
    /// A setting is out of its range.
    #[error("the option `{option}` cannot be {value}: use a value from 1 to {largest}")]
    InvalidOption {
        /// The setting.
        option: &'static str,
        /// The value of the setting.
        value: usize,
        /// The largest value that the setting can have.
        largest: usize,
    },
}

impl OpenError {
    /// Returns whether a repeated attempt to open the store with the same options may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Address { source }
            | Self::Certificates { source }
            | Self::Connect { source }
            | Self::Untrusted { source }
            | Self::Migrate { source, .. } => is_retryable(source) == Some(true),
            Self::NoTables { .. }
            | Self::Older { .. }
            | Self::Newer { .. }
            | Self::Encoding { .. }
            | Self::InvalidOption { .. } => false,
        }
    }
}

/// Returns the message for a failed connection, which depends on the answer of the server.
fn not_connected(source: &Classified) -> &'static str {
    let mut cause = source.source();
    while let Some(error) = cause {
        if let Some(code) = error.downcast_ref().and_then(tokio_postgres::Error::code) {
            return refused(code);
        }
        cause = error.source();
    }
    "the PostgreSQL server cannot be reached: check that it runs, and that the address is correct"
}

/// Returns the message for an error with which the server has refused the connection.
fn refused(code: &SqlState) -> &'static str {
    if *code == SqlState::INVALID_CATALOG_NAME {
        "the PostgreSQL server does not have the database in the address: correct the name, or create the database \
         (`CREATE DATABASE`)"
    } else if *code == SqlState::INVALID_PASSWORD
        || *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION
    {
        "the PostgreSQL server refused the user: check the user and the password in the address, and the server's \
         pg_hba.conf"
    } else {
        "the PostgreSQL server refused the connection: see the cause"
    }
}
