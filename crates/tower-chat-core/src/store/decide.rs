//! The function that decides whether a store may make a write, and which changes the write makes.

use std::{ops::RangeInclusive, sync::Arc, time::SystemTime};

use super::{
    Conflict, Head, OpenRun, Revision, SequencePosition, ServiceIdChange, StoreError,
    author::{Claim, Close, LoadFrom, ToolRecord, Write, milliseconds},
};
use crate::{MessageId, ToolStatus};

/// The lookups in a conversation that [`decide`] needs from a store.
pub trait Lookup {
    /// The error of a read.
    type Error;

    /// Returns the id of a message, visible or staged. `None` if there is no message with this
    /// sequence number.
    ///
    /// # Errors
    ///
    /// If the message cannot be read.
    fn message_id(&mut self, sequence: u64) -> Result<Option<MessageId>, Self::Error>;

    /// Returns the state of a call in the record. `None` if the record has no row for the call.
    ///
    /// # Errors
    ///
    /// If the row cannot be read.
    fn call(&mut self, call: SequencePosition) -> Result<Option<CallState>, Self::Error>;
}

/// The fields of a row of the record that a [`Claim`] depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallState {
    /// Whether the status is [`PendingApproval`](crate::ToolStatus::PendingApproval).
    pub waits_for_approval: bool,
    /// The time at which the call was started.
    pub started_at: Option<SystemTime>,
}

impl CallState {
    /// Returns the state of the call in a row.
    pub fn of(row: &ToolRecord) -> Self {
        let waits_for_approval = row.status == ToolStatus::PendingApproval;
        Self { waits_for_approval, started_at: row.started_at }
    }
}

/// The decision of a store about a write.
#[derive(Debug, Clone)]
pub enum Decision {
    /// The store makes these changes in one transaction.
    Store(Changes),
    /// The write is already stored. The store changes nothing, and acknowledges the write again
    /// with its [result](Write::result).
    IsStored,
    /// The store changes nothing, and returns this error.
    Refuse(StoreError),
}

/// The changes that a write makes to its conversation, apart from the messages that it appends and
/// the change of the [directory entry](super::author::DirectoryEntry::apply).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changes {
    /// The revision after the write.
    pub revision: Revision,
    /// The open run after the write. If this is `None`, the staged messages become visible, unless
    /// the write discards its run.
    pub open_run: Option<OpenRun>,
    /// The change of the service id that takes effect with this write. The change in a staged write
    /// takes effect only with the write that commits the run.
    pub service_id: Option<ServiceIdChange>,
    /// The new value of [`Head::load_from`], which takes effect with every write that is stored.
    /// `None` if the value does not change.
    pub load_from: Option<Arc<LoadFrom>>,
    /// If the write discards its run, the sequence number of the last remaining message. The store
    /// deletes all later messages and their rows, and does not store the messages of the write.
    pub discards_after: Option<u64>,
    /// The sequence numbers of the messages that exist after the write. The store ignores a row of
    /// the write if the number of its call's message is outside of this range.
    pub messages: RangeInclusive<u64>,
}

impl Changes {
    /// Returns the changes of a write to a conversation with this head. The write must be valid:
    /// [`decide`] has returned changes for it, or another store has acknowledged it.
    pub fn of(head: &Head, write: &Write) -> Self {
        let revision = write.result();
        let mut changes = Self {
            revision,
            open_run: None,
            service_id: write.service_id().cloned(),
            load_from: write.load_from().cloned(),
            discards_after: None,
            messages: head.pruned.saturating_add(1)..=revision.sequence,
        };
        let Some(staged) = write.as_staged() else { return changes };
        let open = head.open_run.clone();
        let mut open =
            open.unwrap_or_else(|| OpenRun::new(write.run(), staged.lease, head.revision.sequence));
        open.apply(staged);
        changes.service_id = None;
        match staged.close {
            None => changes.open_run = Some(open),
            Some(Close::Commit) => changes.service_id = open.service_id,
            Some(Close::Discard { visible }) => changes.discards_after = Some(visible),
        }
        changes
    }
}

