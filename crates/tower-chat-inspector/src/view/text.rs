//! Shortens stored texts, and escapes their invisible characters. The texts may come from untrusted
//! sources.

use std::fmt::Display;

use tower_chat_layers::visible_text;

/// The maximum number of bytes that a page shows of a text.
const SHOWN: usize = 4096;

/// The beginning of a text, or the whole text if it is short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Excerpt {
    pub(crate) text: String,
    /// The size of the whole text in bytes. `None` if the excerpt contains the whole text.
    pub(crate) full_length: Option<usize>,
}

/// The budget of a page: the total number of bytes of its texts. When the budget is used, the page
/// shows at most [`SHORTENED_BYTES`] bytes of each further text.
const OF_PAGE: usize = 1 << 20;

/// The maximum number of bytes that a page shows of a text after the page has used its budget.
const SHORTENED_BYTES: usize = 160;

/// The maximum number of parts and calls in a page, in total over all messages.
const ITEMS: usize = 500;

/// The number of bytes of texts, and of parts and calls, that a page may still show.
#[derive(Debug)]
pub(crate) struct PageBudget {
    bytes: usize,
    items: usize,
}

impl PageBudget {
    pub(crate) fn of_page() -> Self {
        Self { bytes: OF_PAGE, items: ITEMS }
    }

    /// Returns the beginning of a text: as many bytes as the remaining budget permits, or at least
    /// [`SHORTENED_BYTES`].
    pub(crate) fn excerpt(&mut self, text: &str) -> Excerpt {
        let excerpt = Excerpt::within(text, SHOWN.min(self.bytes.max(SHORTENED_BYTES)));
        self.bytes = self.bytes.saturating_sub(excerpt.text.len());
        excerpt
    }

    /// Returns how many of `wanted` parts or calls the page shows: as many as the remaining budget
    /// permits, or at least one.
    pub(crate) fn items(&mut self, wanted: usize) -> usize {
        let shown = wanted.min(self.items.max(1));
        self.items = self.items.saturating_sub(shown);
        shown
    }
}

impl Excerpt {
    pub(crate) fn of(text: &str) -> Self {
        Self::within(text, SHOWN)
    }

    /// Returns an excerpt that contains the whole text.
    pub(crate) fn whole(text: &str) -> Self {
        Self::within(text, text.len())
    }

    /// Returns the beginning of a text, of at most `max_bytes` bytes.
    pub(crate) fn within(text: &str, max_bytes: usize) -> Self {
        let max_bytes = max_bytes.min(text.len());
        let shown = (0..=max_bytes).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        let full_length = (shown < text.len()).then_some(text.len());
        Self { text: visible(text.get(..shown).unwrap_or_default()), full_length }
    }
}

/// Returns the number and the noun. Unless the number is 1, an `s` is appended to the noun.
pub(crate) fn counted(count: &impl Display, noun: &str) -> String {
    let count = count.to_string();
    let ending = if count == "1" { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// Returns the text as described for [`visible_text`]. The templates escape HTML.
pub(crate) fn visible(text: &str) -> String {
    visible_text(text, &['\n', '\t'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_are_written_as_escapes() {
        for (text, expected) in [
            ("a\nb\tc", "a\nb\tc"),
            ("é 漢字 👩\u{200d}🚀", "é 漢字 👩\u{200d}🚀"),
            ("\u{1b}[2J\r\0", "\\u{1b}[2J\\r\\u{0}"),
            ("pay\u{200b}pal\u{e0041}", "pay\\u{200b}pal\\u{e0041}"),
            ("a\u{202e}b\u{2066}c", "a\\u{202e}b\\u{2066}c"),
        ] {
            assert_eq!(visible(text), expected);
        }
    }

    #[test]
    fn a_page_limits_its_text_but_shows_an_excerpt_of_every_text() {
        let mut budget = PageBudget::of_page();
        let text = "a".repeat(2 * SHOWN);
        let shown: usize = (0..1000).map(|_| budget.excerpt(&text).text.len()).sum();
        assert!((OF_PAGE..OF_PAGE + 1000 * SHORTENED_BYTES + SHOWN).contains(&shown), "{shown}");
        assert_eq!((budget.items(400), budget.items(400), budget.items(400)), (400, 100, 1));
        assert_eq!(budget.items(0), 0);
    }

    #[test]
    fn a_long_text_is_shortened_between_characters_and_shown_with_its_size() {
        let short = "a".repeat(SHOWN);
        assert_eq!(Excerpt::of(&short), Excerpt { text: short, full_length: None });
        let long = "é".repeat(SHOWN);
        let excerpt = Excerpt::of(&format!("x{long}"));
        assert_eq!(excerpt.text.len(), SHOWN - 1);
        assert_eq!(excerpt.full_length, Some(2 * SHOWN + 1));
    }
}
