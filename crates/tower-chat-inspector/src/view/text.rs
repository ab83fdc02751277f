//! Stored texts, which anybody may have chosen.

/// How many bytes of a text a page shows at first.
const SHOWN: usize = 4096;

/// The beginning of a text, and how much there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Excerpt {
    pub(crate) text: String,
    /// The size of the whole in bytes, if there is more.
    pub(crate) whole: Option<usize>,
}

impl Excerpt {
    pub(crate) fn of(text: &str) -> Self {
        let most = SHOWN.min(text.len());
        let shown = (0..=most).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        let whole = (shown < text.len()).then_some(text.len());
        Self { text: visible(text.get(..shown).unwrap_or_default()), whole }
    }
}

/// The text with characters written as escapes that are not seen, or that change the direction in which
/// the text around them is read. Templates escape what HTML takes for markup.
pub(crate) fn visible(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\t' => visible.push(character),
            _ if is_unseen(character) => visible.extend(character.escape_unicode()),
            _ => visible.push(character),
        }
    }
    visible
}

fn is_unseen(character: char) -> bool {
    let is_separator = matches!(character, '\u{2028}' | '\u{2029}');
    let is_direction = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    character.is_control() || is_separator || is_direction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_written_as_an_escape() {
        for (text, expected) in [
            ("a\nb\tc", "a\nb\tc"),
            ("é 漢字 👩\u{200d}🚀", "é 漢字 👩\u{200d}🚀"),
            ("\u{1b}[2J\r\0", "\\u{1b}[2J\\u{d}\\u{0}"),
            ("a\u{202e}b\u{2066}c", "a\\u{202e}b\\u{2066}c"),
        ] {
            assert_eq!(visible(text), expected);
        }
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
