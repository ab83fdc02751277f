//! The chain of a conversation's messages: a digest that binds each message to the messages before
//! it.
//!
//! To *seal* a value means to encrypt and authenticate it, and to *open* a value means to verify
//! and decrypt it. Each sealed message contains the digest of the previous message, which covers
//! all earlier messages. A message can be opened only if the messages before it are the same as
//! when it was written. An attacker therefore cannot combine messages of two states of a
//! conversation.
//!
//! A run is the service calls and tool calls for one request. The messages of a run are staged
//! (stored, but not visible to readers) until the run is committed.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tower_chat_core::{MessageId, RunId};

use crate::digests::Digests;

/// The digest of a message and of all messages before it, which is stored only inside encrypted
/// values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Digest([u8; 16]);

impl Digest {
    /// The digest before the first message of a chain.
    pub(crate) const START: Self = Self([0; 16]);

    /// Returns the digest of the next message. `texts` are the plaintexts of the body of this
    /// message, and of its calls and results in order. The digest does not depend on nonces, so
    /// that sealing a message again does not change it.
    pub(crate) fn after(self, message: Option<MessageId>, texts: &[String]) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(b"tower-chat message after");
        hasher.update(self.0);
        if let Some(id) = message {
            hasher.update(id.run.to_bytes());
            hasher.update(id.index.to_le_bytes());
        }
        for text in texts {
            hasher.update((text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        }
        let mut digest = [0; 16];
        digest.iter_mut().zip(hasher.finalize()).for_each(|(to, from)| *to = from);
        Self(digest)
    }

    /// The number of characters of the text form of a digest.
    const LENGTH: usize = 32;

    /// Returns the digest as hexadecimal digits.
    pub(crate) fn to_text(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Parses a digest at the beginning of a text. Returns the digest and the rest of the text.
    pub(crate) fn read(text: &str) -> Option<(Self, &str)> {
        let (digits, rest) = text.split_at_checked(Self::LENGTH)?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let mut digest = [0; 16];
        for (position, byte) in digest.iter_mut().enumerate() {
            let pair = digits.get(2 * position..2 * position + 2)?;
            *byte = u8::from_str_radix(pair, 16).ok()?;
        }
        Some((Self(digest), rest))
    }
}

/// The kind of write that stored a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The message was visible as soon as it was stored.
    Visible,
    /// The message was staged, and becomes visible when its run is committed.
    Staged,
    /// The message was written by the commit of its run, which also commits the staged messages
    /// directly before it.
    Committed,
}

impl Kind {
    const ALL: [(Self, char); 3] =
        [(Self::Visible, 'v'), (Self::Staged, 's'), (Self::Committed, 'c')];
}

/// The data that are sealed with a message, and that link it to the previous message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link {
    /// The digest of the previous message.
    pub(crate) before: Digest,
    pub(crate) kind: Kind,
}

impl Link {
    /// Returns the text form, which is sealed before the body of the message.
    pub(crate) fn to_text(self) -> String {
        let letter = Kind::ALL.iter().find(|(kind, _)| *kind == self.kind);
        let letter: String = letter.map(|(_, letter)| *letter).into_iter().collect();
        [letter, self.before.to_text()].concat()
    }

    /// Parses the link at the beginning of a text, and returns the rest of the text.
    pub(crate) fn read(text: &str) -> Option<(Self, &str)> {
        let letter = text.chars().next()?;
        let (kind, _) = Kind::ALL.iter().find(|(_, found)| *found == letter)?;
        let (before, body) = Digest::read(text.get(letter.len_utf8()..)?)?;
        Some((Self { before, kind: *kind }, body))
    }
}

/// The data of an opened message that a [`Chain`] checks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Linked {
    pub(crate) link: Link,
    /// The digest of the message itself.
    pub(crate) digest: Digest,
}

/// Checks the messages of a conversation, in order.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    /// The digest of the previous message; `None` if it is unknown.
    at: Option<Digest>,
    /// Messages up to this sequence number have a former format, without digests.
    unchained: u64,
    /// The run of the last message that was checked, if that message was staged.
    staged: Option<RunId>,
    /// The digests of some messages that were checked.
    digests: Digests,
}

pub(crate) const BROKEN: &str = "it does not follow the message before it";
pub(crate) const NOT_COMMITTED: &str = "it was staged, and its run was never committed";

impl Chain {
    /// Creates the chain of messages from the sequence number `first` on. Messages up to the
    /// sequence number `unchained` have a former format, without digests.
    pub(crate) fn from(first: u64, unchained: u64) -> Self {
        let at = (first <= unchained.saturating_add(1)).then_some(Digest::START);
        Self { at, unchained, staged: None, digests: Digests::default() }
    }

    /// Creates the chain of the messages that follow the message with this digest.
    pub(crate) fn behind(digest: Option<Digest>) -> Self {
        Self { at: digest, unchained: 0, staged: None, digests: Digests::default() }
    }

    /// Sets the digests of earlier messages.
    pub(crate) fn with_digests(mut self, digests: Digests) -> Self {
        self.digests = digests;
        self
    }

