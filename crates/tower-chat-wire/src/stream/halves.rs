//! Joins the halves of surrogate pairs that arrive in two pieces of a stream.

use std::borrow::Cow;

use super::Frame;

/// Joins the halves of surrogate pairs in the frames of one stream.
///
/// JSON writes a character outside of the basic plane, such as an emoji, as a surrogate pair:
/// `\ud83d\ude00`. Some services divide a text inside a pair: one piece ends with the first half, and
/// the next piece begins with the second half. Alone, neither half is a character. The first half is
/// removed from its frame and inserted before the second half.
#[derive(Debug, Default)]
pub(crate) struct Halves {
    /// The first halves for which no second half has arrived yet, in the order of their arrival.
    waiting: Vec<Half>,
}

/// The first half of a surrogate pair, as an escape sequence, and the name of the field with the text that
/// ended with it.
#[derive(Debug)]
struct Half {
    field: String,
    escape: String,
}

impl Halves {
    /// Returns the next frame with whole characters. The first half of a pair at the end of a text is removed
    /// until its second half arrives.
    pub(crate) fn join<'f>(&mut self, frame: &'f Frame) -> Cow<'f, Frame> {
        let has_half = frame.data.contains("\\ud") || frame.data.contains("\\uD");
        match has_half.then(|| self.joined(&frame.data)).flatten() {
            Some(data) => Cow::Owned(Frame { event: frame.event.clone(), data }),
            None => Cow::Borrowed(frame),
        }
    }

    /// Returns the data of a frame with whole characters; `None` if the data need no change.
    fn joined(&mut self, data: &str) -> Option<String> {
        let texts = texts(data);
        let mut joined = String::new();
        let mut copied = 0;
        for text in texts {
            let content = data.get(text.start..text.end)?;
            if !CONTINUED.contains(&text.field) {
                continue;
            }
            let waiting = || self.waiting.iter().position(|half| half.field == text.field);
            if lone_unit(content.get(..ESCAPE)).is_some_and(is_second)
                && let Some(position) = waiting()
            {
                joined.push_str(data.get(copied..text.start)?);
                joined.push_str(&self.waiting.remove(position).escape);
                copied = text.start;
            }
            let end = content.len().checked_sub(ESCAPE);
            let last = end.and_then(|end| content.get(end..));
            if lone_unit(last).is_some_and(is_first) && is_escape(content) {
                joined.push_str(data.get(copied..text.end - ESCAPE)?);
                copied = text.end;
                let (field, escape) = (text.field.to_owned(), last?.to_owned());
                self.waiting.push(Half { field, escape });
            }
        }
        (copied > 0).then(|| joined + data.get(copied..).unwrap_or_default())
    }
}

/// The names of fields, on any wire, with texts that arrive in pieces.
const CONTINUED: [&str; 16] = [
    "arguments",
    "content",
    "delta",
    "input",
    "partial_json",
    "reasoning",
    "reasoning_content",
    "reasoning_text",
    "refusal",
    "stringValue",
    "summary",
    "text",
    "thinking",
    "tool_plan",
    "transcript",
    "string_value",
];

/// The number of bytes of an escape sequence `\uXXXX`.
const ESCAPE: usize = 6;

/// A string in a JSON text, without its quotation marks, and the name of its field.
struct Text<'a> {
    /// The byte position of the first byte of the content.
    start: usize,
    /// The byte position after the content.
    end: usize,
    field: &'a str,
}

/// Returns the strings in a JSON text that are not names of fields.
fn texts(json: &str) -> Vec<Text<'_>> {
    let mut texts = Vec::new();
    // The latest string that was the name of a field.
    let mut field = "";
    let mut at = 0;
    while let Some(quote) = json.get(at..).and_then(|rest| rest.find('"')) {
        let start = at + quote + 1;
        let Some(end) = end_of_text(json, start) else { break };
        let content = json.get(start..end).unwrap_or_default();
        let rest = json.get(end + 1..).unwrap_or_default().trim_start();
        match rest.starts_with(':') {
            true => field = content,
            false => texts.push(Text { start, end, field }),
        }
        at = end + 1;
    }
    texts
}

/// Returns the byte position of the quotation mark that ends a string. `start` is the position after the
/// first quotation mark.
fn end_of_text(json: &str, start: usize) -> Option<usize> {
    let mut is_escaped = false;
    let end = json.as_bytes().get(start..)?.iter().position(|byte| {
        let was_escaped = std::mem::take(&mut is_escaped);
        is_escaped = *byte == b'\\' && !was_escaped;
        *byte == b'"' && !was_escaped
    })?;
    Some(start + end)
}

/// Returns the surrogate that an escape sequence encodes. `None` for any other text.
fn lone_unit(escape: Option<&str>) -> Option<u16> {
    let digits = escape?.strip_prefix("\\u")?;
    let unit = u16::from_str_radix(digits, 16).ok()?;
    (is_first(unit) || is_second(unit)).then_some(unit)
}

fn is_first(unit: u16) -> bool {
    (0xd800..=0xdbff).contains(&unit)
}

fn is_second(unit: u16) -> bool {
    (0xdc00..=0xdfff).contains(&unit)
}

/// Returns whether the final backslash of a string begins an escape sequence: it does not if it is itself
/// escaped.
fn is_escape(content: &str) -> bool {
    let before = content.rfind('\\').and_then(|at| content.get(..at)).unwrap_or_default();
    let backslashes = before.bytes().rev().take_while(|byte| *byte == b'\\').count();
    backslashes % 2 == 0
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use tower_chat_core::ChatUpdate;

    use crate::body::BodyWire;

    use super::*;

    /// Returns the text of a Chat Completions answer with these contents, and the text of its deltas.
    fn read(contents: &[&str]) -> (String, String) {
        let mut accumulator = BodyWire::OpenAiChat.accumulator();
        let mut deltas = String::new();
        for content in contents {
            let data = format!(r#"{{"choices":[{{"delta":{{"content":"{content}"}}}}]}}"#);
            for update in accumulator.push(&Frame { event: None, data }).unwrap() {
                let ChatUpdate::TextDelta(text) = update else { continue };
                deltas.push_str(&text);
            }
        }
        let data = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#.to_owned();
        accumulator.push(&Frame { event: None, data }).unwrap();
        (accumulator.finish().unwrap().text(), deltas)
    }

    #[test]
    fn two_halves_are_one_character_wherever_the_pieces_are_cut() {
        for (pieces, expected) in [
            (&[r"a\ud83d", r"\ude00b"][..], "a😀b"),
            (&[r"\uD83D", r"\uDE00"], "😀"),
            (&[r"\ud83d", "", r"\ude00\ud83d", r"\ude01"], "😀😁"),
            (&[r"\ud83d\ude00", r"\ud83d\ude01"], "😀😁"),
            // An escape sequence after an escaped backslash is text.
            (&[r"\\ud83d", r"\\ude00"], r"\ud83d\ude00"),
            // A second half alone is not a character.
            (&["a", r"\ude00"], "a\u{fffd}"),
        ] {
            let expected = (expected.to_owned(), expected.to_owned());
            assert_eq!(read(pieces), expected, "{pieces:?}");
        }
    }
}
