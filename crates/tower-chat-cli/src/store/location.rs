//! Parses the address of a store.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::builder::{TypedValueParser, ValueParserFactory};
use percent_encoding::percent_decode_str;

use crate::error::CliError;

/// The URL parameter that sets whether connections to PostgreSQL use prepared statements.
const PREPARED_STATEMENTS: &str = "prepared_statements";

/// The address of a store on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreLocation {
    /// A store in the memory of this process, whose data is lost when the process ends.
    Memory,
    Sqlite(PathBuf),
    Postgres {
        address: String,
        /// The schema with the tables, if it is not the default.
        schema: Option<String>,
        /// Whether to use prepared statements, which some poolers do not support.
        prepared_statements: bool,
    },
    Redis {
        address: String,
        /// The prefix of all keys, if it is not the default.
        prefix: Option<String>,
    },
}

/// The error of parsing a text that is not the address of a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StoreLocationError {
    #[error("it is not UTF-8: percent-encode other bytes in an address")]
    NotUtf8,
    #[error("sqlite: needs the path of a file, as in sqlite:chat.db")]
    NoPath,
    #[error("the {parameter} in it is not UTF-8: percent-encode it as UTF-8")]
    NotText { parameter: &'static str },
    #[error("the {PREPARED_STATEMENTS} in it must be true or false")]
    NotTrueOrFalse,
    #[error(
        "it must begin with sqlite:, postgres:// or redis://, or be memory:, as in sqlite:chat.db or \
         postgres://USER@HOST/DATABASE"
    )]
    Unknown,
}

impl FromStr for StoreLocation {
    type Err = StoreLocationError;

    fn from_str(text: &str) -> Result<Self, StoreLocationError> {
        match text.split_once(':') {
            Some(("sqlite", "")) => Err(StoreLocationError::NoPath),
            Some(("sqlite", path)) => Ok(Self::Sqlite(path.into())),
            Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => {
                let (address, schema) = without_parameter(text, "schema")?;
                let (address, prepared) = without_parameter(&address, PREPARED_STATEMENTS)?;
                let prepared_statements = match prepared.as_deref() {
                    None | Some("true") => true,
                    Some("false") => false,
                    Some(_) => return Err(StoreLocationError::NotTrueOrFalse),
                };
                Ok(Self::Postgres { address, schema, prepared_statements })
            }
            Some(("redis" | "rediss", rest)) if rest.starts_with("//") => {
                let (address, prefix) = without_parameter(text, "prefix")?;
                Ok(Self::Redis { address, prefix })
            }
            Some(("memory", "")) => Ok(Self::Memory),
            _ => Err(StoreLocationError::Unknown),
        }
    }
}

/// Removes a URL parameter that the server would refuse. Returns the URL and the value.
fn without_parameter(
    address: &str,
    name: &'static str,
) -> Result<(String, Option<String>), StoreLocationError> {
    let Some((base, query)) = address.split_once('?') else { return Ok((address.into(), None)) };
    let mut value = None;
    let mut others = Vec::new();
    for parameter in query.split('&') {
        match parameter.split_once('=') {
            Some((found, text)) if found == name => {
                let decoded = percent_decode_str(text).decode_utf8();
                let decoded =
                    decoded.map_err(|_| StoreLocationError::NotText { parameter: name })?;
                value = Some(decoded.into_owned());
            }
            _ => others.push(parameter),
        }
    }
    let address = match others.is_empty() {
        true => base.to_owned(),
        false => format!("{base}?{}", others.join("&")),
    };
    Ok((address, value))
}

impl ValueParserFactory for StoreLocation {
    type Parser = StoreLocationParser;

    fn value_parser() -> StoreLocationParser {
        StoreLocationParser
    }
}

/// Parses the address of a store. Errors do not contain the text, which may have a password.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoreLocationParser;

impl TypedValueParser for StoreLocationParser {
    type Value = StoreLocation;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<StoreLocation, clap::Error> {
        let parsed = value.to_str().ok_or(StoreLocationError::NotUtf8).and_then(str::parse);
        parsed.map_err(|error: StoreLocationError| {
            let argument = argument.map(ToString::to_string).unwrap_or_default();
            let message = format!("the store of {argument} cannot be parsed: {error}\n");
            clap::Error::raw(clap::error::ErrorKind::ValueValidation, message).with_cmd(command)
        })
    }
}

