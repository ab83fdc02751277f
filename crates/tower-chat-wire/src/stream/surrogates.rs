//! Joins the halves of surrogate pairs that a service sends in two frames.
//!
//! A frame is one event of a streamed answer.

use std::borrow::Cow;

use super::Frame;

/// Joins the halves of surrogate pairs in the frames of one stream.
///
/// In JSON, the escape sequence of a character outside of the Basic Multilingual Plane, such as an
/// emoji, is a surrogate pair: `\ud83d\ude00`. Some services split a text within such a pair: one
/// frame ends with the first half, and the next frame begins with the second half. Neither half is
/// a valid character without the other half. The first half is therefore removed from its frame,
/// and inserted before the second half in the next frame.
#[derive(Debug, Default)]
pub(crate) struct SurrogateJoiner {
    /// The first halves whose second half has not been received yet, oldest first.
    high_surrogates: Vec<HighSurrogate>,
}

/// The escape sequence of the first half of a surrogate pair, and the name of its field.
#[derive(Debug)]
struct HighSurrogate {
    field: String,
    escape: String,
}

impl SurrogateJoiner {
    /// Returns the frame with complete pairs. If a text in the frame ends with a first half,
    /// removes this half. If a text begins with a second half, inserts the first half, which was
    /// removed from an earlier frame, before it.
    pub(crate) fn join<'f>(&mut self, frame: &'f Frame) -> Cow<'f, Frame> {
        let has_surrogate = frame.data.contains("\\ud") || frame.data.contains("\\uD");
        match has_surrogate.then(|| self.joined(&frame.data)).flatten() {
            Some(data) => Cow::Owned(Frame { event: frame.event.clone(), data }),
            None => Cow::Borrowed(frame),
        }
    }

    /// Returns the changed data of a frame, or `None` if the data need no change.
    fn joined(&mut self, data: &str) -> Option<String> {
        let texts = texts(data);
        let mut joined = String::new();
        let mut copied = 0;
        for text in texts {
            let content = data.get(text.start..text.end)?;
            if !STREAMED_FIELDS.contains(&text.field) {
                continue;
            }
            let high_surrogate =
                || self.high_surrogates.iter().position(|high| high.field == text.field);
            if parse_surrogate(content.get(..ESCAPE_BYTES)).is_some_and(is_low_surrogate)
                && let Some(position) = high_surrogate()
            {
                joined.push_str(data.get(copied..text.start)?);
                joined.push_str(&self.high_surrogates.remove(position).escape);
                copied = text.start;
            }
            let end = content.len().checked_sub(ESCAPE_BYTES);
            let last = end.and_then(|end| content.get(end..));
            if parse_surrogate(last).is_some_and(is_high_surrogate) && is_escape(content) {
                joined.push_str(data.get(copied..text.end - ESCAPE_BYTES)?);
                copied = text.end;
                let (field, escape) = (text.field.to_owned(), last?.to_owned());
                self.high_surrogates.push(HighSurrogate { field, escape });
            }
        }
        (copied > 0).then(|| joined + data.get(copied..).unwrap_or_default())
    }
}

/// The names of the fields, in the formats of all providers, whose texts arrive in pieces.
const STREAMED_FIELDS: [&str; 16] = [
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
const ESCAPE_BYTES: usize = 6;

/// A string in a JSON text, without its quotation marks, and the name of its field.
struct Text<'a> {
    /// The position of the first byte of the string.
    start: usize,
    /// The position after the last byte of the string.
    end: usize,
    field: &'a str,
}

/// Returns the strings in a JSON text that are not names of fields.
fn texts(json: &str) -> Vec<Text<'_>> {
    let mut texts = Vec::new();
    // The last field name that was read.
    let mut field = "";
    let mut at = 0;
    while let Some(quote) = json.get(at..).and_then(|rest| rest.find('"')) {
        let start = at + quote + 1;
        let Some(end) = end_of_string(json, start) else { break };
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

/// Returns the byte position of the quotation mark that ends the string that begins at `start`.
fn end_of_string(json: &str, start: usize) -> Option<usize> {
    let mut is_escaped = false;
    let end = json.as_bytes().get(start..)?.iter().position(|byte| {
        let was_escaped = std::mem::take(&mut is_escaped);
        is_escaped = *byte == b'\\' && !was_escaped;
        *byte == b'"' && !was_escaped
    })?;
    Some(start + end)
}

/// Returns the surrogate that an escape sequence encodes. Returns `None` for any other text.
fn parse_surrogate(escape: Option<&str>) -> Option<u16> {
    let digits = escape?.strip_prefix("\\u")?;
    let unit = u16::from_str_radix(digits, 16).ok()?;
    (is_high_surrogate(unit) || is_low_surrogate(unit)).then_some(unit)
}

fn is_high_surrogate(unit: u16) -> bool {
    (0xd800..=0xdbff).contains(&unit)
}

fn is_low_surrogate(unit: u16) -> bool {
    (0xdc00..=0xdfff).contains(&unit)
}

/// Returns whether the last backslash of a string is not itself escaped.
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

    /// Returns the text of a Chat Completions answer with these contents, and the text of its
    /// deltas.
    fn read_answer(contents: &[&str]) -> (String, String) {
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
    fn two_surrogate_halves_are_one_character_wherever_the_text_is_split() {
        for (pieces, expected) in [
            (&[r"a\ud83d", r"\ude00b"][..], "a😀b"),
            (&[r"\uD83D", r"\uDE00"], "😀"),
            (&[r"\ud83d", "", r"\ude00\ud83d", r"\ude01"], "😀😁"),
            (&[r"\ud83d\ude00", r"\ud83d\ude01"], "😀😁"),
            // After an escaped backslash, `ud83d` is text and not an escape sequence.
            (&[r"\\ud83d", r"\\ude00"], r"\ud83d\ude00"),
            // A second half without a first half is not a valid character.
            (&["a", r"\ude00"], "a\u{fffd}"),
        ] {
            let expected = (expected.to_owned(), expected.to_owned());
            assert_eq!(read_answer(pieces), expected, "{pieces:?}");
        }
    }
}
