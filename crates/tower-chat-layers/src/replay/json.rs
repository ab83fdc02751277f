//! JSON text, gone over without building what it holds.

/// A JSON text and how far it was gone over.
///
/// What it goes over is JSON as RFC 8259 has it, nested as deep as it may be; where something else
/// stands, the answer is `None`. It is the inner loop of the steps that look into arguments and
/// results.
#[derive(Debug, Clone)]
pub(super) struct Json<'t> {
    text: &'t str,
    rest: &'t [u8],
}

impl<'t> Json<'t> {
    pub(super) fn of(text: &'t str) -> Self {
        Self { text, rest: text.as_bytes() }
    }

    /// Goes over an object, and calls a function with each key and value as they are written.
    pub(super) fn object(&mut self, mut each: impl FnMut(&'t str, &'t str)) -> Option<()> {
        self.skip_space();
        self.expect(b'{')?;
        self.skip_space();
        if self.skip(b'}') {
            return Some(());
        }
        loop {
            let key = self.key()?;
            each(key, self.value()?);
            self.skip_space();
            if !self.skip(b',') {
                return self.expect(b'}');
            }
            self.skip_space();
        }
    }

    /// Goes over an array with a function that goes over each item.
    pub(super) fn array(&mut self, mut each: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.skip_space();
        self.expect(b'[')?;
        self.skip_space();
        if self.skip(b']') {
            return Some(());
        }
        loop {
            each(self)?;
            self.skip_space();
            if !self.skip(b',') {
                return self.expect(b']');
            }
            self.skip_space();
        }
    }

    /// Goes over a value, which is given as it is written.
    pub(super) fn value(&mut self) -> Option<&'t str> {
        let begin = self.offset();
        // Not by recursion: the text may be nested deeper than the stack is high.
        let mut around = Nesting::default();
        loop {
            match self.rest {
                [b'"', ..] => self.string()?,
                [b'{', rest @ ..] => {
                    self.rest = rest;
                    self.skip_space();
                    if !self.skip(b'}') {
                        around.open(true);
                        self.key()?;
                        continue;
                    }
                }
                [b'[', rest @ ..] => {
                    self.rest = rest;
                    self.skip_space();
                    if !self.skip(b']') {
                        around.open(false);
                        continue;
                    }
                }
                [b't', ..] => self.word(b"true")?,
                [b'f', ..] => self.word(b"false")?,
                [b'n', ..] => self.word(b"null")?,
                _ => self.number()?,
            }
            loop {
                let Some(is_object) = around.innermost() else { return self.since(begin) };
                self.skip_space();
                if self.skip(b',') {
                    self.skip_space();
                    if is_object {
                        self.key()?;
                    }
                    break;
                }
                self.expect(if is_object { b'}' } else { b']' })?;
                around.close();
            }
        }
    }

    /// What was gone over since a place before.
    pub(super) fn since(&self, offset: usize) -> Option<&'t str> {
        self.text.get(offset..self.offset())
    }

    /// The place it has come to.
    pub(super) fn offset(&self) -> usize {
        self.text.len() - self.rest.len()
    }

    /// Goes over the end: nothing but white space is left.
    pub(super) fn end(&mut self) -> Option<()> {
        self.skip_space();
        self.rest.is_empty().then_some(())
    }

    /// Goes over a key and its colon, up to the value.
    fn key(&mut self) -> Option<&'t str> {
        let begin = self.offset();
        self.string()?;
        let key = self.since(begin)?;
        self.skip_space();
        self.expect(b':')?;
        self.skip_space();
        Some(key)
    }

    fn string(&mut self) -> Option<()> {
        self.expect(b'"')?;
        loop {
            match self.rest.get(plain_bytes(self.rest)..)? {
                [b'"', rest @ ..] => {
                    self.rest = rest;
                    return Some(());
                }
                [b'\\', rest @ ..] => self.rest = after_escape(rest)?,
                _ => return None,
            }
        }
    }

    fn number(&mut self) -> Option<()> {
        self.skip(b'-');
        if !self.skip(b'0') {
            self.digits()?;
        }
        if self.skip(b'.') {
            self.digits()?;
        }
        if self.skip(b'e') || self.skip(b'E') {
            let _sign = self.skip(b'+') || self.skip(b'-');
            self.digits()?;
        }
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.rest = self.rest.get(digits..)?;
        (digits > 0).then_some(())
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(word)?;
        Some(())
    }

    fn skip_space(&mut self) {
        while let [b' ' | b'\n' | b'\t' | b'\r', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.skip(byte).then_some(())
    }

    fn skip(&mut self, byte: u8) -> bool {
        match self.rest {
            [first, rest @ ..] if *first == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }
}

/// What follows an escape, behind its backslash.
fn after_escape(text: &[u8]) -> Option<&[u8]> {
    match text {
        [b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', rest @ ..] => Some(rest),
        [b'u', rest @ ..] => {
            let (digits, rest) = rest.split_at_checked(4)?;
            digits.iter().all(u8::is_ascii_hexdigit).then_some(rest)
        }
        _ => None,
    }
}

/// What is open around a place: an object, or else an array. The innermost 64 need no memory of
/// their own.
#[derive(Debug, Default)]
struct Nesting {
    depth: usize,
    /// The lowest bit stands for the innermost.
    are_objects: u64,
    outer: Vec<u64>,
}

impl Nesting {
    fn open(&mut self, is_object: bool) {
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.outer.push(self.are_objects);
        }
        self.depth += 1;
        self.are_objects = self.are_objects << 1 | u64::from(is_object);
    }

    fn close(&mut self) {
        self.depth -= 1;
        self.are_objects >>= 1;
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.are_objects = self.outer.pop().unwrap_or_default();
        }
    }

    /// Whether the innermost is an object; `None` if nothing is open.
    fn innermost(&self) -> Option<bool> {
        (self.depth > 0).then_some(self.are_objects & 1 == 1)
    }
}

