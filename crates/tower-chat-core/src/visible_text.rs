//! Functions that escape text from outside before a person reads it.

use std::fmt::Write as _;

/// Returns a text in which every invisible character is an escape, such as `\u{200b}`.
///
/// Ids, tool names, arguments and errors come from users, models and files. Use this function for
/// every such text on a page or a terminal. This function escapes
///
/// - control characters, which a terminal executes, except for the line breaks and tabs in `kept`;
/// - line and paragraph separators, and marks of the writing direction, which change how a reader
///   sees the text around them;
/// - characters without a glyph: zero-width spaces and joiners, soft hyphens, fillers, variation
///   selectors, tags, interlinear annotations, and code points that are not characters.
///
/// A joiner or a variation selector is not escaped where it only changes the shape of the
/// characters next to it: between letters of the scripts that need joiners (Arabic to Myanmar,
/// Khmer and Mongolian), and in an emoji.
///
/// ```
/// use tower_chat_core::visible_text;
/// assert_eq!(visible_text("send\u{200b} it\n", &[]), r"send\u{200b} it\n");
/// assert_eq!(visible_text("two\nlines, 👩\u{200d}🚀", &['\n']), "two\nlines, 👩\u{200d}🚀");
/// ```
pub fn visible_text(text: &str, kept: &[char]) -> String {
    let mut pieces = VisiblePieces::new(kept);
    let mut visible = pieces.push(text);
    visible.push_str(&pieces.finish());
    visible
}

/// Escapes a text like [`visible_text`], but in pieces, such as those of a streamed answer.
///
/// A joiner at the end of a piece is returned with the next piece, which decides whether the joiner
/// is escaped.
///
/// ```
/// use tower_chat_core::VisiblePieces;
/// let mut pieces = VisiblePieces::new(&['\n']);
/// assert_eq!(pieces.push("👩\u{200d}"), "👩");
/// assert_eq!(pieces.push("🚀\u{200d}"), "\u{200d}🚀");
/// assert_eq!(pieces.finish(), r"\u{200d}");
/// ```
#[derive(Debug, Clone)]
pub struct VisiblePieces<'k> {
    kept: &'k [char],
    before: Before,
    /// The previous character, if the next character decides whether the previous one is escaped.
    undecided: Option<char>,
}

impl<'k> VisiblePieces<'k> {
    /// Creates an escaper for one text. The line breaks and tabs in `kept` are not escaped.
    pub fn new(kept: &'k [char]) -> Self {
        Self { kept, before: Before::Other, undecided: None }
    }

    /// Adds the next piece, and returns the escaped text. The last character is not returned yet if
    /// the next piece decides whether this character is escaped.
    pub fn push(&mut self, piece: &str) -> String {
        let mut visible = String::with_capacity(piece.len());
        for character in piece.chars() {
            self.decide(Some(character), &mut visible);
            let is_seen = self.kept.contains(&character) || !is_unseen(character);
            if !is_seen && self.before.may_be_shaped_by(character) {
                self.undecided = Some(character);
            } else {
                self.show(character, is_seen, &mut visible);
            }
        }
        visible
    }

    /// Ends the text, and returns the last character if it still waits for the next piece. The next
    /// piece begins another text.
    pub fn finish(&mut self) -> String {
        let mut visible = String::new();
        self.decide(None, &mut visible);
        self.before = Before::Other;
        visible
    }

    /// Appends the undecided character, escaped or not, depending on the next character.
    fn decide(&mut self, next: Option<char>, visible: &mut String) {
        if let Some(character) = self.undecided.take() {
            self.show(character, self.before.is_shaped_by(character, next), visible);
        }
    }

    fn show(&mut self, character: char, is_kept: bool, visible: &mut String) {
        if is_kept {
            visible.push(character);
            self.before = self.before.then(character);
            return;
        }
        match character {
            '\n' | '\r' | '\t' => visible.extend(character.escape_default()),
            _ => visible.extend(character.escape_unicode()),
        }
        self.before = Before::Other;
    }
}

