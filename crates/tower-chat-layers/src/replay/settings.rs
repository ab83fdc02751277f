//! Reads a replay policy from JSON.

use serde::{Deserialize, de::Error as _};
use serde_json::Value;

use super::{
    Citations, CompactionTime, DanglingCalls, Freshness, OldMedia, OutdatedCalls, ReplayPolicy,
    ToolHistory, Uncited, Window,
};

/// The error for invalid settings of a [`ReplayPolicy`]: an unknown key or a wrong type.
#[derive(Debug, thiserror::Error)]
#[error("the settings of the replay policy cannot be read")]
pub struct ReplaySettingsError(#[source] serde_json::Error);

impl ReplayPolicy {
    /// Reads a policy from JSON. For a missing key, the setting of the default policy applies.
    ///
    /// | key | value |
    /// |---|---|
    /// | `dangling_calls` | `"drop"`, `"from_record"`, `"interrupted"` or `"fail"` |
    /// | `tool_history` | `"replay"` or `"omit"` |
    /// | `freshness` | see [`Freshness::from_settings`] |
    /// | `drop_unregistered_tools`, `drop_unreadable_arguments` | `true` or `false` |
    /// | `citations` | `{"when": "at_replay" or "at_save", "uncited": a sentence or null, "number_key": …, "content_key": …}` |
    /// | `old_media` | `{"last": n}` or `{"turns": n}` |
    /// | `window` | `{"turns": n}`, `{"messages": n}` or `{"tokens": n}`, with `"low_water": n` |
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_chat::replay::ReplayPolicy;
    /// let settings = json!({"freshness": {"window": 300}, "window": {"turns": 50}});
    /// assert!(ReplayPolicy::from_settings(&settings).is_ok());
    /// assert!(ReplayPolicy::from_settings(&json!({"freshnes": {}})).is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`ReplaySettingsError`] at the first unknown key or wrong type.
    pub fn from_settings(settings: &Value) -> Result<Self, ReplaySettingsError> {
        if !settings.is_object() {
            let not_an_object = serde_json::Error::custom("they are not an object");
            return Err(ReplaySettingsError(not_an_object));
        }
        let settings = Settings::deserialize(settings).map_err(ReplaySettingsError)?;
        Ok(settings.into())
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Settings {
    dangling_calls: DanglingCalls,
    tool_history: ToolHistory,
    freshness: Option<Freshness>,
    drop_unregistered_tools: bool,
    drop_unreadable_arguments: bool,
    citations: Option<CitationSettings>,
    old_media: Option<OldMedia>,
    window: Option<Window>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct CitationSettings {
    when: CompactionTime,
    uncited: Option<String>,
    number_key: Option<String>,
    content_key: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WindowFields {
    turns: Option<usize>,
    messages: Option<usize>,
    tokens: Option<usize>,
    low_water: Option<usize>,
}

impl TryFrom<WindowFields> for Window {
    type Error = &'static str;

    fn try_from(fields: WindowFields) -> Result<Self, &'static str> {
        let window = match (fields.turns, fields.messages, fields.tokens) {
            (Some(turns), None, None) => Self::turns(turns),
            (None, Some(messages), None) => Self::messages(messages),
            (None, None, Some(tokens)) => Self::tokens(tokens),
            _ => {
                return Err(
                    "a window must have exactly one of \"turns\", \"messages\" and \"tokens\"",
                );
            }
        };
        Ok(match fields.low_water {
            Some(low_water) => window.with_low_water(low_water),
            None => window,
        })
    }
}

impl From<CitationSettings> for Citations {
    fn from(settings: CitationSettings) -> Self {
        let default = Self::default();
        Self {
            when: settings.when,
            uncited: settings.uncited.map_or(Uncited::LeaveAlone, Uncited::Replace),
            number_key: settings.number_key.map_or(default.number_key, Into::into),
            content_key: settings.content_key.map_or(default.content_key, Into::into),
        }
    }
}

impl From<Settings> for ReplayPolicy {
    fn from(settings: Settings) -> Self {
        Self {
            dangling_calls: settings.dangling_calls,
            tool_history: settings.tool_history,
            freshness: settings.freshness,
            outdated_calls: OutdatedCalls {
                unregistered: settings.drop_unregistered_tools,
                unreadable: settings.drop_unreadable_arguments,
            },
            citations: settings.citations.map(Citations::from),
            old_media: settings.old_media,
            window: settings.window,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_setting_is_read() {
        let policy = ReplayPolicy::from_settings(&json!({
            "dangling_calls": "interrupted",
            "tool_history": "replay",
            "freshness": {"window": 60, "tools": {"look": null}},
            "drop_unregistered_tools": true,
            "drop_unreadable_arguments": true,
            "citations": {"when": "at_save", "uncited": "Nothing was cited.", "number_key": "n", "content_key": "c"},
            "old_media": {"last": 3},
            "window": {"tokens": 8000, "low_water": 4000},
        }))
        .unwrap();
        assert_eq!(policy.dangling_calls, DanglingCalls::Interrupted);
        assert!(policy.needs_tools() && policy.needs_finish_times() && !policy.is_off());
        let citations = policy.citations_at_save().unwrap();
        let expected = Citations::when(CompactionTime::AtSave)
            .on_uncited(Uncited::Replace("Nothing was cited.".to_owned()))
            .with_number_key("n")
            .with_content_key("c");
        assert_eq!(citations, &expected);
        assert_eq!(policy.old_media, Some(OldMedia::keep_last(3)));
        assert!(policy.window.is_some());
    }

    #[test]
    fn empty_settings_give_the_default_policy() {
        assert!(ReplayPolicy::from_settings(&json!({})).unwrap().is_off());
        assert!(ReplayPolicy::from_settings(&json!({"freshness": null})).unwrap().is_off());
    }

    #[test]
    fn a_window_is_built_with_the_unit_and_the_limits_of_its_settings() {
        for (settings, window) in [
            (json!({"turns": 50}), Window::turns(50)),
            (json!({"messages": 60, "low_water": 20}), Window::messages(60).with_low_water(20)),
            (json!({"tokens": 8000}), Window::tokens(8000)),
        ] {
            let policy: ReplayPolicy = serde_json::from_value(json!({"window": settings})).unwrap();
            assert_eq!(format!("{:?}", policy.window), format!("{:?}", Some(window)));
        }
        assert!(serde_json::from_value::<ReplayPolicy>(json!({"windows": {"turns": 1}})).is_err());
    }

    #[test]
    fn settings_with_unknown_keys_or_wrong_types_are_refused() {
        for settings in [
            json!([]),
            json!({"windows": {"turns": 1}}),
            json!({"window": 5}),
            json!({"window": {}}),
            json!({"window": {"turns": 1, "tokens": 1}}),
            json!({"window": {"turns": -1}}),
            json!({"window": {"turns": 1, "low": 1}}),
            json!({"dangling_calls": "forget"}),
            json!({"drop_unregistered_tools": "yes"}),
            json!({"citations": {"when": "later"}}),
            json!({"citations": {"key": "n"}}),
            json!({"freshness": {"window": "long"}}),
            json!({"freshness": {"minutes": 5}}),
            json!({"old_media": {"last": -1}}),
            json!({"old_media": {"last": 1, "turns": 1}}),
            json!({"old_media": 3}),
        ] {
            assert!(ReplayPolicy::from_settings(&settings).is_err(), "{settings}");
        }
    }
}
