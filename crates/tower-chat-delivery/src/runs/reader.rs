//! Readers of a run, in any process.
//!
//! An *attempt* is one execution of a run. If the run has failed or its process died, its request
//! can be sent again, which begins the next attempt. The process of an attempt must renew the
//! *lease* of the run, a time limit. In the process of the run, readers receive updates through the
//! *hub* of the run; in other processes, readers read the update log (*the log*).

use std::{collections::VecDeque, sync::Arc};

use futures_util::{Stream, stream};
use tower_chat_layers::{BoxError, ChatUpdate, Retryability, SharedError};

use super::{
    Shared,
    hub::{Available, HubReader},
    task::{MAX_WAIT, PAGE},
    update::LoggedUpdate,
};
use crate::{DeliveryError, RunEnd, RunKey, RunState, UpdateLogError, UpdatePosition};

/// An event that a reader of a run receives.
///
/// ```
/// use tower_chat_delivery::RunEvent;
/// use tower_chat_layers::ChatUpdate;
///
/// fn show(event: RunEvent, text: &mut String) {
///     match event {
///         RunEvent::Update { update: ChatUpdate::TextDelta(delta), .. } => text.push_str(&delta),
///         RunEvent::Restarted { .. } => text.clear(), // the unfinished message begins anew
///         RunEvent::Update { .. } | RunEvent::Ended(_) | _ => {}
///     }
/// }
/// # use tower_chat_delivery::UpdatePosition;
/// # let mut text = String::new();
/// # let (position, update) = (UpdatePosition::new(1, 0), ChatUpdate::TextDelta("hi".to_owned()));
/// # show(RunEvent::Update { position, update }, &mut text);
/// # assert_eq!(text, "hi");
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum RunEvent {
    /// An update of the response. If the update is a message, the message replaces all messages of
    /// the run that the reader has received with the same or a later
    /// [index](tower_chat_layers::MessageId::index).
    ///
    /// If the run is executed in another process, the [`Finish`](tower_chat_layers::Finish) has no
    /// [`history_owner`](tower_chat_layers::Finish::history_owner), no
    /// [`changes`](tower_chat_layers::Finish::changes) and no
    /// [`recovered`](tower_chat_layers::Finish::recovered) run.
    Update {
        /// The position.
        position: UpdatePosition,
        /// The update.
        update: ChatUpdate,
    },
    /// A later attempt continues the run, because the earlier attempt has failed, or its process
    /// died or lost its lease. The reader must discard the deltas of the unfinished message,
    /// because the later attempt sends this message again from its beginning. Complete messages
    /// remain valid, and are not sent again. If the later attempt sends deltas of a message that
    /// the reader has already received completely, it sends this event once more, and the reader
    /// must discard these deltas too.
    ///
    /// In per-run mode, the messages of a run are stored at the end of the run, and a later attempt
    /// repeats the whole run. Each message of the new attempt replaces the messages of earlier
    /// attempts with the same or a later index. If the new attempt sends fewer messages, for
    /// example because it is stopped, the reader has received messages that the history does not
    /// contain. A reader of such a run should therefore load the history after the end of the run.
    Restarted {
        /// The position.
        position: UpdatePosition,
        /// The number of the attempt.
        attempt: u32,
    },
    /// The run has ended. No other event follows.
    Ended(RunEnd),
}

/// A reader of a run, which receives the updates that were sent before the reader attached, and
/// then each new update.
///
/// Dropping a reader, or reading slowly, affects neither the run nor other readers.
/// [`DetachedRunsLayer::attach`](crate::DetachedRunsLayer::attach) creates readers. The
/// documentation of that layer contains an example.
#[derive(Debug)]
pub struct RunReader {
    follower: Follower,
    is_ended: bool,
}

impl RunReader {
    pub(super) fn new(follower: Follower) -> Self {
        Self { follower, is_ended: false }
    }