/// Returns a JSON text of the same value in which every invisible character is a JSON escape, such
/// as `\u200b`. The escaped characters are those of [`visible_text`], without the exceptions for
/// joiners and variation selectors.
///
/// ```
/// use tower_chat_core::visible_json;
/// assert_eq!(visible_json("{\"to\": \"bob\u{200b}\u{e0041}\"}"), r#"{"to": "bob\u200b\udb40\udc41"}"#);
/// ```
pub fn visible_json(json: &str) -> String {
    let mut visible = String::with_capacity(json.len());
    for character in json.chars() {
        // Outside of strings, the only invisible characters in JSON are white space, which need not
        // be escaped.
        if matches!(character, '\n' | '\r' | '\t') || !is_unseen(character) {
            visible.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            // Writing to a `String` does not fail.
            let _ = write!(visible, "\\u{unit:04x}");
        }
    }
    visible
}

/// The class of the character before a joiner or a variation selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    /// A letter of a script that needs joiners.
    Letter,
    Emoji,
    /// An emoji with its variation selector.
    ShapedEmoji,
    /// A character of a keycap such as 1️⃣.
    Key,
    Other,
}

impl Before {
    fn of(character: char) -> Self {
        match character {
            _ if is_unseen(character) => Self::Other,
            '0'..='9' | '#' | '*' => Self::Key,
            _ if is_emoji(character) => Self::Emoji,
            '\u{600}'..='\u{109f}' | '\u{1780}'..='\u{18af}' => Self::Letter,
            _ => Self::Other,
        }
    }

    /// Returns whether a joiner or variation selector after this character may change the shape of
    /// the characters next to it, depending on the next character.
    fn may_be_shaped_by(self, character: char) -> bool {
        matches!(
            (character, self),
            ('\u{200c}', Self::Letter)
                | ('\u{200d}', Self::Letter | Self::Emoji | Self::ShapedEmoji)
                | ('\u{fe0e}', Self::Emoji)
                | ('\u{fe0f}', Self::Emoji | Self::Key)
        )
    }

    /// Returns whether a joiner or variation selector between this character and the next one
    /// changes the shape of its neighbours.
    fn is_shaped_by(self, character: char, next: Option<char>) -> bool {
        const ENCLOSING_KEYCAP: char = '\u{20e3}';
        match (character, self) {
            ('\u{200c}' | '\u{200d}', Self::Letter) => next.map(Self::of) == Some(Self::Letter),
            ('\u{200d}', Self::Emoji | Self::ShapedEmoji) => {
                next.map(Self::of) == Some(Self::Emoji)
            }
            ('\u{fe0e}' | '\u{fe0f}', Self::Emoji) => true,
            ('\u{fe0f}', Self::Key) => next == Some(ENCLOSING_KEYCAP),
            _ => false,
        }
    }

    /// Returns the class that a character has for the next character.
    fn then(self, character: char) -> Self {
        match (character, self) {
            ('\u{fe0e}' | '\u{fe0f}', Self::Emoji) => Self::ShapedEmoji,
            _ => Self::of(character),
        }
    }
}

fn is_emoji(character: char) -> bool {
    matches!(
        character,
        '\u{a9}' | '\u{ae}' | '\u{203c}' | '\u{2049}' | '\u{2122}' | '\u{2139}'
            | '\u{2190}'..='\u{21ff}' | '\u{2300}'..='\u{27bf}' | '\u{2900}'..='\u{2bff}'
            | '\u{3030}' | '\u{303d}' | '\u{3297}' | '\u{3299}' | '\u{1f000}'..='\u{1faff}'
    )
}

