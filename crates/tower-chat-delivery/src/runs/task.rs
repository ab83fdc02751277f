//! The task that executes a run, sends its updates to readers and appends them to the log.
//!
//! An *attempt* is one execution of a run. If the run has failed or its process died, the request
//! can be sent again. The next attempt then begins. The task sends the updates of an attempt to the
//! *hub*, from which readers in this process receive the updates, and appends the updates to the
//! update log (*the log*), which other processes read. While the run is in progress, the task
//! renews the *lease* of the run in the log, a time limit that shows other processes that this
//! process is alive.

use std::{
    collections::HashMap, error::Error, future::pending, pin::Pin, sync::Arc, time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::time::{Instant, Sleep, sleep_until};
use tower_chat_layers::{
    BoxError, ChatRequest, ChatResponse, ChatUpdate, EndedBy, Message, MessageId, SharedError,
    TruncatedStream, run::FencedAttempt,
};
use tower_service::Service;

use super::{
    Shared,
    hub::{Hub, Phase},
    update::LoggedUpdate,
};
use crate::{Renewed, RunEnd, RunKey, RunState, UpdateLogError, UpdatePosition};

/// When this number of consecutive appends has failed after the end of a run, the task gives up.
const MAX_FAILURES_AT_END: u32 = 5;
/// The maximum number of updates that one read of the log returns.
pub(super) const PAGE: usize = 256;

/// The task that executes a run. A process has at most one task for each run.
pub(super) struct RunTask {
    shared: Arc<Shared>,
    run: RunKey,
    hub: Arc<Hub>,
    /// The last phase of the run; `None` if the task was aborted or has panicked.
    last: Option<Phase>,
}

type Earlier = HashMap<MessageId, Arc<Message>>;

/// The result of [`RunTask::begin`].
enum Beginning {
    /// This process executes the attempt. `earlier` contains the messages of earlier attempts.
    Here { attempt: u32, earlier: Earlier },
    /// Another process executes the run.
    Elsewhere { attempt: u32 },
    /// The attempt with this number has sent the complete response of the run. Only the caller
    /// receives the repeated response.
    Repeated { attempt: u32, is_stopped: bool },
}

impl RunTask {
    pub(super) fn new(shared: Arc<Shared>, run: RunKey, hub: Arc<Hub>) -> Self {
        Self { shared, run, hub, last: None }
    }

    pub(super) async fn execute<S>(mut self, service: S, request: ChatRequest)
    where
        S: Service<ChatRequest, Response = ChatResponse>,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
    {
        self.last = Some(self.attempt(service, request).await);
    }

    /// Executes an attempt to its end, and returns the last phase of the run.
    async fn attempt<S>(&self, service: S, mut request: ChatRequest) -> Phase
    where
        S: Service<ChatRequest, Response = ChatResponse>,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
    {
        let (attempt, earlier) = match self.begin().await {
            Ok(Beginning::Here { attempt, earlier }) => (attempt, earlier),
            Ok(Beginning::Elsewhere { attempt }) => return Phase::Elsewhere { attempt },
            Ok(Beginning::Repeated { attempt, is_stopped }) => {
                if is_stopped {
                    // The layers below must not continue a stopped run. The history may not show
                    // the stop, for example because the process died before the end of the run was
                    // stored.
                    self.hub.handle.stop();
                }
                return self.repeat(service, request, attempt).await;
            }
            Err(error) => return failed(error),
        };
        if attempt > 1 {
            // The process of an earlier attempt may still be running, if it has only lost its
            // lease. With this extension, the store accepts the writes of only one of the attempts.
            request.extensions.insert(FencedAttempt::new());
        }
        self.hub.begin(attempt);
        let progress = Progress::new(self, RunResponse::of(service, request), attempt, earlier);
        let (end, error) = progress.run(attempt).await;
        Phase::Ended { end, error }
    }

    /// Sends the request of a complete run again, for its caller only: the log does not change, and
    /// other readers do not receive the response. The layers below return the stored answer. If the
    /// store does not contain the run, these layers execute the run again.
    async fn repeat<S>(&self, service: S, request: ChatRequest, attempt: u32) -> Phase
    where
        S: Service<ChatRequest, Response = ChatResponse>,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
    {
        self.shared.remove(&self.run, &self.hub);
        self.hub.begin(attempt.saturating_add(1));
        self.hub.log_lost();
        let response = RunResponse::of(service, request);
        let progress = Progress::new(self, response, attempt, Earlier::default());
        let (end, error) = Progress { is_log_lost: true, ..progress }.run(attempt).await;
        Phase::Ended { end, error }
    }

    /// Begins the next attempt, unless another process executes the run.
    async fn begin(&self) -> Result<Beginning, UpdateLogError> {
        let (log, run) = (&self.shared.log, &self.run);
        loop {
            let state = log.read(run, UpdatePosition::START, 0).await?.state;
            match state {
                RunState::Open { attempt, .. } => return Ok(Beginning::Elsewhere { attempt }),
                RunState::Closed { attempt, end: RunEnd::Completed } => {
                    let is_stopped = self.was_stopped().await?;
                    return Ok(Beginning::Repeated { attempt, is_stopped });
                }
                // If the end is `Truncated`, the log receives the stored answer in the next attempt.
                RunState::Unknown | RunState::LeaseExpired { .. } | RunState::Closed { .. } => {}
            }
            let attempt = state.attempt().saturating_add(1);
            match log.begin(run, attempt, self.shared.settings.lease).await {
                Ok(()) if attempt == 1 => {
                    return Ok(Beginning::Here { attempt, earlier: Earlier::default() });
                }
                Ok(()) => match self.earlier().await {
                    Ok(earlier) => return Ok(Beginning::Here { attempt, earlier }),
                    Err(error) => {
                        self.close_failed(attempt, &error).await;
                        return Err(error);
                    }
                },
                // Another process has begun this attempt after the read.
                Err(UpdateLogError::NotOwner { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns whether a stop ended the run.
    async fn was_stopped(&self) -> Result<bool, UpdateLogError> {
        let mut is_stopped = false;
        let mut after = UpdatePosition::START;
        loop {
            let page = self.shared.log.read(&self.run, after, PAGE).await?;
            let Some(last) = page.updates.last() else { return Ok(is_stopped) };
            after = last.position;
            for positioned in &page.updates {
                if let LoggedUpdate::Chat(ChatUpdate::Finish(finish)) =
                    self.shared.decode(&self.run, positioned)?
                {
                    is_stopped = finish.ended_by == Some(EndedBy::Stop);
                }
            }
        }
    }

    /// Returns the messages of earlier attempts that no later message has replaced.
    async fn earlier(&self) -> Result<Earlier, UpdateLogError> {
        let mut earlier = Earlier::default();
        let mut after = UpdatePosition::START;
        loop {
            let page = self.shared.log.read(&self.run, after, PAGE).await?;
            let Some(last) = page.updates.last() else { return Ok(earlier) };
            after = last.position;
            for positioned in &page.updates {
                let update = self.shared.decode(&self.run, positioned)?;
                if let LoggedUpdate::Chat(ChatUpdate::Message(message)) = update
                    && let Some(id) = message.id
                {
                    // A message replaces all earlier messages of its run with the same or a later
                    // index.
                    earlier.retain(|sent, _| sent.run != id.run || sent.index < id.index);
                    earlier.insert(id, message);
                }
            }
        }
    }

    /// Closes, in the log, an attempt that has failed before its first update.
    async fn close_failed(&self, attempt: u32, error: &UpdateLogError) {
        let end = RunEnd::Failed { message: error.to_string() };
        let first = UpdatePosition::new(attempt, 0);
        if let Err(error) = self.shared.log.append(&self.run, first, &[], Some(&end)).await {
            self.warn(&error, "the end of a run was not stored in the update log");
        }
    }

    fn warn(&self, error: &UpdateLogError, what: &'static str) {
        let error = error as &(dyn std::error::Error + 'static);
        tracing::warn!(run = %self.run.run, conversation = %self.run.conversation, error, what);
    }
}

impl Drop for RunTask {
    /// Removes the run from the registry before its readers receive the end, so that a caller that
    /// receives a failure can send its request again immediately.
    fn drop(&mut self) {
        self.shared.task_ended(&self.run, &self.hub);
        let interrupted = Phase::Ended { end: RunEnd::Interrupted, error: None };
        self.hub.enter(self.last.take().unwrap_or(interrupted));
    }
}

fn failed(error: impl Into<BoxError>) -> Phase {
    let error = SharedError::new(error);
    let end = RunEnd::Failed { message: error.to_string() };
    Phase::Ended { end, error: Some(error) }
}

/// The response of a run.
enum RunResponse {
    Calling(BoxFuture<'static, Result<ChatResponse, BoxError>>),
    Responding(ChatResponse),
}

impl RunResponse {
    /// Calls the service.
    fn of<S>(mut service: S, request: ChatRequest) -> Self
    where
        S: Service<ChatRequest, Response = ChatResponse>,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
    {
        let call = service.call(request);
        Self::Calling(Box::pin(async move { call.await.map_err(Into::into) }))
    }

    /// Returns the next update. If the future is dropped, no update is lost.
    async fn next(&mut self, hub: &Hub) -> Option<Result<ChatUpdate, BoxError>> {
        loop {
            match self {
                Self::Calling(call) => match call.await {
                    Ok(response) => {
                        *self = Self::Responding(response);
                        hub.enter(Phase::Responding);
                    }
                    Err(error) => return Some(Err(error)),
                },
                Self::Responding(response) => return response.next().await,
            }
        }
    }
}

/// The description of an append in flight.
struct Appended {
    count: usize,
    /// Whether the append also closes the run in the log.
    closes: bool,
}

/// A run in progress.
struct Progress<'t> {
    task: &'t RunTask,
    response: RunResponse,
    earlier: Earlier,
    /// Whether the response has sent deltas since its last message.
    has_deltas: bool,
    /// The end of the run; `None` if it is not known yet. The last append stores the end and closes
    /// the run in the log.
    end: Option<(RunEnd, Option<SharedError>)>,
    /// Whether the response has returned its last item or was dropped.
    has_ended: bool,
    /// Whether the log contains the end of the run.
    is_closed: bool,
    /// Whether the log has refused updates of the run, and therefore does not contain all updates.
    is_truncated: bool,
    /// Whether the task no longer writes to the log: this attempt does not own the run, or the log
    /// was unavailable after the end of the run.
    is_log_lost: bool,
    append: Option<BoxFuture<'static, (Appended, Result<(), UpdateLogError>)>>,
    renewal: Option<BoxFuture<'static, Result<Renewed, UpdateLogError>>>,
    /// The time at which the task must append the updates that are not stored yet.
    flush_at: Option<Instant>,
    /// The time at which the task next renews the lease, and checks for stops and readers.
    check_at: Instant,
    /// Whether the task has noticed that the run was stopped.
    is_stopped: bool,
    /// The time at which the task drops a response that has not ended after a stop or a finish.
    dropped_at: Option<Instant>,
    /// The time at which the task stops the run, if the run has no reader until then.
    unread_until: Option<Instant>,
    /// The number of appends that have failed since the last successful append.
    failures: u32,
}

impl<'t> Progress<'t> {
    fn new(task: &'t RunTask, response: RunResponse, attempt: u32, earlier: Earlier) -> Self {
        // A later attempt renews its lease immediately: its task has read all updates of earlier
        // attempts, which may have taken most of the time of the lease.
        let check_in = match attempt {
            1 => task.shared.settings.renewal_interval(),
            _ => Duration::ZERO,
        };
        Self {
            response,
            earlier,
            has_deltas: false,
            end: None,
            has_ended: false,
            is_closed: false,
            is_truncated: false,
            is_log_lost: false,
            append: None,
            renewal: None,
            flush_at: None,
            check_at: Instant::now() + check_in,
            is_stopped: false,
            dropped_at: None,
            unread_until: None,
            failures: 0,
            task,
        }
    }

    async fn run(mut self, attempt: u32) -> (RunEnd, Option<SharedError>) {
        if attempt > 1 && !self.is_log_lost {
            self.push(LoggedUpdate::Restarted);
        }
        let mut timer = Box::pin(sleep_until(self.check_at));
        loop {
            self.start_append();
            let is_stored = self.is_closed || self.is_log_lost;
            match self.end.take_if(|_| self.has_ended && is_stored) {
                Some(end) => return end,
                None => self.step(attempt, timer.as_mut()).await,
            }
        }
    }

    /// Waits for the next event of the run, and handles it.
    async fn step(&mut self, attempt: u32, mut timer: Pin<&mut Sleep>) {
        let next = self.next_deadline();
        if timer.deadline() != next {
            timer.as_mut().reset(next);
        }
        tokio::select! {
            biased;
            (what, appended) = output(&mut self.append) => self.append_ended(&what, &appended),
            renewed = output(&mut self.renewal) => self.renewal_ended(&renewed),
            () = timer => self.deadline_passed(attempt),
            update = self.response.next(&self.task.hub), if !self.has_ended => self.received(update),
        }
    }

    /// Returns the time at which the task must act if no other event occurs before.
    fn next_deadline(&self) -> Instant {
        let appends = self.append.is_none() && !self.is_closed && !self.is_log_lost;
        let flush_at = self.flush_at.filter(|_| appends);
        let dropped_at = self.dropped_at.filter(|_| !self.has_ended);
        let deadlines = [flush_at, dropped_at, self.unread_until];
        deadlines.into_iter().flatten().fold(self.check_at, Instant::min)
    }

    /// Acts on the deadlines that have passed, except `flush_at`, which `start_append` handles.
    fn deadline_passed(&mut self, attempt: u32) {
        let now = Instant::now();
        if self.check_at <= now {
            self.check_at = now + self.task.shared.settings.renewal_interval();
            if self.renewal.is_none() && self.needs_lease() {
                self.start_renewal(attempt);
            }
            self.check_stop();
            self.check_readers(now);
        }
        if self.unread_until.is_some_and(|until| until <= now) {
            self.check_readers(now);
        }
        if self.dropped_at.is_some_and(|at| at <= now) && !self.has_ended {
            self.stop_expired();
        }
    }

    fn received(&mut self, update: Option<Result<ChatUpdate, BoxError>>) {
        match update {
            // An update after the finish is ignored. The finish has set the end of the run.
            Some(Ok(_)) if self.end.is_some() => {}
            Some(Err(error)) if self.end.is_some() => {
                let run = &self.task.run.run;
                let error = &*error as &dyn Error;
                tracing::warn!(%run, error, "an error after the finish of a response is ignored");
                self.has_ended = true;
            }
            None if self.end.is_some() => self.has_ended = true,
            Some(Ok(update)) => {
                let is_finish = matches!(update, ChatUpdate::Finish(_));
                let is_delta = !matches!(update, ChatUpdate::Message(_) | ChatUpdate::Finish(_));
                let had_deltas = std::mem::replace(&mut self.has_deltas, is_delta);
                match update {
                    ChatUpdate::Message(message) if self.is_repeated(&message) => {
                        self.push(LoggedUpdate::Repeated(message));
                        // Readers have already received the message, and discard the repeated
                        // deltas.
                        if had_deltas {
                            self.push(LoggedUpdate::Restarted);
                        }
                    }
                    update => {
                        self.check_stop();
                        let was_stopped = self.is_stopped;
                        self.push(LoggedUpdate::Chat(update));
                        if is_finish && self.end.is_none() {
                            self.end_with(RunEnd::Completed, None);
                        }
                        let is_too_large = || {
                            let max = self.task.shared.settings.max_bytes;
                            self.task.hub.total_bytes() / 2 > max
                        };
                        // A delta after a stop shows that the stack has no tool loop, which would
                        // end the response.
                        if was_stopped && is_delta && is_too_large() {
                            self.fail_stopped();
                        }
                    }
                }
            }
            Some(Err(error)) => self.fail(error),
            None => self.fail(TruncatedStream::default().into()),
        }
    }

    /// Returns whether an earlier attempt has sent an equal message. If not, forgets the messages
    /// of earlier attempts, because readers discard them when they receive this message.
    ///
    /// `added_at` is not compared, because the next attempt adds the results of finished tools at a
    /// later time.
    fn is_repeated(&mut self, message: &Message) -> bool {
        let Some(id) = message.id else { return false };
        let is_repeated = self.earlier.get(&id).is_some_and(|sent| {
            (sent.role, &sent.parts, &sent.author, &sent.metadata)
                == (message.role, &message.parts, &message.author, &message.metadata)
        });
        if !is_repeated {
            self.earlier.clear();
        }
        is_repeated
    }

    fn push(&mut self, update: LoggedUpdate) {
        let total_bytes = match self.task.hub.push(update) {
            Ok(total_bytes) => total_bytes,
            Err(error) => return self.fail(error),
        };
        let settings = &self.task.shared.settings;
        if self.flush_at.is_none() {
            self.flush_at = Some(Instant::now() + settings.batch_interval);
        }
        if total_bytes > settings.max_bytes {
            self.stop("the run was stopped, because its updates exceed the limit of `with_max_bytes_per_run`");
        }
    }

    fn fail(&mut self, error: BoxError) {
        let error = SharedError::new(error);
        self.end_with(RunEnd::Failed { message: error.to_string() }, Some(error));
        self.has_ended = true;
    }

    /// Sets the end of the run. If the response has not ended after the duration of a lease, the
    /// task drops the response.
    fn end_with(&mut self, end: RunEnd, error: Option<SharedError>) {
        self.end = Some((end, error));
        self.failures = 0;
        self.dropped_at = Some(Instant::now() + self.task.shared.settings.lease);
    }

    /// Returns whether the lease of this attempt must be renewed. The lease must not be renewed
    /// after the end of the run, because the append that closes the run ends the lease.
    fn needs_lease(&self) -> bool {
        !self.is_log_lost && self.end.is_none()
    }

    /// Drops a response that has not ended in time after a stop or after the finish.
    fn stop_expired(&mut self) {
        match self.response {
            _ if self.end.is_some() => self.has_ended = true,
            RunResponse::Responding(_) => self.fail_stopped(),
            // The run waits in the queue of its conversation. The stop takes effect when the run
            // leaves the queue.
            RunResponse::Calling(_) => self.dropped_at = None,
        }
    }

    fn fail_stopped(&mut self) {
        self.fail("the run was stopped, but its service did not end the response in time".into());
    }

    fn stop(&mut self, why: &'static str) {
        if !self.task.hub.handle.is_stopped() {
            let RunKey { conversation, run } = &self.task.run;
            tracing::warn!(%run, %conversation, "{why}");
            self.task.hub.handle.stop();
        }
        self.check_stop();
    }

    /// Starts an append, unless an append is in flight or nothing must be appended yet.
    fn start_append(&mut self) {
        if self.append.is_some() || self.is_closed || self.is_log_lost {
            return;
        }
        let settings = &self.task.shared.settings;
        let is_time = self.flush_at.is_some_and(|at| at <= Instant::now());
        let is_due = || self.end.is_some() || self.task.hub.is_append_due(settings.max_batch_bytes);
        if !is_time && (self.failures > 0 || !is_due()) {
            return;
        }
        self.flush_at = None;
        let end = self.end.as_ref().map(|(end, _)| match end {
            RunEnd::Completed if self.is_truncated => RunEnd::Truncated,
            end => end.clone(),
        });
        let batch = self.task.hub.batch();
        if batch.updates.is_empty() && end.is_none() {
            return;
        }
        let (log, run) = (self.task.shared.log.clone(), self.task.run.clone());
        self.append = Some(Box::pin(async move {
            let appended = log.append(&run, batch.first, &batch.updates, end.as_ref()).await;
            (Appended { count: batch.updates.len(), closes: end.is_some() }, appended)
        }));
    }

    fn append_ended(&mut self, what: &Appended, appended: &Result<(), UpdateLogError>) {
        let hub = &self.task.hub;
        match appended {
            Ok(()) => {
                self.failures = 0;
                self.is_closed = what.closes;
                return hub.appended(what.count);
            }
            Err(error) => {
                self.task.warn(error, "updates of a run were not stored in the update log");
                if let UpdateLogError::NotOwner { found, .. } = error {
                    return self.lost_run(found);
                }
                self.failures += 1;
                let is_last = self.end.is_some() && self.failures >= MAX_FAILURES_AT_END;
                let is_refused = !error.is_retryable();
                if is_last || (is_refused && what.count == 0) {
                    self.is_log_lost = true;
                    return hub.log_lost();
                }
                if is_refused {
                    // From now on, the task only renews the lease, and appends the end of the run.
                    self.is_truncated = true;
                    self.failures = 0;
                    return hub.log_lost();
                }
                hub.append_failed();
            }
        }
        self.flush_at = Some(Instant::now() + self.task.shared.settings.batch_interval);
    }

    fn start_renewal(&mut self, attempt: u32) {
        let (log, run) = (self.task.shared.log.clone(), self.task.run.clone());
        let lease = self.task.shared.settings.lease;
        self.renewal = Some(Box::pin(async move { log.renew(&run, attempt, lease).await }));
    }

    fn renewal_ended(&mut self, renewed: &Result<Renewed, UpdateLogError>) {
        match renewed {
            // The append that closes the run may have been executed before the renewal, which then
            // fails.
            Err(_) if self.end.is_some() => {}
            Ok(Renewed { stop_requested: true }) => {
                self.task.hub.handle.stop();
                self.check_stop();
            }
            Ok(Renewed { stop_requested: false }) => {}
            Err(error) => {
                self.task.warn(error, "the lease of a run was not renewed");
                if let UpdateLogError::NotOwner { found, .. } = error {
                    self.lost_run(found);
                }
            }
        }
    }

    /// Stops this attempt, which does not own the run. The readers of this attempt then read the
    /// updates from the log, unless the log no longer contains the run.
    fn lost_run(&mut self, found: &RunState) {
        let RunTask { shared, run, hub, .. } = self.task;
        self.is_log_lost = true;
        match found {
            RunState::Unknown => hub.log_lost(),
            RunState::Open { .. } | RunState::LeaseExpired { .. } | RunState::Closed { .. } => {
                shared.remove(run, hub);
                hub.enter(Phase::Elsewhere { attempt: found.attempt() });
            }
        }
        self.stop("the run was stopped, because another attempt may execute it");
    }

    /// After a stop, sets the time at which the task drops the response: after the duration of a
    /// lease.
    fn check_stop(&mut self) {
        self.is_stopped = self.is_stopped || self.task.hub.handle.is_stopped();
        if self.is_stopped && self.dropped_at.is_none() {
            self.dropped_at = Some(Instant::now() + self.task.shared.settings.lease);
        }
    }

    /// Stops the run if it has had no reader for too long. Otherwise sets the time of the next check.
    fn check_readers(&mut self, now: Instant) {
        let max = self.task.shared.settings.max_time_without_reader;
        let unread_since = self.task.hub.unread_since().filter(|_| !self.is_stopped);
        self.unread_until = unread_since.zip(max).and_then(|(since, max)| since.checked_add(max));
        if self.unread_until.take_if(|until| *until <= now).is_some() {
            self.stop("the run was stopped, because it had no reader for too long");
        }
    }
}

/// Waits for the end of an operation and removes it. Waits forever if there is none.
async fn output<T>(operation: &mut Option<BoxFuture<'static, T>>) -> T {
    let output = match operation {
        Some(operation) => operation.await,
        None => pending().await,
    };
    *operation = None;
    output
}

/// The maximum time that a reader waits for a change before it reads the log again.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(5);
