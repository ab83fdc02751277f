//! The environment of the servers that a chat starts.
//!
//! The environment of the chat contains the keys of providers, the address of the store with its
//! password, and the keys of an encrypted store. A server gets none of these variables, unless the user
//! names them.

use std::{env, ffi::OsString};

use crate::chat::ChatError;

/// Variables that programs need to find other programs and files, and to write text.
#[cfg(not(windows))]
const PASSED: &[&str] = &["PATH", "HOME", "LANG", "LANGUAGE"];

/// The same variables, and those without which no program on Windows starts.
#[cfg(windows)]
const PASSED: &[&str] = &[
    "PATH",
    "HOME",
    "LANG",
    "LANGUAGE",
    "PATHEXT",
    "SYSTEMROOT",
    "SYSTEMDRIVE",
    "COMSPEC",
    "TEMP",
    "TMP",
    "USERPROFILE",
    "APPDATA",
    "LOCALAPPDATA",
    "PROGRAMFILES",
    "PROGRAMDATA",
];

/// The prefix of the locale's variables.
const LOCALE: &str = "LC_";

/// Returns the variables for servers, with their values: those in [`PASSED`], those of the locale, and those
/// that the user has named.
///
/// # Errors
///
/// [`ChatError::ServerVariable`], if a name is not that of a set variable.
pub(super) fn of_servers(named: &[String]) -> Result<Vec<(OsString, OsString)>, ChatError> {
    let is_set = |name: &String| !name.contains('=') && env::var_os(name).is_some();
    if let Some(name) = named.iter().find(|name| !is_set(name)) {
        // The text after the name may be a secret.
        let name = name.split('=').next().unwrap_or_default().to_owned();
        return Err(ChatError::ServerVariable { name });
    }
    Ok(env::vars_os().filter(|(name, _)| is_passed(name, named)).collect())
}

fn is_passed(name: &OsString, named: &[String]) -> bool {
    let Some(name) = name.to_str() else { return false };
    let is_same = |other: &str| match cfg!(windows) {
        true => name.eq_ignore_ascii_case(other),
        false => name == other,
    };
    PASSED.iter().any(|passed| is_same(passed))
        || name.starts_with(LOCALE)
        || named.iter().any(|named| is_same(named))
}
