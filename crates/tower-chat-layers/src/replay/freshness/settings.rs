//! Reads the windows of a [`Freshness`] from JSON.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Map, Value};

use super::Freshness;

/// The error for invalid settings of [`Freshness`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FreshnessError {
    /// An unknown key.
    #[error(
        "freshness has no setting {key:?}: its settings are \"window\", \"channels\", \"tools\" and \
         \"channels_and_tools\""
    )]
    UnknownKey {
        /// The key.
        key: String,
    },
    /// A value of the wrong type.
    #[error("the freshness setting {path:?} must be {expected}, but is {found}")]
    WrongType {
        /// The path of the setting, such as `channels.voice`.
        path: String,
        /// The expected type.
        expected: &'static str,
        /// The value of the setting, as JSON.
        found: String,
    },
}

impl Freshness {
    /// Reads the windows from JSON: `window`, `channels` (by name), `tools` (by name) and
    /// `channels_and_tools` (by the channel's name, then by the tool's). All keys are optional. Each
    /// window is in seconds, or `null` for an unlimited window.
    ///
    /// # Errors
    ///
    /// Returns [`FreshnessError`] at the first unknown key or wrong type.
    pub fn from_settings(settings: &Value) -> Result<Self, FreshnessError> {
        let mut freshness = Self::default();
        for (key, value) in object("freshness", settings)? {
            match key.as_str() {
                "window" => freshness.window = window("window", value)?,
                "channels" => freshness.channels = windows("channels", value)?,
                "tools" => freshness.tools = windows("tools", value)?,
                "channels_and_tools" => {
                    for (channel, tools) in object("channels_and_tools", value)? {
                        let windows = windows(&format!("channels_and_tools.{channel}"), tools)?;
                        freshness.channels_and_tools.insert(channel.clone(), windows);
                    }
                }
                _ => return Err(FreshnessError::UnknownKey { key: key.clone() }),
            }
        }
        Ok(freshness)
    }
}

impl TryFrom<Value> for Freshness {
    type Error = FreshnessError;

    fn try_from(settings: Value) -> Result<Self, FreshnessError> {
        Self::from_settings(&settings)
    }
}

fn windows(path: &str, value: &Value) -> Result<BTreeMap<String, Duration>, FreshnessError> {
    let named = |(name, value): (&String, &Value)| {
        Ok((name.clone(), window(&format!("{path}.{name}"), value)?))
    };
    object(path, value)?.iter().map(named).collect()
}

fn window(path: &str, value: &Value) -> Result<Duration, FreshnessError> {
    let seconds = match value {
        Value::Null => return Ok(Duration::MAX),
        Value::Number(seconds) => seconds
            .as_u64()
            .map(Duration::from_secs)
            .or_else(|| Duration::try_from_secs_f64(seconds.as_f64()?).ok()),
        _ => None,
    };
    seconds.ok_or_else(|| wrong_type(path, "a number of seconds from 0 on, or null", value))
}

fn object<'a>(path: &str, value: &'a Value) -> Result<&'a Map<String, Value>, FreshnessError> {
    value.as_object().ok_or_else(|| wrong_type(path, "an object", value))
}

fn wrong_type(path: &str, expected: &'static str, found: &Value) -> FreshnessError {
    FreshnessError::WrongType { path: path.to_owned(), expected, found: found.to_string() }
}
