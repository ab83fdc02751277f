//! Converts the names of tools to names that every provider accepts.

use std::collections::HashMap;

/// The length of the longest name that every provider accepts, in characters.
const MAX_NAME_LENGTH: usize = 64;

/// Returns the name that the model receives for a tool.
///
/// MCP allows dots and 128 characters. OpenAI and Anthropic accept `^[a-zA-Z0-9_-]{1,64}$`, and
/// Gemini requires a letter or an underscore first. In other names, underscores replace characters
/// or are added at the beginning, and the end is cut off.
pub(crate) fn for_model(prefix: &str, name: &str) -> String {
    let full = format!("{prefix}{name}");
    let is_first = |first: char| first.is_ascii_alphabetic() || first == '_';
    let lead = if full.starts_with(is_first) { "" } else { "_" };
    let is_allowed = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let allowed = full.chars().map(|c| if is_allowed(&c) { c } else { '_' });
    lead.chars().chain(allowed).take(MAX_NAME_LENGTH).collect()
}

/// Returns the names that the model receives for the tools of one server: the names of
/// [`for_model`], and those of [`with_digest`] for tools that would have the same name.
///
/// The name of a tool must not change between releases, because stored approvals refer to the tool
/// by this name.
pub(crate) fn unique_names(prefix: &str, names: &[&str]) -> Vec<String> {
    let given: Vec<String> = names.iter().map(|name| for_model(prefix, name)).collect();
    let mut counts: HashMap<&str, usize> = HashMap::new();
    given.iter().for_each(|name| *counts.entry(name).or_default() += 1);
    let names = names.iter().zip(&given).map(|(name, given)| match counts.get(given.as_str()) {
        Some(2..) => with_digest(prefix, name),
        _ => given.clone(),
    });
    names.collect()
}

/// Returns the name that the model receives for a tool if [`for_model`] returns the same name for
/// another tool: the beginning of this name, and a digest of the prefix and the name at the server.
/// If [`for_model`] does not change the prefix and the name at the server, returns them without a
/// digest.
pub(crate) fn with_digest(prefix: &str, name: &str) -> String {
    let usual = for_model(prefix, name);
    let whole = format!("{prefix}{name}");
    if usual == whole {
        return usual;
    }
    let digest = format!("_{:016x}", fnv_1a(&whole));
    let mut name: String = usual.chars().take(MAX_NAME_LENGTH - digest.len()).collect();
    name.push_str(&digest);
    name
}

/// Returns the 64-bit FNV-1a hash of a text. The hash must be the same in every release and on
/// every machine, because the names in stored calls contain it.
fn fnv_1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_become_equal_get_a_digest_and_other_names_do_not() {
        let (one, two) = ("x".repeat(70) + "1", "x".repeat(70) + "2");
        let long = "y".repeat(100);
        let names = unique_names("s_", &[&one, "look", &two, &long, "a.b", "a_b"]);
        assert_eq!((&*names[1], &*names[5]), ("s_look", "s_a_b"));
        assert_eq!(names[3], for_model("s_", &long), "only one tool has this name");
        assert_ne!(names[0], names[2]);
        assert!(names[4].starts_with("s_a_b_") && names[4] != names[5], "{names:?}");
        assert!(names.iter().all(|name| name.len() <= MAX_NAME_LENGTH), "{names:?}");
        // The name does not depend on the other tools, and does not change between releases.
        assert_eq!(unique_names("s_", &[&two, &one])[1], names[0]);
        assert_eq!(
            with_digest("", &"x".repeat(65)),
            format!("{}_{}", "x".repeat(47), "7d70a52549704607")
        );
        // The server lists the same tool twice.
        let twice = unique_names("", &[&one, &one]);
        assert_eq!(twice[0], twice[1]);
    }

    #[test]
    fn a_name_that_every_provider_accepts_is_unchanged() {
        assert_eq!(for_model("", "get_weather-2"), "get_weather-2");
        assert_eq!(for_model("weather_", "now"), "weather_now");
    }

    #[test]
    fn an_invalid_name_becomes_a_name_that_every_provider_accepts() {
        assert_eq!(for_model("", "files.read/all"), "files_read_all");
        assert_eq!(for_model("", "wetter_für"), "wetter_f_r");
        assert_eq!(for_model("", "2fa"), "_2fa");
        assert_eq!(for_model("", "-"), "_-");
        assert_eq!(for_model("", ""), "_");
        assert_eq!(for_model("a", &"x".repeat(128)).len(), MAX_NAME_LENGTH);
        assert_eq!(for_model("", &"9".repeat(64)).len(), MAX_NAME_LENGTH);
    }
}
