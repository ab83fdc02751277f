//! Compares the store with a [`MemoryStore`] after generated writes. Staged writes belong to an
//! open run, which is a run that is not committed yet. An attempt is one execution of a run.

use std::{env, sync::Arc};

use tower_chat_core::{
    MemoryStore, Message, MessageId, RunId, ToolStatus,
    store::{
        CallSelection, Capability, Head, HistoryStore, Lease, LeaseEnd, OpenRun, Revision,
        SequencePosition, ServiceIdChange, StoreError,
        author::{AppendError, Claim, Close, LAST_SEQUENCE, Staged, ToolRecord, Write},
    },
};

use super::{Store, fixture::*};
use crate::Rng;

const SEED: u64 = 20_261_126;

/// The number of generated conversations, unless `TOWER_CHAT_CASES` is set.
const CASES: u64 = 3;

/// The number of writes to a conversation.
const WRITES: usize = 40;

/// Generated writes have the same outcome as in a [`MemoryStore`], and result in the same
/// conversation. The memory store uses [`decide`](tower_chat_core::store::author::decide).
pub async fn generated_writes_are_decided_as_in_memory(store: Store) {
    let cases = env::var("TOWER_CHAT_CASES").ok().and_then(|cases| cases.parse().ok());
    for case in 0..cases.unwrap_or(CASES) {
        let reference: Store = Arc::new(MemoryStore::new());
        let mut generator = Generator {
            rng: Rng::of(SEED, case),
            case,
            runs: [RunId::new(), RunId::new(), RunId::new()],
            stages: has(&store, Capability::Journal),
            written: Vec::new(),
            calls: Vec::new(),
        };
        let key = key(&format!("generated {case}"));
        for number in 0..WRITES {
            let write = generator.write(&reference.head(&key).await.expect("a head"));
            let expected = outcome(&write, submit(&reference, vec![write.clone()]).await);
            let found = outcome(&write, submit(&store, vec![write.clone()]).await);
            assert_eq!(found, expected, "case {case}, write {number}: {write:#?}");
            let expected = state(&reference, &write).await;
            let found = state(&store, &write).await;
            assert_eq!(found, expected, "case {case}, after write {number}: {write:#?}");
        }
    }
}

fn outcome(write: &Write, of: Result<Revision, AppendError>) -> String {
    match of.map_err(|error| error.source) {
        Ok(revision) => format!("{revision:?}"),
        // If a number of the write is out of range, the errors are not compared: such a write may
        // break several rules, and each store may check another rule first.
        Err(_) if write.check_range(LAST_SEQUENCE).is_err() => "out of range".to_owned(),
        Err(StoreError::Conflict(conflict)) => {
            format!("conflict with {:?}, open run {:?}", conflict.found, conflict.open_run)
        }
        Err(StoreError::Claimed { call, .. }) => format!("{call:?} is claimed"),
        Err(error) => format!("refused, retryable {:?}", error.is_retryable()),
    }
}

/// Formats the state of a conversation that readers receive.
async fn state(store: &Store, write: &Write) -> String {
    let key = write.key();
    let head = store.head(key).await.expect("a head");
    let texts = texts(store, key).await;
    // A generated row of the record (one row for each tool call) may refer to a call that its
    // message does not contain. Both stores must report such a row as unreadable.
    let calls = store.calls(key, &CallSelection::All).await.expect("an answer");
    let open = match store.journal() {
        Some(journal) => journal.open_run(key).await.expect("an open run"),
        None => None,
    };
    let staged = open.map(|open| {
        let texts: Vec<String> = open.messages.iter().map(|message| message.text()).collect();
        (open.open, texts, open.tools)
    });
    format!("{head:#?}\n{texts:#?}\n{calls:#?}\n{staged:#?}")
}

struct Generator {
    rng: Rng,
    case: u64,
    runs: [RunId; 3],
    /// Whether the store supports open runs. Otherwise no staged writes are generated.
    stages: bool,
    written: Vec<Write>,
    /// The positions of the calls in generated messages. The store may have refused these messages.
    calls: Vec<SequencePosition>,
}