    /// Returns a reader that never writes to the update log. If the lease of the run expires, such
    /// a reader also receives [`RunEnd::Interrupted`], but does not close the run in the log.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.follower.is_read_only = true;
        self
    }

    /// Returns the next event; `None` after [`RunEvent::Ended`] or an error. This method is cancel
    /// safe: if its future is dropped, no event is lost.
    pub async fn next(&mut self) -> Option<Result<RunEvent, DeliveryError>> {
        while !self.is_ended {
            let event = match self.follower.next().await {
                Ok(Followed::Update(position, LoggedUpdate::Chat(update))) => {
                    Ok(RunEvent::Update { position, update })
                }
                Ok(Followed::Update(position, LoggedUpdate::Restarted)) => {
                    Ok(RunEvent::Restarted { position, attempt: position.attempt })
                }
                Ok(Followed::Update(_, LoggedUpdate::Repeated(_))) => continue,
                Ok(Followed::Ended { end, error: _ }) => {
                    self.is_ended = true;
                    Ok(RunEvent::Ended(end))
                }
                Err(error) => {
                    self.is_ended = true;
                    Err(error)
                }
            };
            return Some(event);
        }
        None
    }
}

/// Returns the response of one attempt at a run, for a caller whose request has begun the run or
/// belongs to a run in progress.
pub(super) fn response(
    follower: Follower,
    attempt: u32,
) -> impl Stream<Item = Result<ChatUpdate, BoxError>> + Send {
    stream::unfold(Some(follower), move |follower| async move {
        let mut follower = follower?;
        let update = next_of_response(&mut follower, attempt).await?;
        let is_last = matches!(update, Err(_) | Ok(ChatUpdate::Finish(_)));
        Some((update.map_err(Into::into), (!is_last).then_some(follower)))
    })
}

async fn next_of_response(
    follower: &mut Follower,
    attempt: u32,
) -> Option<Result<ChatUpdate, DeliveryError>> {
    let run = follower.run.clone();
    let interrupted =
        |run| Some(Err(DeliveryError::Interrupted { run, source: Retryability::Retryable }));
    loop {
        match follower.next().await {
            Ok(Followed::Update(_, LoggedUpdate::Chat(update))) => return Some(Ok(update)),
            Ok(Followed::Update(_, LoggedUpdate::Repeated(message))) => {
                return Some(Ok(ChatUpdate::Message(message)));
            }
            // A later attempt has begun, and a response cannot begin again.
            Ok(Followed::Update(position, LoggedUpdate::Restarted)) => {
                if position.attempt > attempt {
                    return interrupted(run);
                }
            }
            Ok(Followed::Ended { end: RunEnd::Failed { message }, error }) => {
                let source = error.unwrap_or_else(|| SharedError::new(message));
                return Some(Err(DeliveryError::Failed { run, source }));
            }
            Ok(Followed::Ended { end: RunEnd::Interrupted, .. }) => return interrupted(run),
            Ok(Followed::Ended { end: RunEnd::Truncated, .. }) => {
                let source = Retryability::Retryable;
                return Some(Err(DeliveryError::Truncated { run, source }));
            }
            Ok(Followed::Ended { end: RunEnd::Completed, .. }) => return None,
            Err(error) => return Some(Err(error)),
        }
    }
}

/// The next update of a run after the position of a follower, or the end of the run.
pub(super) enum Followed {
    Update(UpdatePosition, LoggedUpdate),
    Ended { end: RunEnd, error: Option<SharedError> },
}

/// Receives the updates of a run from its hub if there is one, and otherwise from the log.
#[derive(Debug)]
pub(super) struct Follower {
    shared: Arc<Shared>,
    run: RunKey,
    /// The position of the last update that was received.
    after: UpdatePosition,
    received: VecDeque<(UpdatePosition, LoggedUpdate)>,
    hub: Option<HubReader>,
    /// Whether the end of the response was returned.
    is_finished: bool,
    /// Whether the follower must not close a run whose lease has expired.
    is_read_only: bool,
}

impl Follower {
    pub(super) fn new(
        shared: Arc<Shared>,
        run: RunKey,
        after: UpdatePosition,
        hub: Option<HubReader>,
    ) -> Self {
        Self {
            shared,
            run,
            after,
            received: VecDeque::new(),
            hub,
            is_finished: false,
            is_read_only: false,
        }
    }

