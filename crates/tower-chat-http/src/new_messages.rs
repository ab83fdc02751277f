//! What of a request is new in its conversation.

use tower_chat::core::Messages;

use crate::{
    Refusal,
    known::{Known, of_stored},
};

/// The messages of a request that are not stored yet.
///
/// # Errors
///
/// A refusal, if they contradict what is stored, or there is nothing to answer.
pub(crate) fn new_messages(stored: &Messages, sent: &Messages) -> Result<Messages, Refusal> {
    if stored.is_empty() {
        return if sent.is_empty() { Err(nothing_new()) } else { Ok(sent.clone()) };
    }
    let (known, may_be_unseen) = of_stored(stored);
    let sent = Sent::new(sent);
    let seen = match known.split_last() {
        Some((_, seen)) if may_be_unseen => Some(seen),
        _ => None,
    };
    let ends_with_answer = seen.is_none() && known.last().is_some_and(Known::is_assistant);
    let begun = sent.beyond(&known).map(|new| (new, ends_with_answer));
    let begun = begun.or_else(|| sent.beyond(seen?).map(|new| (new, false)));
    match begun {
        Some((new, true)) if new.is_empty() => Err(nothing_new()),
        Some((new, _)) => Ok(new),
        None if sent.repeats_an_answer() && known.iter().any(Known::is_assistant) => {
            Err(Refusal::diverged())
        }
        None => {
            let new = sent.from(&known, sent.leading);
            if new.is_empty() { Err(nothing_new()) } else { Ok(new) }
        }
    }
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