impl StoreLocation {
    /// Returns the name of the store for a receipt: the address without the password, and with no
    /// parameters other than the schema and the prefix, because others may contain a password.
    pub(crate) fn name(&self) -> String {
        let (address, parameter) = match self {
            Self::Memory => return "memory:".to_owned(),
            Self::Sqlite(path) => return format!("sqlite:{}", path.display()),
            Self::Postgres { address, schema, .. } => {
                (address, schema.as_ref().map(|schema| format!("?schema={schema}")))
            }
            Self::Redis { address, prefix } => {
                (address, prefix.as_ref().map(|prefix| format!("?prefix={prefix}")))
            }
        };
        let address = address.split('?').next().unwrap_or_default();
        let (scheme, rest) = address.split_once("//").unwrap_or((address, ""));
        let rest = match rest.rsplit_once('@') {
            Some((user, host)) => {
                let user = user.split(':').next().unwrap_or_default();
                if user.is_empty() { host.to_owned() } else { format!("{user}@{host}") }
            }
            None => rest.to_owned(),
        };
        format!("{scheme}//{rest}{}", parameter.unwrap_or_default())
    }

    pub(crate) fn file(&self, action: &'static str) -> Result<&Path, CliError> {
        match self {
            Self::Memory => Err(CliError::Memory { action }),
            Self::Sqlite(path) => Ok(path),
            Self::Postgres { .. } | Self::Redis { .. } => Err(CliError::NoFile { action }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_store_locations_are_parsed_and_other_texts_are_refused() {
        assert_eq!("memory:".parse(), Ok(StoreLocation::Memory));
        assert_eq!("sqlite:a:b.db".parse(), Ok(StoreLocation::Sqlite("a:b.db".into())));
        let refused = |text: &str| text.parse::<StoreLocation>();
        assert_eq!(refused("sqlite:"), Err(StoreLocationError::NoPath));
        for text in ["", "memory", "memory:x", "chat.db", "postgres:x", "redis:x", "SQLITE:x"] {
            assert_eq!(refused(text), Err(StoreLocationError::Unknown), "{text}");
        }
    }

    #[test]
    fn the_printed_name_of_a_store_contains_no_password() {
        for (text, name) in [
            ("sqlite:a:b.db", "sqlite:a:b.db"),
            ("postgres://u:p@ss@h:1/d?schema=a&password=q", "postgres://u@h:1/d?schema=a"),
            ("postgresql://h/d?password=q", "postgresql://h/d"),
            ("rediss://:secret@h:1/2?prefix=chat:", "rediss://h:1/2?prefix=chat:"),
        ] {
            assert_eq!(text.parse::<StoreLocation>().unwrap().name(), name);
        }
    }

    #[test]
    fn schema_and_prefix_are_removed_from_the_address_of_a_store() {
        let postgres = |address: &str, schema: Option<&str>| {
            Ok(StoreLocation::Postgres {
                address: address.to_owned(),
                schema: schema.map(str::to_owned),
                prepared_statements: true,
            })
        };
        for (text, address, schema) in [
            ("postgres://u:p@h/d", "postgres://u:p@h/d", None),
            ("postgresql://h/d?schema=a", "postgresql://h/d", Some("a")),
            (
                "postgres://h/d?sslmode=disable&schema=a%20b",
                "postgres://h/d?sslmode=disable",
                Some("a b"),
            ),
            ("postgres://h/d?schema=&x=y", "postgres://h/d?x=y", Some("")),
        ] {
            assert_eq!(text.parse(), postgres(address, schema), "{text}");
        }
        let redis = StoreLocation::Redis {
            address: "rediss://h:1/2".to_owned(),
            prefix: Some("chat:".to_owned()),
        };
        assert_eq!("rediss://h:1/2?prefix=chat:".parse(), Ok(redis));
        let not_text = StoreLocationError::NotText { parameter: "schema" };
        assert_eq!("postgres://h/d?schema=%ff".parse::<StoreLocation>(), Err(not_text));
    }

    #[test]
    fn the_address_of_a_store_determines_whether_statements_are_prepared() {
        for (text, address, prepared) in [
            ("postgres://h/a?prepared_statements=false", "postgres://h/a", false),
            ("postgres://h/b?prepared_statements=true", "postgres://h/b", true),
            (
                "postgres://h/c?prepared_statements=false&sslmode=disable",
                "postgres://h/c?sslmode=disable",
                false,
            ),
        ] {
            let Ok(StoreLocation::Postgres { address: found, prepared_statements, .. }) =
                text.parse()
            else {
                panic!("{text}")
            };
            assert_eq!((found.as_str(), prepared_statements), (address, prepared));
        }
        for value in ["", "off", "False", "%ff"] {
            let refused = format!("postgres://h/d?prepared_statements={value}");
            assert!(refused.parse::<StoreLocation>().is_err(), "{refused}");
        }
    }
}