/// How many bytes there are up to the first that is special inside a string: a quote, a backslash
/// or a control character.
fn plain_bytes(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks();
    for (index, word) in words.iter().enumerate() {
        let special = special_bytes(u64::from_le_bytes(*word));
        if special != 0 {
            return index * 8 + special.trailing_zeros() as usize / 8;
        }
    }
    let is_special = |&byte: &u8| byte < b' ' || byte == b'"' || byte == b'\\';
    words.len() * 8 + rest.iter().position(is_special).unwrap_or(rest.len())
}

/// The high bits of those of eight bytes that are special inside a string. Up to the first, from
/// the lowest byte on, they are right; behind it a borrow may have set others. See "Determine if a
/// word has a byte less than n" in S. E. Anderson's Bit Twiddling Hacks.
///
/// With its second lowest bit turned over, a byte is up to 0x20 if it was a control character or a
/// quote.
fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGH_BITS: u64 = ONES << 7;
    let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word;
    let with_turned_bits = |bits: u8| word ^ (ONES * u64::from(bits));
    (below(with_turned_bits(2), b' ' + 1) | below(with_turned_bits(b'\\'), 1)) & HIGH_BITS
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;
    use crate::replay::generated::Rng;

    fn is_json(text: &str) -> bool {
        let mut json = Json::of(text);
        json.skip_space();
        json.value().and_then(|_| json.end()).is_some()
    }

    #[test]
    fn it_agrees_with_a_whole_reader_on_texts_of_any_kind() {
        let pieces = [
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"",
            "\\",
            "\\\"",
            "\\u00e9",
            "\\ud800",
            "\\x",
            "\\u12",
            "\"a\"",
            "\"key\":",
            "\"a longer text, of more than eight bytes\"",
            "日本",
            "\u{7f}",
            "\n",
            " ",
            "\t",
            "\u{0}",
            "\u{1f}",
            "0",
            "-",
            "12",
            ".5",
            "e",
            "E+7",
            "1.0",
            "-0",
            "true",
            "false",
            "null",
            "nul",
            "{}",
            "[]",
            "[1,2]",
            r#"{"a": [{}, "b"]}"#,
        ];
        let (mut json, mut other) = (0, 0);
        for seed in 0..60_000 {
            let mut rng = Rng::of(seed);
            let count = 1 + rng.below(7);
            let text: String = (0..count).map(|_| pieces[rng.below(pieces.len())]).collect();
            let expected = serde_json::from_str::<&RawValue>(&text).is_ok();
            assert_eq!(is_json(&text), expected, "{text:?}");
            *if expected { &mut json } else { &mut other } += 1;
        }
        assert!(json > 1000 && other > 1000, "{json} {other}");
    }

    #[test]
    fn a_broken_byte_anywhere_is_found() {
        let whole = r#"{"order": "A-20260711", "日本": [1.5e3, -0, true, {"a\n": null}], "e": {}}"#;
        assert!(is_json(whole));
        for (at, character) in whole.char_indices() {
            for other in ["", "\"", "\\", "\u{1f}", "0", " ", ",", "}", "é"] {
                let (before, after) = (&whole[..at], &whole[at + character.len_utf8()..]);
                let text = [before, other, after].concat();
                let expected = serde_json::from_str::<&RawValue>(&text).is_ok();
                assert_eq!(is_json(&text), expected, "{text:?}");
            }
        }
    }

    #[test]
    fn what_is_nested_deeper_than_any_stack_is_read() {
        let deep = "[".repeat(1 << 20) + &"]".repeat(1 << 20);
        assert!(is_json(&deep) && !is_json(&deep[1..]));
        let kinds = |level: usize| match level * level % 7 < 3 {
            true => ("[", "]"),
            false => ("{\"k\":", "}"),
        };
        for depth in [1, 63, 64, 65, 127, 128, 129, 400] {
            let open: String = (0..depth).map(|level| kinds(level).0).collect();
            let close: String = (0..depth).rev().map(|level| kinds(level).1).collect();
            assert!(is_json(&format!("{open}0{close}")), "{depth}");
            assert!(!is_json(&format!("{open}0{close}]")) && !is_json(&format!("{open}0")));
            let swapped = close.replace(']', "x").replace('}', "]").replace('x', "}");
            assert!(!is_json(&format!("{open}0{swapped}")), "{depth}");
        }
    }

    #[test]
    fn special_bytes_are_found_at_every_offset() {
        for byte in 0..=u8::MAX {
            let is_special = byte < b' ' || byte == b'"' || byte == b'\\';
            for offset in 0..20 {
                let mut bytes = [b'a'; 20];
                bytes[offset] = byte;
                assert_eq!(plain_bytes(&bytes), if is_special { offset } else { 20 });
            }
        }
    }

    #[test]
    fn members_and_items_come_as_they_are_written() {
        let mut members = Vec::new();
        let mut object = Json::of(r#" { "a" : [1, {}] ,"\u0062":"" } "#);
        object.object(|key, value| members.push((key, value))).unwrap();
        assert_eq!(members, [(r#""a""#, "[1, {}]"), (r#""\u0062""#, r#""""#)]);
        assert!(object.end().is_some());
        let mut items = Vec::new();
        let mut array = Json::of("[ 1 , [] ,{\"a\": 2}]");
        let each = |item: &mut Json<'static>| item.value().map(|item| items.push(item));
        array.array(each).unwrap();
        assert_eq!(items, ["1", "[]", "{\"a\": 2}"]);
        for text in ["{", "{}", "[1,]", "[1 2]", "[,]", "1", ""] {
            assert_eq!(Json::of(text).array(|item| item.value().map(drop)), None, "{text}");
        }
    }
}
