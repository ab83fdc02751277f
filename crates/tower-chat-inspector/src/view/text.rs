//! Stored texts, which anybody may have chosen.

use tower_chat_layers::visible_text;

/// How many bytes of a text a page shows at first.
const SHOWN: usize = 4096;

/// The beginning of a text, and how much there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Excerpt {
    pub(crate) text: String,
    /// The size of the whole in bytes, if there is more.
    pub(crate) whole: Option<usize>,
}

/// How many bytes of all texts together a page shows at first.
const OF_PAGE: usize = 1 << 20;

/// How many bytes of a text a page shows that has shown so much already.
const LEAST: usize = 160;

/// How many parts and calls of all messages together a page shows.
const ITEMS: usize = 500;

/// How much a page still has to spend on texts and on parts and calls.
#[derive(Debug)]
pub(crate) struct PageBudget {
    bytes: usize,
    items: usize,
}

impl PageBudget {
    pub(crate) fn of_page() -> Self {
        Self { bytes: OF_PAGE, items: ITEMS }
    }

    /// The beginning of a text, as much as the budget allows.
    pub(crate) fn excerpt(&mut self, text: &str) -> Excerpt {
        let excerpt = Excerpt::within(text, SHOWN.min(self.bytes.max(LEAST)));
        self.bytes = self.bytes.saturating_sub(excerpt.text.len());
        excerpt
    }

    /// How many of some items a page shows, at least one.
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

    /// All of a text.
    pub(crate) fn whole(text: &str) -> Self {
        Self::within(text, text.len())
    }

    /// The beginning of a text: at most `most` bytes of it.
    pub(crate) fn within(text: &str, most: usize) -> Self {
        let most = most.min(text.len());
        let shown = (0..=most).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        let whole = (shown < text.len()).then_some(text.len());
        Self { text: visible(text.get(..shown).unwrap_or_default()), whole }
    }
}

/// Returns the text with every character that a reader does not see as an escape: see [`visible_text`].
/// Templates escape what HTML takes for markup.
pub(crate) fn visible(text: &str) -> String {
    visible_text(text, &['\n', '\t'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_written_as_an_escape() {
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
    fn a_page_has_room_for_so_much_and_for_a_little_of_everything() {
        let mut budget = PageBudget::of_page();
        let text = "a".repeat(2 * SHOWN);
        let shown: usize = (0..1000).map(|_| budget.excerpt(&text).text.len()).sum();
        assert!((OF_PAGE..OF_PAGE + 1000 * LEAST + SHOWN).contains(&shown), "{shown}");
        assert_eq!((budget.items(400), budget.items(400), budget.items(400)), (400, 100, 1));
        assert_eq!(budget.items(0), 0);
    }

    #[test]
    fn a_long_text_is_cut_between_characters_with_its_size() {
        let short = "a".repeat(SHOWN);
        assert_eq!(Excerpt::of(&short), Excerpt { text: short, whole: None });
        let long = "é".repeat(SHOWN);
        let excerpt = Excerpt::of(&format!("x{long}"));
        assert_eq!(excerpt.text.len(), SHOWN - 1);
        assert_eq!(excerpt.whole, Some(2 * SHOWN + 1));
    }
}