impl Generator {
    fn write(&mut self, head: &Head) -> Write {
        if self.rng.one_in(6)
            && let Some(earlier) = self.rng.one_of(&self.written)
        {
            return earlier.clone();
        }
        let expected = self.expected(head.revision);
        let run = match &head.open_run {
            Some(open) if !self.rng.one_in(6) => open.run,
            _ => self.runs[self.rng.below(3)],
        };
        let index = self.rng.one_of(&[0, 1, 2, 3, MessageId::LAST_INDEX]).copied().unwrap_or(0);
        let messages: Vec<Message> = (0..self.rng.below(4)).map(|_| self.message()).collect();
        let mut rows = self.rows_of(&messages, expected.sequence);
        if self.rng.one_in(3) {
            rows.extend(self.row_of_earlier_call());
        }
        let key = key(&format!("generated {}", self.case));
        let messages = messages.into_iter().map(Arc::new);
        let mut write = Write::new(key, MessageId { run, index }, expected, messages)
            .with_tools(rows)
            .with_claims(self.claims());
        if let Some(change) = self.service_id() {
            write = write.with_service_id(change);
        }
        let is_staged =
            if head.open_run.is_some() { !self.rng.one_in(6) } else { self.rng.one_in(4) };
        if self.stages && is_staged {
            write = write.staged(self.staged(head.open_run.as_ref()));
            if head.open_run.is_none() || self.rng.one_in(4) {
                write = write.beginning_attempt();
            }
        }
        self.written.push(write.clone());
        write
    }

    /// Returns the revision that a write expects. In most cases this is the current revision.
    fn expected(&mut self, current: Revision) -> Revision {
        let sequence = current.sequence;
        match self.rng.below(16) {
            0 => Revision { sequence: sequence.saturating_sub(1), ..current },
            1 => Revision { incarnation: current.incarnation ^ 1, ..current },
            2 => Revision { sequence: u64::MAX - 10, ..current },
            3 => Revision::ABSENT,
            _ => current,
        }
    }

    fn message(&mut self) -> Message {
        match self.rng.below(3) {
            0 => asking(&["weather", "map"]),
            _ => Message::user(format!("text {}", self.rng.next())),
        }
    }

    /// Returns a row for each call in `messages`, which follow the sequence number `before`.
    fn rows_of(&mut self, messages: &[Message], before: u64) -> Vec<ToolRecord> {
        let mut rows = Vec::new();
        for (message, sequence) in messages.iter().zip(before.saturating_add(1)..) {
            for (index, call) in (0..).zip(message.asked_calls()) {
                let mut row = pending(sequence, index, &call.name);
                if self.rng.one_in(2) {
                    row.status = ToolStatus::PendingApproval;
                }
                if sequence <= LAST_SEQUENCE {
                    self.calls.push(row.call);
                }
                rows.push(row);
            }
        }
        rows
    }

    /// Returns another row for an earlier call. The store must ignore the row if it has not stored
    /// the message of the call.
    fn row_of_earlier_call(&mut self) -> Option<ToolRecord> {
        let call = *self.rng.one_of(&self.calls)?;
        let mut row = pending(call.sequence, call.index, "weather");
        match self.rng.below(3) {
            0 => row.status = ToolStatus::PendingApproval,
            1 => {
                row.status = ToolStatus::PendingApproval;
                row.started_at = Some(at(5));
            }
            _ => row = with_times(row, 5, 6),
        }
        Some(row)
    }

    fn claims(&mut self) -> Vec<Claim> {
        let mut claims = Vec::new();
        while self.rng.one_in(5) {
            let started_at = self.rng.one_in(3).then(|| at(5));
            let call = self.rng.one_of(&self.calls);
            claims.extend(call.map(|call| Claim { call: *call, started_at }));
        }
        claims
    }

    fn service_id(&mut self) -> Option<ServiceIdChange> {
        match self.rng.below(8) {
            0 => Some(ServiceIdChange::Set(format!("service {}", self.rng.below(3)).into())),
            1 => Some(ServiceIdChange::Clear),
            _ => None,
        }
    }

    /// Returns the properties of a staged write. In most cases, the write belongs to the current
    /// attempt of the open run.
    fn staged(&mut self, open: Option<&OpenRun>) -> Staged {
        let (mut attempt, mut holder) =
            open.map_or((1, 1), |open| (open.lease.attempt, open.lease.holder));
        if self.rng.one_in(6) {
            (attempt, holder) = (attempt + 1, holder + 1);
        }
        if self.rng.one_in(8) {
            holder += 1;
        }
        let visible = open.map_or(0, |open| open.visible);
        let close = match self.rng.below(8) {
            0 | 1 => Some(Close::Commit),
            2 => Some(Close::Discard { visible }),
            3 => Some(Close::Discard { visible: visible.saturating_add(1) }),
            _ => None,
        };
        let until = match self.rng.below(3) {
            0 => LeaseEnd::NotHeld,
            1 => LeaseEnd::Abandoned,
            _ => LeaseEnd::At(at(2_000_000_000_000)),
        };
        let renewed_at = at(1_750_000_000_000 + self.rng.below(1_000) as u64);
        let lease = Lease { attempt, holder, renewed_at, until };
        Staged { lease, close, service_id: self.service_id(), partial_text: None }
    }
}
