//! A client that chooses its operations at random. Another client can take over its journaled run
//! when the lease of the run has expired.

use std::time::{Duration, SystemTime};

use tower_chat_core::{
    Message, MessageId, RunId,
    store::{
        Head, HistorySummary, Lease, LeaseEnd, Revision,
        author::{Close, OpenRunContent, Staged, Write},
    },
};
use tower_chat_testkit::Rng;

use super::{
    event::Response,
    operations::{Acknowledgement, Operations},
};

/// The conversation that most operations use.
const MAIN: &str = "main";
const COPIES: [&str; 2] = ["copy-1", "copy-2"];

#[derive(Debug)]
pub(super) struct Client {
    operations: Operations,
    rng: Rng,
    name: String,
    holder: u64,
    /// How far the clock of the client is ahead (`fast_by`) or behind (`slow_by`). At least one of
    /// the two is zero.
    fast_by: Duration,
    slow_by: Duration,
    texts: u32,
    /// The last revision of the main conversation that the client has received.
    known: Revision,
    journal: Option<Journal>,
    /// A write with an unknown outcome.
    unacknowledged: Option<Write>,
    /// The last summary that this client has tried to add.
    summary: Option<HistorySummary>,
}

/// The open run of this client (neither committed nor discarded), as of its last acknowledged
/// write.
#[derive(Debug, Clone, Copy)]
struct Journal {
    run: RunId,
    attempt: u32,
    index: u32,
    visible: u64,
    at: Revision,
}

impl Client {
    pub(super) fn new(operations: Operations, mut rng: Rng, name: String) -> Self {
        let holder = rng.next();
        Self {
            operations,
            rng,
            name,
            holder,
            fast_by: Duration::ZERO,
            slow_by: Duration::ZERO,
            texts: 0,
            known: Revision::ABSENT,
            journal: None,
            unacknowledged: None,
            summary: None,
        }
    }

    /// Performs this many operations, and then waits for those whose acknowledgement is late.
    pub(super) async fn run(mut self, operations: usize) {
        for _ in 0..operations {
            if self.rng.one_in(4) {
                self.step_clock();
            }
            self.act().await;
        }
        self.operations.wait_for_late().await;
    }

    async fn act(&mut self) {
        if let Some(write) = self.unacknowledged.take() {
            match self.rng.below(4) {
                0 => self.journal = None,
                _ => return self.submit(write).await,
            }
        }
        match self.journal {
            Some(journal) if !self.rng.one_in(5) => self.continue_run(journal).await,
            Some(_) | None => self.start_operation().await,
        }
    }

    async fn start_operation(&mut self) {
        match self.rng.below(24) {
            0..6 => self.append().await,
            6..9 => self.open().await,
            9..12 => self.take_over().await,
            12..14 => {
                let key = self.any_key();
                let history = self.operations.load(key).await;
                self.learn(key, history.map(|history| history.head));
            }
            14..16 => {
                let key = self.any_key();
                let head = self.operations.head(key).await;
                self.learn(key, head);
            }
            16 | 17 => self.fork().await,
            18 => {
                let (keep, lost) = (self.rng.below(4) as u64, self.acknowledgement());
                self.operations.prune(MAIN, keep, lost).await;
            }
            19..22 => self.summarize().await,
            22 => {
                let head = self.operations.head(MAIN).await;
                let summary = head.and_then(|head| head.summary).map(|summary| summary.id);
                let own = self.summary.as_ref().map(|summary| summary.id);
                let lost = self.received_or_late();
                if let Some(summary) = summary.or(own) {
                    self.operations.undo(MAIN, summary, lost).await;
                }
            }
            _ => {
                let key = self.any_key();
                let lost = self.acknowledgement();
                self.operations.delete(key, lost).await;
            }
        }
    }

    async fn append(&mut self) {
        let (id, count) = (MessageId { run: RunId::new(), index: 0 }, 1 + self.rng.below(2));
        let write = self.write(id, self.known, count);
        self.submit(write).await;
    }

    async fn open(&mut self) {
        let (run, at) = (RunId::new(), self.known);
        let count = 1 + self.rng.below(2);
        let write = self.write(MessageId { run, index: 0 }, at, count);
        let write = write.staged(self.staged(1, None)).beginning_attempt();
        self.journal = Some(Journal { run, attempt: 1, index: 0, visible: at.sequence, at });
        self.submit(write).await;
    }

    async fn take_over(&mut self) {
        let Some(content) = self.operations.open_run(MAIN).await else { return };
        self.known = content.head.revision;
        if content.open.is_held_at(self.now()) {
            return;
        }
        let OpenRunContent { head, open, messages, .. } = content;
        let attempt = open.lease.attempt + 1;
        let journal = Journal {
            run: open.run,
            attempt,
            index: u32::try_from(messages.len()).unwrap_or(u32::MAX),
            visible: open.visible,
            at: head.revision,
        };
        let (id, count) = (MessageId { run: journal.run, index: journal.index }, self.rng.below(2));
        let write = self.write(id, journal.at, count);
        let close = self.rng.one_in(6).then_some(Close::Discard { visible: journal.visible });
        let write = write.staged(self.staged(attempt, close)).beginning_attempt();
        self.journal = Some(journal);
        self.submit(write).await;
    }