    /// Returns the next update, or the end of the run. If the future is dropped, no update is lost.
    pub(super) async fn next(&mut self) -> Result<Followed, DeliveryError> {
        loop {
            if self.is_finished {
                return Ok(Followed::Ended { end: RunEnd::Completed, error: None });
            }
            if let Some((position, update)) = self.received.pop_front() {
                self.is_finished = matches!(update, LoggedUpdate::Chat(ChatUpdate::Finish(_)));
                return Ok(Followed::Update(position, update));
            }
            if self.hub.is_none() {
                self.hub = self.shared.hub(&self.run).map(|hub| hub.reader());
            }
            let ended = match &self.hub {
                Some(_) => self.follow_hub().await?,
                None => self.follow_log().await?,
            };
            if let Some((end, error)) = ended {
                return Ok(Followed::Ended { end, error });
            }
        }
    }

    /// Receives updates from the hub, or waits for them. Returns the end of the run when it is
    /// reached.
    async fn follow_hub(&mut self) -> Result<Option<(RunEnd, Option<SharedError>)>, DeliveryError> {
        let Some(reader) = &mut self.hub else { return Ok(None) };
        match reader.hub.available(self.after) {
            Available::Updates(updates) => self.receive(updates),
            Available::Nothing => reader.changed().await,
            Available::InLog => self.hub = None,
            Available::Ended { end, error } => return Ok(Some((end, error))),
            Available::Behind { first } => {
                let page = self.shared.log.read(&self.run, self.after, PAGE).await?;
                let before = page.updates.iter().take_while(|update| update.position < first);
                let updates = before
                    .map(|positioned| {
                        let update = self.shared.decode(&self.run, positioned)?;
                        Ok((positioned.position, update))
                    })
                    .collect::<Result<Vec<_>, UpdateLogError>>()?;
                match page.state {
                    RunState::Unknown if page.updates.is_empty() => {
                        return Err(DeliveryError::UnknownRun { run: self.run.clone() });
                    }
                    // The run is complete. The task of the run only repeats the response for one
                    // caller.
                    RunState::Closed { attempt, end }
                        if page.updates.is_empty() && attempt < first.attempt =>
                    {
                        return Ok(Some((end, None)));
                    }
                    _ => {}
                }
                if updates.is_empty() {
                    // The log contains all updates before the window of the hub. The read has
                    // returned none, and the follower therefore continues at the window.
                    self.after = self.after.max(first.previous());
                }
                self.receive(updates);
            }
        }
        Ok(None)
    }

    /// Receives updates from the log, or waits for them. Returns the end of the run when it is
    /// reached.
    async fn follow_log(&mut self) -> Result<Option<(RunEnd, Option<SharedError>)>, DeliveryError> {
        let log = self.shared.log.clone();
        let page = log.read(&self.run, self.after, PAGE).await?;
        if !page.updates.is_empty() {
            let updates = page.updates.iter().map(|positioned| {
                Ok((positioned.position, self.shared.decode(&self.run, positioned)?))
            });
            let updates = updates.collect::<Result<Vec<_>, UpdateLogError>>()?;
            self.receive(updates);
            return Ok(None);
        }
        match page.state {
            RunState::Open { .. } => log.wait(&self.run, self.after, MAX_WAIT).await?,
            RunState::Closed { end, .. } => return Ok(Some((end, None))),
            RunState::Unknown => {
                return Err(DeliveryError::UnknownRun { run: self.run.clone() });
            }
            RunState::LeaseExpired { .. } if self.is_read_only => {
                return Ok(Some((RunEnd::Interrupted, None)));
            }
            // The next read returns the new state.
            RunState::LeaseExpired { .. } => {
                log.interrupt(&self.run).await?;
            }
        }
        Ok(None)
    }

    fn receive(&mut self, updates: Vec<(UpdatePosition, LoggedUpdate)>) {
        if let Some((last, _)) = updates.last() {
            self.after = *last;
        }
        self.received.extend(updates);
    }
}
