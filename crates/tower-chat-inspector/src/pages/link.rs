//! Links between the pages.

use std::fmt;

/// The path and the query of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link(String);

impl Link {
    pub(super) fn new(path: &str, page: &str) -> Self {
        match (path, page) {
            // axum serves the root of a nested router at the path without a slash at the end.
            (path, "") if !path.is_empty() => Self(path.to_owned()),
            _ => Self(format!("{path}/{page}")),
        }
    }

    #[must_use]
    pub(super) fn with(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.0.push(if self.0.contains('?') { '&' } else { '?' });
        self.0.push_str(name);
        self.0.push('=');
        for byte in value.to_string().bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                    self.0.push(char::from(byte));
                }
                _ => self.0.push_str(&format!("%{byte:02X}")),
            }
        }
        self
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_percent_encoded() {
        assert_eq!(Link::new("/i", "").to_string(), "/i");
        assert_eq!(Link::new("", "").to_string(), "/");
        let link = Link::new("/i", "conversation").with("scope", "a&b=c").with("id", "ä\"<");
        assert_eq!(link.to_string(), "/i/conversation?scope=a%26b%3Dc&id=%C3%A4%22%3C");
    }
}
