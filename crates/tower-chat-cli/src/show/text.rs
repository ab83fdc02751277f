//! Shortens the texts of a transcript.

use crate::output::{count_of, counted};

/// The maximum number of lines of a text that are printed without `--full`.
const LINES: usize = 12;
const CHARACTERS: usize = 800;

/// The printed lines of a text. For a long text, the beginning, and a note with its size.
pub(super) struct CutText<'a> {
    pub(super) lines: Vec<&'a str>,
    pub(super) note: Option<String>,
}

impl<'a> CutText<'a> {
    pub(super) fn of(text: &'a str, is_full: bool) -> Self {
        let text = text.strip_suffix('\n').unwrap_or(text);
        let end = text.char_indices().nth(CHARACTERS).map_or(text.len(), |(end, _)| end);
        let end = if is_full { text.len() } else { end };
        let begin = text.get(..end).unwrap_or(text);
        let max_lines = if is_full { usize::MAX } else { LINES };
        let lines: Vec<&str> = begin.split('\n').take(max_lines).collect();
        let is_cut = end < text.len() || begin.split('\n').count() > lines.len();
        let bytes = counted(count_of(text.len()), "byte");
        let note = is_cut.then(|| format!("… {bytes} in total; --full prints them"));
        Self { lines, note }
    }
}

/// Returns a text, or the beginning of a long text, for a line that also contains other text.
pub(super) fn in_line(text: &str) -> String {
    const CHARACTERS: usize = 200;
    match text.char_indices().nth(CHARACTERS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_shortened_with_a_note_of_their_size() {
        let cut = |text: &str, is_full| {
            let CutText { lines, note } = CutText::of(text, is_full);
            (lines.join("/"), note.unwrap_or_default())
        };
        assert_eq!(cut("", false), (String::new(), String::new()));
        assert_eq!(cut("one\ntwo\n", false), ("one/two".to_owned(), String::new()));
        let long = "é".repeat(801);
        let note = "… 1602 bytes in total; --full prints them".to_owned();
        assert_eq!(cut(&long, false), ("é".repeat(800), note));
        assert_eq!(cut(&long, true), (long, String::new()));
        let many = "line\n".repeat(13);
        let note = "… 64 bytes in total; --full prints them".to_owned();
        assert_eq!(cut(&many, false), (["line"; 12].join("/"), note));
        assert_eq!(cut(&many, true), (["line"; 13].join("/"), String::new()));
        assert_eq!(cut(&"row\n".repeat(12), false).1, "");
    }

    #[test]
    fn a_text_in_a_line_is_shortened_to_200_characters() {
        assert_eq!(in_line("short"), "short");
        assert_eq!(in_line(&"é".repeat(200)), "é".repeat(200));
        assert_eq!(in_line(&"é".repeat(201)), format!("{}…", "é".repeat(200)));
    }
}