/// Returns whether a character has no glyph: it is a control character, a code point with the
/// Unicode property `Default_Ignorable_Code_Point`, a mark of direction or annotation, or not a
/// character.
fn is_unseen(character: char) -> bool {
    let is_ignorable = matches!(
        character,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    );
    let code = u32::from(character);
    let is_no_character = code & 0xfffe == 0xfffe || (0xfdd0..=0xfdef).contains(&code);
    character.is_control() || is_ignorable || is_no_character
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_characters_are_unchanged_and_invisible_ones_are_escaped() {
        for (text, expected) in [
            ("plain, é, 漢字, 👩\u{200d}🚀", "plain, é, 漢字, 👩\u{200d}🚀"),
            ("C:\\chat.db \"quoted\" <b>", "C:\\chat.db \"quoted\" <b>"),
            ("\u{1b}[2J\u{9b}2J\u{7f}\0\u{8}", r"\u{1b}[2J\u{9b}2J\u{7f}\u{0}\u{8}"),
            ("a\r\nb\tc", r"a\r\nb\tc"),
            ("a\u{202e}b\u{2066}c\u{2028}\u{200f}", r"a\u{202e}b\u{2066}c\u{2028}\u{200f}"),
            ("pay\u{200b}pal\u{feff}", r"pay\u{200b}pal\u{feff}"),
            ("hi\u{e0001}\u{e0041}\u{e007f}", r"hi\u{e0001}\u{e0041}\u{e007f}"),
            ("so\u{ad}ft\u{2060}\u{2063}", r"so\u{ad}ft\u{2060}\u{2063}"),
            ("\u{fff9}a\u{fffa}b\u{fffb}", r"\u{fff9}a\u{fffa}b\u{fffb}"),
            ("葛\u{e0100}\u{fe00}", r"葛\u{e0100}\u{fe00}"),
            ("\u{3164}\u{115f}\u{ffa0}\u{2800}", r"\u{3164}\u{115f}\u{ffa0}\u{2800}"),
            ("\u{fdd0}\u{fffe}\u{10ffff}", r"\u{fdd0}\u{fffe}\u{10ffff}"),
            ("\u{206a}\u{180e}\u{34f}", r"\u{206a}\u{180e}\u{34f}"),
        ] {
            assert_eq!(visible_text(text, &[]), expected);
            assert_eq!(visible_text(expected, &[]), expected, "escaping twice changes nothing");
        }
        assert_eq!(visible_text("a\nb\tc\rd", &['\n', '\t']), "a\nb\tc\\rd");
    }

    #[test]
    fn joiners_and_variation_selectors_are_escaped_unless_they_shape_their_neighbours() {
        for kept in [
            "❤\u{fe0f}\u{200d}🔥",
            "1\u{fe0f}\u{20e3}",
            "می\u{200c}خواهم",
            "क्\u{200d}ष",
            "©\u{fe0e}",
        ] {
            assert_eq!(visible_text(kept, &[]), kept);
        }
        for (text, expected) in [
            ("tea\u{200d}pot", r"tea\u{200d}pot"),
            ("раy\u{200c}раl", r"раy\u{200c}раl"),
            ("a\u{fe0f}", r"a\u{fe0f}"),
            ("1\u{fe0f}2", r"1\u{fe0f}2"),
            ("👩\u{200d}", r"👩\u{200d}"),
            ("👩\u{200d}\u{200d}🚀", r"👩\u{200d}\u{200d}🚀"),
            ("😀\u{fe01}\u{e0110}\u{e0111}", r"😀\u{fe01}\u{e0110}\u{e0111}"),
            ("❤\u{fe0f}\u{fe0f}", "❤\u{fe0f}\\u{fe0f}"),
            ("\u{200d}\u{fe0f}", r"\u{200d}\u{fe0f}"),
        ] {
            assert_eq!(visible_text(text, &[]), expected);
        }
    }

    #[test]
    fn a_text_in_pieces_is_escaped_like_the_whole_text() {
        for text in [
            "❤\u{fe0f}\u{200d}🔥 1\u{fe0f}\u{20e3} می\u{200c}خواهم ©\u{fe0e}",
            "tea\u{200d}pot 👩\u{200d} 👩\u{200d}\u{200d}🚀 ❤\u{fe0f}\u{fe0f} a\u{202e}b\r\nc\td",
            "\u{200d}\u{fe0f}1\u{fe0f}2👩\u{200d}",
        ] {
            for kept in [&[][..], &['\n', '\t']] {
                let mut pieces = VisiblePieces::new(kept);
                let mut visible = String::new();
                for character in text.chars() {
                    visible.push_str(&pieces.push(&character.to_string()));
                }
                visible.push_str(&pieces.finish());
                assert_eq!(visible, visible_text(text, kept));
            }
        }
    }

    #[test]
    fn visible_json_has_no_invisible_characters_and_parses_to_the_same_value() {
        let value =
            serde_json::json!({"a\u{200b}\u{e0041}": ["\u{9b}2J\u{7f}\u{1b}", "é 👩\u{200d}🚀\n"]});
        for json in [value.to_string(), format!("{value:#}\r\n")] {
            let visible = visible_json(&json);
            assert!(!visible.chars().any(|it| is_unseen(it) && !it.is_whitespace()), "{visible}");
            assert_eq!(
                serde_json::from_str::<serde_json::Value>(&visible).ok(),
                Some(value.clone())
            );
        }
    }
}
