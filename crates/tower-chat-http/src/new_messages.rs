//! What of a request is new in its conversation.

use tower_chat::core::Messages;

use crate::{
    Refusal,
    known::{Known, of_stored},
};

/// What a request asks for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Wanted {
    /// An answer to these messages, which are not stored yet. Where there are none, to the stored
    /// question that was never answered.
    Answer(Messages),
    /// The stored answer, which the client did not get.
    LastAnswer,
}

/// What a request asks for, by what of its messages is stored already.
///
/// A client that says that it tries again is believed. So is one that repeats everything up to the
/// last question, answers and all: had it got the last answer, it would repeat that too.
///
/// # Errors
///
/// A refusal, if the messages contradict what is stored, or there is nothing to answer.
pub(crate) fn wanted(
    stored: &Messages,
    sent: &Messages,
    tries_again: bool,
) -> Result<Wanted, Refusal> {
    if stored.is_empty() {
        return if sent.is_empty() { Err(nothing_new()) } else { Ok(Wanted::Answer(sent.clone())) };
    }
    let (known, may_be_unseen) = of_stored(stored);
    let sent = Sent::new(sent);
    let before_answer = match known.split_last() {
        Some((last, before)) if last.is_assistant() => Some(before),
        _ => None,
    };
    let is_answered = before_answer.is_some() && !may_be_unseen;
    match sent.beyond(&known) {
        Some(new) if new.is_empty() && is_answered => return Err(nothing_new()),
        Some(new) => return Ok(Wanted::Answer(new)),
        None => {}
    }
    let asks_again = before_answer.and_then(|before| sent.beyond(before));
    match asks_again {
        Some(new) if may_be_unseen => return Ok(Wanted::Answer(new)),
        Some(new) if new.is_empty() && (tries_again || sent.repeats_an_answer()) => {
            return Ok(Wanted::LastAnswer);
        }
        _ => {}
    }
    if sent.repeats_an_answer() && known.iter().any(Known::is_assistant) {
        return Err(Refusal::diverged());
    }
    let new = sent.from(&known, sent.leading);
    if new.is_empty() { Err(nothing_new()) } else { Ok(Wanted::Answer(new)) }
}

/// The messages of a request beside what they say.
struct Sent<'a> {
    messages: &'a Messages,
    said: Vec<Known>,
    /// How many system messages stand before all others.
    leading: usize,
}

impl<'a> Sent<'a> {
    fn new(messages: &'a Messages) -> Self {
        let said: Vec<Known> = messages.iter().map(|message| Known::of_sent(message)).collect();
        let leading = said.iter().take_while(|said| said.is_system()).count();
        Self { messages, said, leading }
    }

    /// What follows the repetition of what is known, if the messages begin with one.
    fn beyond(&self, known: &[Known]) -> Option<Messages> {
        let whole =
            repeated(&known.iter().collect::<Vec<_>>(), &self.said.iter().collect::<Vec<_>>());
        if whole > self.leading {
            return Some(self.messages.skip(whole));
        }
        // System messages may have changed since, or stand elsewhere.
        let spoken: Vec<&Known> = known.iter().filter(|known| !known.is_system()).collect();
        let (places, said): (Vec<usize>, Vec<&Known>) =
            self.said.iter().enumerate().filter(|(_, said)| !said.is_system()).unzip();
        let repeated = repeated(&spoken, &said);
        let last = places.get(repeated.checked_sub(1)?)?;
        Some(self.from(known, last + 1))
    }

    /// The messages from a place on, after the leading system messages if those are not in force.
    fn from(&self, known: &[Known], place: usize) -> Messages {
        let system = known.iter().rev().skip_while(|known| !known.is_system());
        let mut in_force: Vec<&Known> = system.take_while(|known| known.is_system()).collect();
        in_force.reverse();
        let leading = self.said.iter().take(self.leading);
        let is_in_force = in_force.len() == self.leading
            && in_force.into_iter().zip(leading).all(|(known, said)| known.is_repeated_by(said));
        let mut new = if is_in_force { Messages::new() } else { self.messages.take(self.leading) };
        new.append(&self.messages.skip(place.max(self.leading)));
        new
    }

    fn repeats_an_answer(&self) -> bool {
        self.said.iter().any(Known::is_assistant)
    }
}

/// How many of the first things said are the last that are known.
fn repeated(known: &[&Known], said: &[&Known]) -> usize {
    let longest = known.len().min(said.len());
    let is_repeated = |count: &usize| {
        let tail = known.iter().skip(known.len() - count);
        tail.zip(said).all(|(known, said)| known.is_repeated_by(said))
    };
    (1..=longest).rev().find(is_repeated).unwrap_or_default()
}

fn nothing_new() -> Refusal {
    Refusal::bad_request("the request has no message that is new: add one").with_param("messages")
}

#[cfg(test)]
mod tests;