    /// Checks that the next message contains the digest of the previous message. Also accepts a
    /// message of a former format, and any message if the previous digest is unknown.
    pub(crate) fn follow(
        &mut self,
        sequence: u64,
        message: Option<MessageId>,
        found: Option<Linked>,
    ) -> Result<(), &'static str> {
        let Some(found) = found.filter(|_| sequence > self.unchained) else {
            self.at = (sequence <= self.unchained).then_some(Digest::START);
            return Ok(());
        };
        let before = self.at.replace(found.digest);
        self.staged = match found.link.kind {
            Kind::Staged => message.map(|id| id.run),
            Kind::Visible | Kind::Committed => None,
        };
        match before {
            Some(before) if before != found.link.before => Err(BROKEN),
            Some(_) | None => {
                self.digests.push(sequence, found.digest);
                Ok(())
            }
        }
    }

    /// Records a message that cannot be opened. The link of the next message is then not checked.
    pub(crate) fn lose(&mut self) {
        self.at = None;
        self.staged = None;
    }

    /// Returns the digest of the previous message, if it is known.
    pub(crate) fn previous_digest(&self) -> Option<Digest> {
        self.at
    }

    /// Returns the digests of some messages that were checked.
    pub(crate) fn digests(&self) -> &Digests {
        &self.digests
    }

    /// Checks that a visible conversation does not end with a staged message. The exception is the
    /// message with the digest `committed`, which is the final message of a run that was committed
    /// by a write without messages.
    pub(crate) fn check_end(&self, committed: Option<Digest>) -> Result<(), &'static str> {
        let is_committed = committed.is_some() && committed == self.at;
        if self.staged.is_some() && !is_committed { Err(NOT_COMMITTED) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(run: u8, index: u32) -> Option<MessageId> {
        Some(MessageId { run: RunId::from_bytes([run; 16]), index })
    }

    fn linked(before: Digest, kind: Kind, text: &str) -> Linked {
        Linked { link: Link { before, kind }, digest: before.after(id(1, 0), &[text.to_owned()]) }
    }

    #[test]
    fn a_link_is_parsed_from_the_text_that_it_has_written() {
        let before = Digest::START.after(id(1, 2), &["text".to_owned()]);
        for (kind, _) in Kind::ALL {
            let link = Link { before, kind };
            let text = format!("{}{{}}", link.to_text());
            assert_eq!(Link::read(&text), Some((link, "{}")));
        }
        for text in [
            "",
            "v",
            "x0",
            &"é".repeat(17),
            &format!("x{}", "0".repeat(32)),
            &format!("v{}", "+0".repeat(16)),
        ] {
            assert_eq!(Link::read(text), None, "{text}");
        }
    }

    #[test]
    fn a_digest_covers_the_ids_and_texts_of_all_messages_up_to_its_own() {
        let texts = |text: &str| [text.to_owned()];
        let first = Digest::START.after(id(1, 0), &texts("a"));
        let second = first.after(id(1, 1), &texts("b"));
        assert_eq!(second, Digest::START.after(id(1, 0), &texts("a")).after(id(1, 1), &texts("b")));
        let others = [
            Digest::START.after(id(1, 0), &texts("x")).after(id(1, 1), &texts("b")),
            Digest::START.after(id(2, 0), &texts("a")).after(id(1, 1), &texts("b")),
            first.after(id(1, 2), &texts("b")),
            first.after(id(1, 1), &["b".to_owned(), String::new()]),
            first.after(id(1, 1), &["".to_owned(), "b".to_owned()]),
        ];
        assert!(others.iter().all(|other| *other != second));
    }

    #[test]
    fn a_chain_accepts_only_linked_messages_and_no_uncommitted_message_as_its_end() {
        let one = linked(Digest::START, Kind::Visible, "1");
        let two = linked(one.digest, Kind::Staged, "2");
        let three = linked(two.digest, Kind::Committed, "3");
        let mut chain = Chain::from(1, 0);
        for (sequence, message) in (1..).zip([one, two]) {
            assert_eq!(chain.follow(sequence, id(1, 0), Some(message)), Ok(()));
        }
        assert_eq!(chain.check_end(None), Err(NOT_COMMITTED));
        assert_eq!(chain.check_end(Some(one.digest)), Err(NOT_COMMITTED));
        assert_eq!(chain.check_end(Some(two.digest)), Ok(()));
        assert_eq!(chain.follow(3, id(1, 0), Some(three)), Ok(()));
        assert_eq!((chain.check_end(None), chain.previous_digest()), (Ok(()), Some(three.digest)));
        assert_eq!(chain.follow(4, id(1, 0), Some(two)), Err(BROKEN));

        // The first message of a conversation without a prune must be the first message of a chain.
        assert_eq!(Chain::from(1, 0).follow(1, id(1, 0), Some(two)), Err(BROKEN));
        assert_eq!(Chain::from(2, 0).follow(2, id(1, 0), Some(two)), Ok(()));
        // A chain begins after messages of a former format.
        let mut chain = Chain::from(3, 4);
        assert_eq!(chain.follow(3, id(1, 0), None), Ok(()));
        assert_eq!(chain.follow(4, id(1, 0), Some(two)), Ok(()), "it was rewritten");
        assert_eq!(chain.follow(5, id(1, 0), Some(one)), Ok(()));
        // The link of a message after an unreadable message is not checked.
        chain.lose();
        assert_eq!(chain.follow(7, id(1, 0), Some(three)), Ok(()));
    }
}