/// Decides about a write to a conversation with this head. `last` is the largest sequence number
/// that the store can represent.
///
/// A store that decides in its database, and therefore cannot call this function, follows the same
/// rules.
///
/// ```
/// use std::convert::Infallible;
/// use tower_chat_core::{
///     ConversationKey, Message, MessageId, RunId,
///     store::{
///         Head, Revision, SequencePosition,
///         author::{CallState, Decision, LAST_SEQUENCE, Lookup, Write, decide},
///     },
/// };
///
/// /// An empty conversation.
/// struct Empty;
///
/// impl Lookup for Empty {
///     type Error = Infallible;
///
///     fn message_id(&mut self, _: u64) -> Result<Option<MessageId>, Infallible> {
///         Ok(None)
///     }
///
///     fn call(&mut self, _: SequencePosition) -> Result<Option<CallState>, Infallible> {
///         Ok(None)
///     }
/// }
///
/// let key = ConversationKey::new("alice", "support");
/// let id = MessageId { run: RunId::new(), index: 0 };
/// let mut head = Head::new(Revision::ABSENT);
/// let write = Write::new(key, id, head.revision, [Message::user("Hello.").into()]);
/// let Ok(Decision::Store(changes)) = decide(&head, &write, LAST_SEQUENCE, &mut Empty) else {
///     panic!("a first write is stored");
/// };
/// head.advance(&changes);
/// assert_eq!(head.revision, write.result());
/// ```
///
/// # Errors
///
/// If a lookup fails. The conversation was not changed.
pub fn decide<L: Lookup>(
    head: &Head,
    write: &Write,
    last: u64,
    lookup: &mut L,
) -> Result<Decision, L::Error> {
    if let Err(error) = write.check_range(last) {
        return Ok(Decision::Refuse(error));
    }
    if head.revision != write.expected() {
        return Ok(match is_stored(head, write, lookup)? {
            true => Decision::IsStored,
            false => Decision::Refuse(conflict(head, write)),
        });
    }
    if head.has_committed(write) {
        return Ok(Decision::IsStored);
    }
    if !head.admits(write) {
        return Ok(Decision::Refuse(conflict(head, write)));
    }
    for claim in write.claims() {
        if !is_valid(head, claim, lookup)? {
            let (key, call) = (write.key().clone(), claim.call);
            return Ok(Decision::Refuse(StoreError::Claimed { key, call }));
        }
    }
    Ok(Decision::Store(Changes::of(head, write)))
}

impl Head {
    /// Returns whether the open run, if there is one, admits a write. A conversation without an
    /// open run admits every write that does not discard a run.
    pub fn admits(&self, write: &Write) -> bool {
        match (&self.open_run, write.as_staged()) {
            (None, None) => true,
            (None, Some(staged)) => !matches!(staged.close, Some(Close::Discard { .. })),
            (Some(_), None) => false,
            (Some(open), Some(staged)) => open.admits(write.run(), staged),
        }
    }

    /// Returns whether a write is the repetition of an earlier write that had no messages and
    /// committed its run.
    pub fn has_committed(&self, write: &Write) -> bool {
        self.open_run.is_none()
            && write.close() == Some(Close::Commit)
            && write.result() == self.revision
    }

    /// Updates the head after a write was stored. Pending approvals are not changed.
    pub fn advance(&mut self, changes: &Changes) {
        self.revision = changes.revision;
        self.open_run.clone_from(&changes.open_run);
        match &changes.service_id {
            Some(ServiceIdChange::Set(id)) => self.service_id = Some(id.clone()),
            Some(ServiceIdChange::Clear) => self.service_id = None,
            None => {}
        }
        if let Some(from) = &changes.load_from {
            self.load_from = Some(from.clone());
        }
    }
}

/// Returns whether the first message of a write is stored at the position that the write expects. A
/// write without messages is considered stored as long as the conversation has the revision that
/// the write results in.
fn is_stored<L: Lookup>(head: &Head, write: &Write, lookup: &mut L) -> Result<bool, L::Error> {
    if write.messages().is_empty() {
        return Ok(head.revision == write.result());
    }
    let Some(sequence) = write.expected().sequence.checked_add(1) else { return Ok(false) };
    let is_same_incarnation = head.revision.incarnation == write.result().incarnation;
    Ok(is_same_incarnation && lookup.message_id(sequence)? == Some(write.id()))
}

