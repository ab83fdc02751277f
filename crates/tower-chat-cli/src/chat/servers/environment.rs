//! The environment of the servers that a chat starts.
//!
//! The environment of the chat may contain the keys of providers, the address of the store with a
//! password, and the keys of an encrypted store. A server receives such a variable only if the user
//! names it.

use std::{env, ffi::OsString};

use crate::chat::ChatError;

/// The variables that every server receives, because programs need them to find other programs and
/// files and to select a language.
#[cfg(not(windows))]
const PASSED: &[&str] = &["PATH", "HOME", "LANG", "LANGUAGE"];

/// The variables that every server receives. Without some of these variables, programs on Windows
/// do not start.
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

/// The prefix of the variables of the locale.
const LOCALE: &str = "LC_";

/// Returns the variables that servers receive: those in [`PASSED`], those of the locale, and those
/// that the user has named.
pub(super) fn of_servers(named: &[String]) -> Result<Vec<(OsString, OsString)>, ChatError> {
    let is_set = |name: &String| !name.contains('=') && env::var_os(name).is_some();
    if let Some(name) = named.iter().find(|name| !is_set(name)) {
        // The value of `NAME=VALUE` may be a secret.
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