    /// Submits a write of the open run. It stores a message, only renews the lease, or ends the
    /// run.
    async fn continue_run(&mut self, journal: Journal) {
        let (count, close) = match self.rng.below(8) {
            0..3 => (1, None),
            3 => (0, None),
            4 => (0, Some(Close::Commit)),
            5 | 6 => (1, Some(Close::Commit)),
            _ => (0, Some(Close::Discard { visible: journal.visible })),
        };
        let id = MessageId { run: journal.run, index: journal.index };
        let write = self.write(id, journal.at, count);
        let write = write.staged(self.staged(journal.attempt, close));
        self.submit(write).await;
    }

    async fn fork(&mut self) {
        let [one, other] = match self.rng.below(3) {
            0 => [MAIN, COPIES[0]],
            1 => [MAIN, COPIES[1]],
            _ => COPIES,
        };
        // The acknowledgement of a fork is never lost, because the checker needs the incarnation of
        // the copy (a random number).
        let lost = self.received_or_late();
        let length = usize::try_from(self.known.sequence).unwrap_or(usize::MAX);
        let before = (!self.rng.one_in(3)).then(|| 1 + self.rng.below(length + 1) as u64);
        self.operations.fork(one, before, other, lost).await;
    }

    /// Adds a summary of the first messages, or the last summary of this client again.
    async fn summarize(&mut self) {
        if self.summary.is_none() || self.rng.one_in(2) {
            let Some(history) = self.operations.load(MAIN).await else { return };
            self.known = history.head.revision;
            let chosen = self.rng.below(history.messages.len());
            let Some(last) = history.messages.get(chosen).and_then(|message| message.id) else {
                return;
            };
            let covers_to = history.head.pruned + chosen as u64 + 1;
            self.summary = Some(HistorySummary::new(covers_to, last, format!("to {covers_to}")));
        }
        // The acknowledgement is never lost, because the checker tries every position of a change
        // with an unknown outcome. The check of one history could take minutes.
        let lost = self.received_or_late();
        if let Some(summary) = &self.summary {
            self.operations.summarize(MAIN, summary, lost).await;
        }
    }

    /// Submits a write, and updates the state of the client.
    async fn submit(&mut self, write: Write) {
        let lost = self.acknowledgement();
        match self.operations.append(&write, lost).await {
            Some(Response::Stored(_)) => {
                self.known = write.result();
                let is_mine = self.journal.is_some_and(|journal| journal.run == write.run());
                if let Some(journal) = self.journal.as_mut().filter(|_| is_mine) {
                    journal.at = write.result();
                    journal.index += u32::try_from(write.messages().len()).unwrap_or_default();
                }
                if write.close().is_some() {
                    self.journal = None;
                }
            }
            Some(Response::Conflict { found, .. }) => {
                self.known = Revision { incarnation: found.incarnation, sequence: found.sequence };
                self.journal = None;
            }
            Some(_) | None => self.unacknowledged = Some(write),
        }
    }

    fn write(&mut self, id: MessageId, expected: Revision, count: usize) -> Write {
        let messages: Vec<_> = (0..count)
            .map(|_| {
                self.texts += 1;
                Message::user(format!("{} {}", self.name, self.texts)).into()
            })
            .collect();
        Write::new(self.operations.key(MAIN), id, expected, messages)
    }

    fn staged(&mut self, attempt: u32, close: Option<Close>) -> Staged {
        let now = self.now();
        let until = match self.rng.below(8) {
            0 => LeaseEnd::NotHeld,
            1 => LeaseEnd::Abandoned,
            milliseconds => LeaseEnd::At(now + Duration::from_millis(milliseconds as u64 * 2)),
        };
        let lease = Lease { attempt, holder: self.holder, renewed_at: now, until };
        Staged { lease, close, service_id: None, partial_text: None }
    }

    fn learn(&mut self, key: &str, head: Option<Head>) {
        if let Some(head) = head.filter(|_| key == MAIN) {
            self.known = head.revision;
        }
    }

    fn acknowledgement(&mut self) -> Acknowledgement {
        match self.rng.below(10) {
            0 => Acknowledgement::Late,
            1 => Acknowledgement::Lost { polls: self.rng.below(3) },
            _ => Acknowledgement::Received,
        }
    }

    fn received_or_late(&mut self) -> Acknowledgement {
        match self.acknowledgement() {
            Acknowledgement::Lost { .. } => Acknowledgement::Late,
            other => other,
        }
    }

    fn any_key(&mut self) -> &'static str {
        match self.rng.below(5) {
            0 => COPIES[0],
            1 => COPIES[1],
            _ => MAIN,
        }
    }

    fn step_clock(&mut self) {
        let step = Duration::from_millis(1 + self.rng.below(30_000) as u64);
        (self.fast_by, self.slow_by) = match self.rng.below(3) {
            0 => (step, Duration::ZERO),
            1 => (Duration::ZERO, step),
            _ => (Duration::ZERO, Duration::ZERO),
        };
    }

    fn now(&self) -> SystemTime {
        SystemTime::now() + self.fast_by - self.slow_by
    }
}

pub(super) async fn read_all(operations: &Operations) {
    for key in [MAIN, COPIES[0], COPIES[1]] {
        operations.load(key).await;
        operations.open_run(key).await;
    }
}