fn conflict(head: &Head, write: &Write) -> StoreError {
    let conflict = Conflict::new(write.key().clone(), write.expected(), head.revision);
    Box::new(conflict.with_open_run(head.open_run.as_ref().map(|open| open.run))).into()
}

/// Returns whether a claim is valid; see [`Write::with_claims`].
fn is_valid<L: Lookup>(head: &Head, claim: &Claim, lookup: &mut L) -> Result<bool, L::Error> {
    let visible = head.open_run.as_ref().map_or(head.revision.sequence, |open| open.visible);
    let call = match claim.call.sequence <= visible {
        true => lookup.call(claim.call)?,
        false => None,
    };
    // Databases store times in milliseconds, so smaller differences are ignored.
    let started = |at: Option<SystemTime>| at.map(milliseconds::of);
    Ok(match call {
        Some(call) => {
            call.waits_for_approval && started(call.started_at) == started(claim.started_at)
        }
        None => claim.started_at.is_none(),
    })
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, time::Duration};

    use super::*;
    use crate::{
        ConversationKey, Message, RunId,
        store::{
            Lease, LeaseEnd,
            author::{LAST_SEQUENCE, Staged},
        },
    };

    fn first() -> RunId {
        RunId::from_bytes([1; 16])
    }

    fn second() -> RunId {
        RunId::from_bytes([2; 16])
    }

    /// A conversation whose messages belong to the first run, and whose third message has a call.
    struct Messages {
        call: Option<CallState>,
    }

    impl Lookup for Messages {
        type Error = Infallible;

        fn message_id(&mut self, sequence: u64) -> Result<Option<MessageId>, Infallible> {
            let index = u32::try_from(sequence.saturating_sub(1)).unwrap();
            Ok((1..=3).contains(&sequence).then_some(MessageId { run: first(), index }))
        }

        fn call(&mut self, call: SequencePosition) -> Result<Option<CallState>, Infallible> {
            Ok(self.call.filter(|_| call == CALL))
        }
    }

    const CALL: SequencePosition = SequencePosition { sequence: 3, index: 0 };
    const AT_3: Revision = Revision { incarnation: 7, sequence: 3 };

    fn write(run: RunId, index: u32, expected: Revision, texts: &[&str]) -> Write {
        let messages = texts.iter().map(|text| Message::user(*text).into());
        let key = ConversationKey::new("tests", "decide");
        Write::new(key, MessageId { run, index }, expected, messages)
    }

    fn staged(attempt: u32, holder: u64, close: Option<Close>) -> Staged {
        let lease =
            Lease { attempt, holder, renewed_at: SystemTime::UNIX_EPOCH, until: LeaseEnd::NotHeld };
        let service_id = Some(ServiceIdChange::Set("service".into()));
        Staged { lease, close, service_id, partial_text: None }
    }

    /// Returns the head of a conversation with two visible messages, and one staged message of an
    /// open run.
    fn open() -> Head {
        Head::new(AT_3).with_open_run(Some(OpenRun::new(second(), staged(1, 5, None).lease, 2)))
    }

    fn outcome(head: &Head, write: &Write) -> String {
        outcome_with(None, head, write)
    }

    fn outcome_with(call: Option<CallState>, head: &Head, write: &Write) -> String {
        let Ok(decision) = decide(head, write, LAST_SEQUENCE, &mut Messages { call });
        match decision {
            Decision::Store(changes) => {
                let Changes { open_run, service_id, discards_after, messages, .. } = changes;
                let open = if open_run.is_some() { ", open" } else { "" };
                let service = if service_id.is_some() { ", service id" } else { "" };
                let discards = discards_after.map(|after| format!(", discards after {after}"));
                format!("{messages:?}{open}{service}{}", discards.unwrap_or_default())
            }
            Decision::IsStored => "is stored".to_owned(),
            Decision::Refuse(StoreError::Conflict(conflict)) => match conflict.open_run {
                Some(_) => "conflict with the open run".to_owned(),
                None => "conflict".to_owned(),
            },
            Decision::Refuse(StoreError::Claimed { .. }) => "claimed".to_owned(),
            Decision::Refuse(error) => error.to_string(),
        }
    }

    #[test]
    fn a_write_is_stored_once_and_at_its_place() {
        let head = Head::new(AT_3).with_pruned(1);
        let before = Revision { sequence: 1, ..AT_3 };
        let other = Revision { incarnation: 8, sequence: 1 };
        for (write, expected) in [
            (write(second(), 0, AT_3, &["a", "b"]), "2..=5"),
            (write(first(), 1, before, &["a"]), "is stored"),
            (write(second(), 1, before, &["a"]), "conflict"),
            (write(first(), 2, before, &["a"]), "conflict"),
            (write(first(), 1, other, &["a"]), "conflict"),
            (write(first(), 3, Revision { sequence: 4, ..AT_3 }, &["a"]), "conflict"),
        ] {
            assert_eq!(outcome(&head, &write), expected, "{write:?}");
        }
    }

    #[test]
    fn an_open_run_admits_its_owner_and_later_attempts() {
        let commit = Some(Close::Commit);
        let discard = |visible| Some(Close::Discard { visible });
        let conflict = "conflict with the open run";
        for (run, staged, expected) in [
            (second(), staged(1, 5, None), "1..=4, open"),
            (second(), staged(1, 5, commit), "1..=4, service id"),
            (second(), staged(2, 6, None), "1..=4, open"),
            (second(), staged(1, 6, None), conflict),
            (first(), staged(2, 5, None), conflict),
            (second(), staged(1, 5, discard(2)), "1..=2, discards after 2"),
            (second(), staged(1, 5, discard(1)), conflict),
        ] {
            let write = write(run, 1, AT_3, &["a"]).staged(staged.clone());
            assert_eq!(outcome(&open(), &write), expected, "{run} {staged:?}");
        }
        assert_eq!(outcome(&open(), &write(second(), 1, AT_3, &["a"])), conflict);
        let none = write(second(), 1, AT_3, &[]).staged(staged(1, 5, discard(3)));
        assert_eq!(outcome(&Head::new(AT_3), &none), "conflict");
        let first = write(second(), 0, AT_3, &["a"]).staged(staged(1, 5, None));
        assert_eq!(outcome(&Head::new(AT_3), &first), "1..=4, open");
        let again = write(second(), 1, AT_3, &[]).staged(staged(1, 5, commit));
        assert_eq!(outcome(&Head::new(again.result()), &again), "is stored");
    }

    #[test]
    fn a_claim_is_valid_for_the_call_that_was_read() {
        let time = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let waits = |started_at| CallState { waits_for_approval: true, started_at };
        let runs = CallState { waits_for_approval: false, started_at: None };
        let submillisecond = Some(time(9) + Duration::from_nanos(9));
        let valid = "1..=4";
        for (call, started_at, expected) in [
            (None, None, valid),
            (None, Some(time(9)), "claimed"),
            (Some(waits(None)), None, valid),
            (Some(waits(None)), Some(time(9)), "claimed"),
            (Some(waits(Some(time(9)))), submillisecond, valid),
            (Some(waits(Some(time(8)))), Some(time(9)), "claimed"),
            (Some(runs), None, "claimed"),
        ] {
            let claims = vec![Claim { call: CALL, started_at }];
            let write = write(second(), 0, AT_3, &["a"]).with_claims(claims);
            assert_eq!(outcome_with(call, &Head::new(AT_3), &write), expected, "{call:?}");
        }
        // The message of the call is staged, so `decide` treats the call as one without a row.
        let claims = vec![Claim { call: CALL, started_at: None }];
        let write = write(second(), 1, AT_3, &[]).with_claims(claims).staged(staged(1, 5, None));
        assert_eq!(outcome_with(Some(runs), &open(), &write), "1..=3, open");
    }

    #[test]
    fn a_head_advances_to_the_changes() {
        let mut head = open();
        let commit = write(second(), 1, AT_3, &["a"]).staged(staged(1, 5, Some(Close::Commit)));
        head.advance(&Changes::of(&head, &commit));
        let service: Option<Arc<str>> = Some("service".into());
        assert_eq!(head, Head::new(commit.result()).with_service_id(service));
    }
}
