//! Pictures in the inputs of runs, and a policy that replaces old pictures in requests by a
//! sentence. The store keeps every picture.

use std::sync::Arc;

use tower_chat::{
    Message, Part, PersistencePolicy, Role,
    message::{Media, MediaSource},
    replay::{OldMedia, ReplayPolicy},
};
use tower_chat_testkit::Rng;

use crate::faults::{rules::require, script::input_text};

/// The pictures of a case, and the policy of its requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pictures {
    /// Selects the runs whose inputs contain a picture.
    seed: u64,
    sent: Sent,
}

/// The pictures of earlier runs that are sent again.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Sent {
    All,
    /// This number of pictures.
    Last(usize),
    /// The pictures of this number of runs.
    Turns(usize),
}

/// The sign of a picture in the label of a message.
pub(crate) const SIGN: char = '*';
/// The sentence that replaces a picture.
pub(crate) const SENTENCE: &str = "[An earlier attachment (image/png) is not sent again.]";

impl Pictures {
    pub(crate) fn random(rng: &mut Rng) -> Self {
        let seed = rng.next();
        let sent = match rng.below(5) {
            0 => Sent::All,
            1 | 2 => Sent::Last(rng.below(3)),
            _ => Sent::Turns(rng.below(3)),
        };
        Self { seed, sent }
    }

    pub(crate) fn simpler(self) -> Option<Self> {
        (self.sent != Sent::All).then_some(Self { sent: Sent::All, ..self })
    }

    /// Returns whether the input of a run contains a picture.
    pub(crate) fn are_in(self, run: usize) -> bool {
        !Rng::of(self.seed, run as u64).one_in(3)
    }

    pub(crate) fn with_policy(self, policy: PersistencePolicy) -> PersistencePolicy {
        let old_media = match self.sent {
            Sent::All => return policy,
            Sent::Last(pictures) => OldMedia::keep_last(pictures),
            Sent::Turns(turns) => OldMedia::keep_turns(turns),
        };
        policy.with_replay(ReplayPolicy::default().with_old_media(old_media))
    }

    /// Checks that a request of a run contains the input of this run with its pictures, and exactly
    /// the pictures of earlier runs that the policy sends. Each input has a text. The input of the
    /// run in a branch has no picture.
    pub(crate) fn check_sent<'m>(
        self,
        run: usize,
        in_branch: usize,
        messages: impl IntoIterator<Item = &'m Arc<Message>>,
    ) -> Result<(), String> {
        let messages: Vec<_> = messages.into_iter().collect();
        let inputs: Vec<_> = messages.iter().filter_map(|it| Some((run_of(it)?, it))).collect();
        let earlier: Vec<usize> =
            inputs.iter().map(|(of, _)| *of).filter(|of| *of != run).collect();
        let with_pictures: Vec<usize> =
            earlier.iter().copied().filter(|of| *of != in_branch && self.are_in(*of)).collect();
        let sent = match self.sent {
            Sent::All => &earlier[..],
            Sent::Last(pictures) => last(&with_pictures, pictures),
            Sent::Turns(turns) => last(&earlier, turns),
        };
        require(inputs.iter().any(|(of, _)| *of == run), || {
            format!("the request of run {run} does not contain the input of the run: {messages:?}")
        })?;
        for (of, input) in &inputs {
            let has_picture = *of != in_branch && self.are_in(*of);
            let is_sent = *of == run || sent.contains(of);
            let expected = (has_picture && is_sent, has_picture && !is_sent);
            let found = (pictures(input) == [url(*of)], input.text().ends_with(SENTENCE));
            let are_whole = pictures(input).len() == usize::from(found.0);
            require(found == expected && are_whole, || {
                format!(
                    "the request of run {run} has the input {input:?}; the picture and the \
                     sentence are expected: {expected:?}, with {self:?}"
                )
            })?;
        }
        Ok(())
    }
}

/// Checks that the stored input of each run contains its picture.
pub(crate) fn check_stored<'m>(
    pictures_of_case: Option<Pictures>,
    messages: impl IntoIterator<Item = &'m Arc<Message>>,
) -> Result<(), String> {
    for message in messages {
        let Some(run) = run_of(message) else { continue };
        let has_picture = pictures_of_case.is_some_and(|pictures| pictures.are_in(run));
        let expected: Vec<String> = has_picture.then(|| url(run)).into_iter().collect();
        let is_whole = pictures(message) == expected && !message.text().contains(SENTENCE);
        require(is_whole, || format!("{message:?} is stored, and should contain {expected:?}"))?;
    }
    Ok(())
}

/// Returns the run whose input the message is.
fn run_of(message: &Message) -> Option<usize> {
    let text = message.text();
    let text = text.strip_suffix(SENTENCE).unwrap_or(&text);
    let run = text.strip_prefix("run ").filter(|_| message.role == Role::User)?;
    run.parse().ok()
}

fn last(runs: &[usize], count: usize) -> &[usize] {
    &runs[runs.len().saturating_sub(count)..]
}

/// Returns the picture of the input of a run.
pub(crate) fn of_run(run: usize) -> Part {
    Part::Media(Media::new("image/png", MediaSource::Url(url(run))))
}

fn url(run: usize) -> String {
    format!("https://example.com/{run}.png")
}

fn pictures(message: &Message) -> Vec<String> {
    let url = |part: &Part| match part {
        Part::Media(Media { source: MediaSource::Url(url), .. }) => Some(url.clone()),
        _ => None,
    };
    message.parts.iter().filter_map(url).collect()
}

#[test]
fn a_lost_picture_or_a_picture_that_is_not_replaced_is_found() {
    let seed =
        (0..).find(|seed| (0..3).all(|run| Pictures { seed: *seed, sent: Sent::All }.are_in(run)));
    let seed = seed.expect("a seed with pictures in three runs");
    let input =
        |run, part| Arc::new(Message::new(Role::User, vec![Part::text(input_text(run)), part]));
    let whole = [0, 1, 2].map(|run| input(run, of_run(run)));
    let sentence = || Part::text(SENTENCE);
    let one_replaced = [input(0, sentence()), whole[1].clone(), whole[2].clone()];
    let two_replaced = [one_replaced[0].clone(), input(1, sentence()), whole[2].clone()];
    let all_replaced = [two_replaced[0].clone(), two_replaced[1].clone(), input(2, sentence())];
    let exchanged = [whole[0].clone(), input(1, of_run(2)), whole[2].clone()];
    for (sent, expected) in [
        (Sent::All, 0),
        (Sent::Last(2), 0),
        (Sent::Last(1), 1),
        (Sent::Turns(1), 1),
        (Sent::Last(0), 2),
        (Sent::Turns(0), 2),
    ] {
        let pictures = Pictures { seed, sent };
        let requests = [&whole, &one_replaced, &two_replaced, &all_replaced, &exchanged];
        for (number, request) in requests.into_iter().enumerate() {
            let checked = pictures.check_sent(2, 3, request);
            assert_eq!(checked.is_ok(), number == expected, "{sent:?}, request {number}");
            let checked = check_stored(Some(pictures), request);
            assert_eq!(checked.is_ok(), number == 0, "stored: {number}");
        }
        let without_input = pictures.check_sent(2, 3, &whole[..2]);
        without_input.expect_err("the input of run 2 is lost");
    }
}
