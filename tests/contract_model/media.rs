//! Pictures and documents in messages of the user and in results of tools, and the policies by
//! which old ones are not sent again.

use std::fmt;

use tower_chat::{
    Part,
    message::{Media, MediaSource},
    replay::OldMedia,
};
use tower_chat_testkit::Rng;

use crate::contract_model::case::Case;

/// A medium. Its number is unique in the conversation. It is formatted as `<type number>`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Medium {
    kind: Kind,
    number: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    /// A picture of 3 bytes.
    Picture,
    /// A document of 4 bytes.
    Document,
    /// The address of a text, whose size is unknown.
    Link,
}

/// The media that a policy sends again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum MediaLimit {
    /// The newest media.
    Last(usize),
    /// The media of the newest turns.
    Turns(usize),
}

impl MediaLimit {
    pub(crate) fn random(rng: &mut Rng) -> Self {
        let count = rng.below(4);
        if rng.one_in(2) { Self::Last(count) } else { Self::Turns(count) }
    }

    pub(crate) fn and_one_more(self) -> Self {
        match self {
            Self::Last(media) => Self::Last(media + 1),
            Self::Turns(turns) => Self::Turns(turns + 1),
        }
    }

    pub(crate) fn policy(self) -> OldMedia {
        match self {
            Self::Last(media) => OldMedia::keep_last(media),
            Self::Turns(turns) => OldMedia::keep_turns(turns),
        }
    }
}

impl Kind {
    const ALL: [Self; 3] = [Self::Picture, Self::Document, Self::Link];

    pub(crate) fn random(rng: &mut Rng) -> Self {
        Self::ALL[rng.below(Self::ALL.len())]
    }

    fn media_type(self) -> &'static str {
        match self {
            Self::Picture => "image/png",
            Self::Document => "application/pdf",
            Self::Link => "text/plain",
        }
    }

    /// Returns the sentence that the model receives in place of a medium of this kind.
    fn sentence(self) -> &'static str {
        match self {
            Self::Picture => "[An earlier attachment (image/png, 3 bytes) is not sent again.]",
            Self::Document => {
                "[An earlier attachment (application/pdf, 4 bytes) is not sent again.]"
            }
            Self::Link => "[An earlier attachment (text/plain) is not sent again.]",
        }
    }
}

impl Medium {
    pub(crate) fn part(self) -> Part {
        Part::Media(Media::new(
            self.kind.media_type(),
            match self.kind {
                Kind::Picture => MediaSource::Base64(format!("{:04}", self.number)),
                Kind::Document => MediaSource::Base64(format!("{:04}AA==", self.number)),
                Kind::Link => MediaSource::Url(format!("https://example.com/{:04}", self.number)),
            },
        ))
    }
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} {:04}>", self.kind.media_type(), self.number)
    }
}

/// Returns the media of the user's message in the input of a run.
pub(crate) fn of_input(case: &Case, run: usize) -> Vec<Medium> {
    let numbered = case.steps[run].media.iter().zip(10 * run..);
    numbered.map(|(kind, number)| Medium { kind: *kind, number }).collect()
}

/// Returns the medium in the result of a tool for the call with this token, if there is one.
pub(crate) fn of_tool(case: &Case, token: &str) -> Option<Medium> {
    of_result(case, token, 1000)
}

/// Returns the medium in the result that the caller sends for a call, if there is one.
pub(crate) fn of_caller(case: &Case, token: &str) -> Option<Medium> {
    of_result(case, token, 5000)
}

fn of_result(case: &Case, token: &str, first: usize) -> Option<Medium> {
    // A token consists of the numbers of the run, the answer and the call, which have one digit.
    let digits = token.bytes().filter(u8::is_ascii_digit);
    let number = digits.fold(0, |number, digit| 10 * number + usize::from(digit - b'0'));
    let has_medium = case.media_in_results >> ((number + first) % 61) & 1 == 1;
    let kind = Kind::ALL[number % Kind::ALL.len()];
    has_medium.then_some(Medium { kind, number: first + number })
}

/// Formats an observed medium.
pub(crate) fn shown(media: &Media) -> String {
    let source = match &media.source {
        MediaSource::Base64(source) | MediaSource::Url(source) => source,
        other => return format!("<{} {other:?}>", media.media_type),
    };
    let number = source.trim_start_matches("https://example.com/").trim_end_matches("AA==");
    format!("<{} {number}>", media.media_type)
}

/// Returns the number of formatted media in a text.
pub(crate) fn count(text: &str) -> usize {
    text.matches('<').count()
}

/// Replaces the first media in a text by sentences, and subtracts their number from `old`.
pub(crate) fn without_old(text: &str, old: &mut usize) -> String {
    let (mut replaced, mut rest) = (String::new(), text);
    while *old > 0
        && let Some((before, after)) = rest.split_once('<')
        && let Some((medium, after)) = after.split_once('>')
    {
        let kind = Kind::ALL.into_iter().find(|kind| medium.starts_with(kind.media_type()));
        replaced.push_str(before);
        replaced.push_str(kind.map_or("", Kind::sentence));
        rest = after;
        *old -= 1;
    }
    replaced + rest
}
