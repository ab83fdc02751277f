//! Reads the keys of encrypted stores from the environment.

use std::env;

use tower_chat_encrypted::{EncryptionError, MasterKeys, SecretKey};

use crate::error::CliError;

/// The environment variable that contains the keys.
pub(crate) const VARIABLE: &str = "TOWER_CHAT_KEYS";

/// The environment variable that contains the keys for the target store of `copy`.
const TARGET_VARIABLE: &str = "TOWER_CHAT_TO_KEYS";

/// The error of keys in the environment that cannot be parsed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeysError {
    #[error("key {number} is not NAME:KEY with a KEY of 64 hexadecimal digits")]
    Form { number: usize },
    #[error("it is not a text")]
    NotText,
    #[error(transparent)]
    Refused(#[from] EncryptionError),
}

/// Returns the master keys in the environment, or `None` if no keys are set.
pub(crate) fn keys() -> Result<Option<MasterKeys>, CliError> {
    keys_of(VARIABLE)
}

/// Returns the master keys for the target store of `copy`.
pub(crate) fn target_keys() -> Result<Option<MasterKeys>, CliError> {
    keys_of(if env::var_os(TARGET_VARIABLE).is_some() { TARGET_VARIABLE } else { VARIABLE })
}

fn keys_of(variable: &'static str) -> Result<Option<MasterKeys>, CliError> {
    let keys = match env::var(variable) {
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => read(&text).map(Some),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => Err(KeysError::NotText),
    };
    keys.map_err(|source| CliError::Keys { variable, source })
}

/// Parses `NAME:KEY,NAME:KEY,...`. The first key encrypts, and all keys decrypt.
fn read(text: &str) -> Result<MasterKeys, KeysError> {
    let mut keys: Option<MasterKeys> = None;
    for (index, named) in text.split(',').enumerate() {
        let form = KeysError::Form { number: index + 1 };
        let Some((name, digits)) = named.trim().split_once(':') else { return Err(form) };
        let Some(bytes) = bytes_of(digits) else { return Err(form) };
        let key = SecretKey::from_bytes(bytes);
        match &keys {
            None => keys = Some(MasterKeys::new(name, key)?),
            Some(keys) => keys.add(name, key)?,
        }
    }
    keys.ok_or(KeysError::Form { number: 1 })
}

fn bytes_of(digits: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    let mut pairs = digits.as_bytes().chunks(2);
    for byte in &mut bytes {
        let pair = pairs.next().and_then(|pair| str::from_utf8(pair).ok())?;
        if pair.len() != 2 || pair.starts_with('+') {
            return None;
        }
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    pairs.next().is_none().then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_keys_are_parsed_and_other_texts_are_refused() {
        let (a, b) = ("0a".repeat(32), "Bf".repeat(32));
        assert!(read(&format!("2026:{a}, 2025:{b}")).is_ok());
        for (text, number) in [
            (a.clone(), 1),
            (format!("x:{a}0"), 1),
            (format!("x:{}", &a[1..]), 1),
            (format!("x:{}", "+a".repeat(32)), 1),
            (format!("x:{a},"), 2),
            (format!("x:{a},y:{}", "zz".repeat(32)), 2),
        ] {
            let Err(KeysError::Form { number: found }) = read(&text) else { panic!("{text}") };
            assert_eq!(found, number, "{text}");
        }
        assert!(matches!(read(&format!("x:{a},x:{b}")), Err(KeysError::Refused(_))));
    }
}
