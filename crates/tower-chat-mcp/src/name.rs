//! Names that models can call.

/// The longest name that every provider takes.
const LONGEST: usize = 64;

/// A tool's name as the model is told it.
///
/// MCP allows dots and 128 characters; OpenAI and Anthropic take `^[a-zA-Z0-9_-]{1,64}$`, and
/// Gemini wants a letter or an underscore first. Other characters become underscores, and a name
/// that is too long loses its end.
pub(crate) fn for_model(prefix: &str, name: &str) -> String {
    let full = format!("{prefix}{name}");
    let is_first = |first: char| first.is_ascii_alphabetic() || first == '_';
    let lead = if full.starts_with(is_first) { "" } else { "_" };
    let is_allowed = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let allowed = full.chars().map(|c| if is_allowed(&c) { c } else { '_' });
    lead.chars().chain(allowed).take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_every_provider_takes_stays() {
        assert_eq!(for_model("", "get_weather-2"), "get_weather-2");
        assert_eq!(for_model("weather_", "now"), "weather_now");
    }

    #[test]
    fn other_names_become_ones_that_they_take() {
        assert_eq!(for_model("", "files.read/all"), "files_read_all");
        assert_eq!(for_model("", "wetter_für"), "wetter_f_r");
        assert_eq!(for_model("", "2fa"), "_2fa");
        assert_eq!(for_model("", "-"), "_-");
        assert_eq!(for_model("", ""), "_");
        assert_eq!(for_model("a", &"x".repeat(128)).len(), LONGEST);
        assert_eq!(for_model("", &"9".repeat(64)).len(), LONGEST);
    }
}
