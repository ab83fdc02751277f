//! Begins a run in four steps: opens the head, loads the history, takes the input, and resumes an
//! open run. The model is called only after these steps. Therefore, the model causes no costs if
//! the store cannot be read.

mod dangling;
mod records;
pub(super) mod request;
mod resume;
mod settings;
pub(super) mod stored_answer;

use std::{
    sync::{Arc, Mutex},
    time::SystemTime,
};

use tokio::sync::OnceCell;
use tower_chat_core::{
    ChatRequest, Conversation, HistoryOwner, Message, MessageId, Messages, RunId,
    store::{
        Capability, Conflict, Head, History, Journal as _, Revision, ServiceIdChange, StoreError,
        author::{LoadFrom, OpenRunContent, ToolRecord},
    },
};

pub(crate) use self::settings::{Settings, shared};
use self::{
    dangling::warn_of_dangling,
    records::{prior_attempts, tool_calls_before},
    request::not_stored_before,
    resume::resume_run,
};
use super::{
    BegunBy, Run, ServiceCall, Shared, Storage,
    added_messages::AddedMessages,
    call_records::CallRecords,
    complete::is_incomplete_response,
    conversation::LoadedConversation,
    fenced_attempt::FencedAttempt,
    history::{LoadedReplay, has_incomplete_responses, head_of, load_history},
    hooks::Hooks,
    input_digest::{differs, input_digest},
    journaled::Journal,
    load_range::{answers_calls, range_of},
    loaded::Loaded,
    log::{RunLog, StoredBefore},
    model_request::own_messages,
    prior_attempts::PriorAttempts,
    prior_call_results::{reports_of_recorded_results, rows_of_prior_calls},
    recording::Recording,
    repeated::{observe_alone, take_new, take_observed},
    repeated_input::input_len,
    run_end::recorded_end,
    service_id::agreed_service_id,
    stored_messages::{RunInStore, stored_of_run},
};
use crate::{
    PersistenceError, PersistenceMode, RepeatedTranscript,
    approval::answers_approvals,
    recovery::ResumesRun,
    replay::Replay,
    tool::RunAncestry,
    transcript::{Observed, Step},
    validate::{Fault, InvalidMessages, check_content, may_be_empty},
    yielding::yield_if_large,
};

/// The parameters with which a run begins.
#[derive(Clone)]
pub(crate) struct RunParameters {
    pub(crate) conversation: Conversation,
    pub(crate) mode: PersistenceMode,
    pub(crate) head: Head,
    /// The time at which the request of the run arrived, before it waited in a queue.
    pub(crate) arrived_at: SystemTime,
    /// Whether the stored messages are sent to the service, because it has lost its history.
    pub(crate) sends_record: bool,
}

/// The parameters that all steps of a run's beginning need.
struct RunBuilder<'a> {
    settings: &'a Settings,
    mode: PersistenceMode,
    conversation: &'a Conversation,
    begun_by: BegunBy,
    is_background: bool,
}

/// The head of the conversation, and the content of the open run if this run resumes the open run.
struct OpenedHead {
    head: Head,
    /// The service id, if the service stores the history.
    service_id: Option<Arc<str>>,
    /// Whether the stored messages are sent to the service, because it has lost its history.
    sends_record: bool,
    resumed: Option<OpenRunContent>,
}

/// The part of the history that the run needs, including staged messages of an earlier attempt.
struct LoadedHistory {
    loaded: LoadedReplay,
    /// Whether the history was loaded. If not, the run does not need it, and `loaded` is empty.
    is_read: bool,
    /// The rows of calls in visible messages whose results are only staged.
    prior_rows: Vec<ToolRecord>,
}

/// The stored messages of the run, and the new messages of the request.
struct TakenInput {
    /// The messages of this run in the history.
    added: Vec<Arc<Message>>,
    is_overtaken: bool,
    /// The answer of the previous run, if the request repeats all stored messages except this answer.
    last_answer: Option<Vec<Arc<Message>>>,
    own: Vec<Arc<Message>>,
    /// `None` if the request was not compared with the stored messages.
    step: Option<Step>,
    digest: Option<String>,
}

/// Loads the state that the run needs, and creates the run.
pub(crate) async fn begin_run(
    settings: &Settings,
    parameters: RunParameters,
    request: &mut ChatRequest,
    begun_by: BegunBy,
) -> Result<Run, PersistenceError> {
    let RunParameters { conversation, mode, head, arrived_at, sends_record } = parameters;
    let is_background = request.options.is_background();
    let builder =
        RunBuilder { settings, mode, conversation: &conversation, begun_by, is_background };
    builder.check(request)?;
    let opened = builder.open(request, head, sends_record).await?;
    let (mut history, mut loaded) = builder.load(request, &opened).await?;
    let observed = builder.observe(request, &opened, &history)?;
    let run = observed.as_ref().map_or(conversation.run, |(_, run)| *run);
    let is_continued = run != conversation.run;
    let conversation = Conversation { run, ..conversation.clone() };
    let builder = RunBuilder { conversation: &conversation, ..builder };
    if is_continued {
        request.extensions.insert(conversation.clone());
        // The replay of another run differs in these cases.
        if settings.policy.replay.old_media.is_some()
            || has_incomplete_responses(&history.loaded.history, run)
        {
            (history, loaded) = builder.load(request, &opened).await?;
        }
    }
    let names_run = request.extensions.get::<ResumesRun>().is_some();
    let says_nothing = own_messages(request).is_empty()
        && history.loaded.history.messages.is_empty()
        && !names_run
        && !may_be_empty(request);
    let input = builder.take_input(request, &history, observed).await?;
    builder.check_not_empty(says_nothing, &input)?;
    let approves = answers_approvals(input.own.iter().chain(opened.staged()));
    let mut log = builder.log(&opened, history, input, approves).await?;
    let fenced = request.extensions.get::<FencedAttempt>().copied();
    log.fenced = fenced.filter(|_| settings.store.journal().is_some());
    let stored = Storage {
        conversation: conversation.clone(),
        mode,
        policy: settings.policy.clone(),
        store: settings.store.clone(),
        clock: settings.clock.clone(),
        stored_as: builder.stored_as(),
        is_nested: RunAncestry::is_nested(request),
        arrived_at,
        _loaded: loaded,
    };
    let stored = OnceCell::new_with(Some(Arc::new(stored)));
    let run = Run::from(Arc::new(Shared { conversation, begun_by, log: Mutex::new(log), stored }));
    if let Some(content) = &opened.resumed {
        resume_run(&settings.store, &run, content, approves).await?;
    }
    Ok(run)
}

/// Creates the run of a service call, if no layer above the tool loop has begun a run.
pub(crate) async fn begin_lone_run(
    settings: &Settings,
    conversation: Conversation,
    request: &mut ChatRequest,
    sends_record: bool,
) -> Result<Run, PersistenceError> {
    let head = head_of(settings, &conversation.key).await?;
    if let Some(open) = head.open_run {
        return Err(PersistenceError::OpenRun { key: conversation.key, run: open.run });
    }
    let mode = PersistenceMode::PerServiceCall;
    let arrived_at = settings.clock.now();
    let parameters = RunParameters { conversation, mode, head, arrived_at, sends_record };
    begin_run(settings, parameters, request, BegunBy::of_service_call(request)).await
}
impl OpenedHead {
    fn staged(&self) -> &[Arc<Message>] {
        self.resumed.as_ref().map_or(&[], |content| &content.messages)
    }
}

impl RunBuilder<'_> {
    fn not_loaded(&self) -> impl Fn(StoreError) -> PersistenceError {
        let key = self.conversation.key.clone();
        move |source| PersistenceError::NotLoaded { key: key.clone(), source }
    }

    fn check(&self, request: &ChatRequest) -> Result<(), PersistenceError> {
        let own = own_messages(request);
        if request.options.continuation.is_some() && !own.is_empty() {
            return Err(PersistenceError::MessagesWithContinuation { messages: own.len() });
        }
        let knows_answer = self.is_background || self.mode == PersistenceMode::PerRun;
        if !knows_answer && self.settings.policy.replay.citations_at_save().is_some() {
            let (key, mode) = (self.conversation.key.clone(), self.mode);
            return Err(PersistenceError::CitationsAtSave { key, mode });
        }
        if self.settings.policy.summarize.is_some() && self.settings.store.summaries().is_none() {
            let (key, capability) = (self.conversation.key.clone(), Capability::Summaries);
            return Err(PersistenceError::MissingCapability { key, capability });
        }
        let stages = self.mode == PersistenceMode::Journaled && !self.is_background;
        if stages && self.settings.store.journal().is_none() {
            let (key, capability) = (self.conversation.key.clone(), Capability::Journal);
            return Err(PersistenceError::MissingCapability { key, capability });
        }
        Ok(())
    }

    /// Reads the content of the open run, if this run resumes it. `head` may be out of date:
    /// another run may be open, or another process may have taken the run over.
    async fn open(
        &self,
        request: &ChatRequest,
        head: Head,
        sends_record: bool,
    ) -> Result<OpenedHead, PersistenceError> {
        let key = &self.conversation.key;
        let resumed = match &head.open_run {
            Some(_) => self.settings.store.open_run(key).await.map_err(self.not_loaded())?,
            None => None,
        };
        let resumed = resumed.filter(|content| content.open.run == self.conversation.run);
        let open = resumed.as_ref().map(|content| &content.open);
        if let Some(held) = open.and_then(|open| self.settings.held_elsewhere(key, open)) {
            return Err(held);
        }
        let head = match &resumed {
            Some(content) => content.head.clone().with_service_id(service_id_within(content)),
            None => head,
        };
        let requested = request.history_owner.as_ref().and_then(HistoryOwner::service_id);
        let service_id = match sends_record {
            true => None,
            false => agreed_service_id(key, head.service_id.clone(), requested)?,
        };
        Ok(OpenedHead { head, service_id, sends_record, resumed })
    }

    /// Loads the part of the history that the run needs, and the loaded messages as [`Loaded`],
    /// which must be dropped together with the run. A run whose answer the service makes in the
    /// background needs the history only to detect that a stored run is sent again.
    async fn load(
        &self,
        request: &ChatRequest,
        opened: &OpenedHead,
    ) -> Result<(LoadedHistory, Loaded), PersistenceError> {
        let Self { settings, conversation, .. } = *self;
        let OpenedHead { head, service_id, resumed, .. } = opened;
        let is_kept_here = service_id.is_none();
        let is_needed = (is_kept_here && !self.is_background)
            || answers_approvals(&own_messages(request))
            || resumed.is_some();
        let empty = || LoadedReplay {
            history: History::new(head.clone(), Messages::new()),
            replay: Replay::new(settings.policy.replay.dangling_calls),
            summary: None,
            summarizable: None,
            next_range: None,
        };
        let is_stored = head.revision != Revision::ABSENT;
        let mut read = match is_stored && (is_needed || is_kept_here) {
            true => {
                let range = self.range(request, opened);
                let loaded = load_history(settings, conversation, request, range).await;
                loaded.map_err(self.not_loaded())?
            }
            false => empty(),
        };
        let is_read = is_needed || read.history.end_of_run(conversation.run).is_some();
        if !is_read {
            read = empty();
        }
        let references = Loaded::of(&read.history);
        // The requests of a resumed run begin like those of the earlier attempt, and its staged
        // messages may be discarded.
        if !is_kept_here || resumed.is_some() {
            read.summarizable = None;
            read.next_range = None;
        }
        let mut prior_rows = Vec::new();
        if let Some(content) = resumed {
            prior_rows =
                self.extend_by_staged(&mut read.history, &mut read.replay, content).await?;
        }
        Ok((LoadedHistory { loaded: read, is_read, prior_rows }, references))
    }

    /// Returns the range of the history that the run needs; `None` if it needs all messages.
    fn range<'h>(
        &self,
        request: &ChatRequest,
        opened: &'h OpenedHead,
    ) -> Option<&'h Arc<LoadFrom>> {
        let own = own_messages(request);
        let choice = request.extensions.get::<RepeatedTranscript>().copied();
        let choice = choice.unwrap_or(self.settings.policy.repeated_transcript);
        let is_new = self.begun_by == BegunBy::LayerAbove
            && opened.resumed.is_none()
            && opened.service_id.is_none()
            && !own.is_empty()
            && !answers_calls(&own)
            && own
                .iter()
                .all(|message| message.id.is_none_or(|id| id.run == self.conversation.run))
            && !choice.compares(&own);
        let range = range_of(&self.settings.policy, &opened.head, self.conversation.run);
        range.filter(|_| is_new && !opened.sends_record)
    }

    /// Adds the staged messages of an earlier attempt to the history. Returns the rows of the
    /// visible calls that they answer.
    async fn extend_by_staged(
        &self,
        history: &mut History,
        replay: &mut Replay,
        content: &OpenRunContent,
    ) -> Result<Vec<ToolRecord>, PersistenceError> {
        let Conversation { key, run } = self.conversation;
        if history.head.revision != content.head.revision {
            let found = history.head.revision;
            let conflict = Conflict::new(key.clone(), content.head.revision, found);
            return Err(self.not_loaded()(Box::new(conflict).into()));
        }
        let (store, staged) = (self.settings.store.as_ref(), &content.messages);
        let rows = rows_of_prior_calls(store, key, history, staged).await;
        let answers = staged.iter().filter(|message| !is_incomplete_response(message, *run));
        answers.for_each(|message| replay.push(message));
        history.extend(staged.iter().cloned());
        rows.map_err(self.not_loaded())
    }

    /// Compares the request with the stored messages if it comes from a tool loop of another crate
    /// and no layer above that loop has begun a run.
    fn observe(
        &self,
        request: &ChatRequest,
        opened: &OpenedHead,
        loaded: &LoadedHistory,
    ) -> Result<Option<(Observed, RunId)>, PersistenceError> {
        if self.begun_by != BegunBy::OtherLoop || !loaded.is_read || opened.service_id.is_some() {
            return Ok(None);
        }
        observe_alone(self.settings, self.conversation, request, &loaded.loaded.history)
    }

    /// Separates the new messages of the request from the stored ones, which are removed from the
    /// request as [`RepeatedTranscript`] requires.
    async fn take_input(
        &self,
        request: &mut ChatRequest,
        loaded: &LoadedHistory,
        observed: Option<(Observed, RunId)>,
    ) -> Result<TakenInput, PersistenceError> {
        let LoadedHistory { loaded: LoadedReplay { history, .. }, is_read, .. } = loaded;
        yield_if_large(&own_messages(request)).await;
        let RunInStore { added, input_digest: stored_digest, is_overtaken } =
            stored_of_run(history, self.conversation.run);
        if let Some((observed, _)) = observed {
            request.extensions.remove::<RepeatedTranscript>();
            take_observed(request, &observed);
            let step = Some(observed.step);
            let own = observed.new;
            let digest = added.is_empty().then(|| input_digest(&own)).flatten();
            return Ok(TakenInput { added, is_overtaken, last_answer: None, own, step, digest });
        }
        let Self { settings, conversation, begun_by, .. } = *self;
        let stored = (&*added, *is_read);
        let last_answer =
            take_new(settings, conversation, request, history, stored, begun_by).await?;
        let own =
            not_stored_before(self.conversation.run, &history.messages, own_messages(request));
        // If no layer above the tool loop has begun the run, only the messages of the first service
        // call are its input.
        let is_input = match begun_by {
            BegunBy::LayerAbove => true,
            BegunBy::ToolLoop => {
                request.extensions.get::<ServiceCall>().is_some_and(|call| call.ordinal == 0)
            }
            // The service calls are not numbered.
            BegunBy::OtherLoop => false,
        };
        let digest = is_input.then(|| input_digest(&own)).flatten();
        if digest.is_some() && differs(stored_digest.as_deref(), &added, &own) {
            let Conversation { key, run } = self.conversation.clone();
            return Err(PersistenceError::RunIdReused { key, run });
        }
        Ok(TakenInput { own, added, is_overtaken, last_answer, step: None, digest })
    }

    fn check_not_empty(
        &self,
        says_nothing: bool,
        input: &TakenInput,
    ) -> Result<(), PersistenceError> {
        if !input.added.is_empty() {
            return Ok(());
        }
        let checked = match says_nothing {
            true => InvalidMessages::of(vec![Fault::NoMessages]),
            false => check_content(0, &input.own),
        };
        let key = self.conversation.key.clone();
        checked.map_err(|source| PersistenceError::EmptyRequest { key, source })
    }

    async fn log(
        &self,
        opened: &OpenedHead,
        loaded: LoadedHistory,
        input: TakenInput,
        approves: bool,
    ) -> Result<RunLog, PersistenceError> {
        let Self { settings, conversation: Conversation { key, .. }, .. } = *self;
        let (store, not_loaded) = (&settings.store, self.not_loaded());
        let LoadedHistory { loaded: read, is_read, prior_rows } = loaded;
        let LoadedReplay { history, replay, .. } = &read;
        let TakenInput { added, is_overtaken, last_answer, own, step, digest } = input;
        let prior_attempts = match approves {
            true => prior_attempts(store, key, history, replay).await.map_err(&not_loaded)?,
            false => PriorAttempts::default(),
        };
        let visible = added.len().saturating_sub(opened.staged().len());
        let recorded_end = match opened.resumed {
            Some(_) => None,
            None => {
                recorded_end(store.as_ref(), key, history, &added).await.map_err(&not_loaded)?
            }
        };
        let tool_calls = tool_calls_before(store, key, history, added.get(..visible));
        let tool_calls = tool_calls.await.map_err(&not_loaded)?;
        // A resumed run needs no warning, because it runs its calls without a result, or adds their
        // results.
        if is_read && opened.resumed.is_none() {
            warn_of_dangling(key, &history.messages, replay, &own);
        }
        let call_records = self.call_records(history, &added, &own).await?;
        let unsaved = store.handle().unsaved(key);
        let input = input_len(&added, &own).saturating_sub(visible);
        let journal = self.journal(opened, history, input, visible, prior_rows);
        let conversation = self.loaded_conversation(opened, read, added);
        Ok(RunLog {
            stored_before: StoredBefore {
                recorded_end,
                tool_calls,
                is_overtaken,
                last_answer,
                is_observed: step.is_some(),
                is_repeated: step == Some(Step::Repeat),
            },
            prior_attempts,
            unsaved: unsaved.iter().map(|write| write.messages().len()).sum(),
            input_digest: digest,
            journal,
            ..RunLog::new(self.stored_as(), conversation, call_records)
        })
    }

    fn loaded_conversation(
        &self,
        opened: &OpenedHead,
        loaded: LoadedReplay,
        added: Vec<Arc<Message>>,
    ) -> LoadedConversation {
        let LoadedReplay { history, replay, summary, summarizable, next_range } = loaded;
        LoadedConversation {
            next_range,
            needs_all_later: false,
            has_range: opened.head.load_from.as_ref().is_some_and(|from| from.after > 0),
            revision: history.head.revision,
            history,
            replay,
            service_id: opened.service_id.clone(),
            stored_service_id: opened.head.service_id.clone(),
            recording: match opened.service_id {
                Some(_) => Recording::of_service_kept(self.settings.policy.conflict),
                None if opened.sends_record => Recording::AfterLoss,
                None => Recording::History,
            },
            added: AddedMessages::stored(self.conversation.run, added),
            submitted_replay: None,
            summary,
            summarizable,
        }
    }

    /// Returns the records of the run's calls, with the recorded reports about results in the input
    /// of a new run.
    async fn call_records(
        &self,
        history: &History,
        added: &[Arc<Message>],
        own: &[Arc<Message>],
    ) -> Result<CallRecords, PersistenceError> {
        let Self { settings, conversation: Conversation { key, run }, .. } = *self;
        let mut records = CallRecords::of_stored(added, Hooks::of_source(settings.tools.clone()));
        if added.is_empty() {
            let reports = reports_of_recorded_results(settings.store.as_ref(), key, history, own);
            for (position, reports) in reports.await.map_err(self.not_loaded())? {
                let index = u32::try_from(position).unwrap_or(u32::MAX);
                records.report(MessageId { run: *run, index }, reports);
            }
        }
        Ok(records)
    }

    /// Returns the mode in which the run is stored. A run whose answer the service makes in the
    /// background is stored at its end, if a layer above the tool loop has begun the run. The mode
    /// does not change later, because the requests of later service calls do not contain the
    /// continuation token.
    fn stored_as(&self) -> PersistenceMode {
        match self.is_background && self.begun_by == BegunBy::LayerAbove {
            true => PersistenceMode::PerRun,
            false => self.mode,
        }
    }

    /// Returns the journal of a journaled run. Readers see the first `visible` messages of the run.
    /// The next `input` messages are staged and belong to its input.
    fn journal(
        &self,
        opened: &OpenedHead,
        history: &History,
        input: usize,
        visible: usize,
        prior_rows: Vec<ToolRecord>,
    ) -> Option<Box<Journal>> {
        if self.stored_as() != PersistenceMode::Journaled {
            return None;
        }
        let holder = self.settings.store.handle().holder();
        let (length, now) = (self.settings.lease_length(), self.settings.clock.now());
        Some(Box::new(match &opened.resumed {
            Some(content) => {
                let mut journal = Journal::resuming(holder, length, now, content, input, visible);
                journal.deferred = prior_rows;
                journal
            }
            None => Journal::new(holder, length, now, history.head.revision.sequence),
        }))
    }
}

/// Returns the service id, including a staged change of the open run.
fn service_id_within(content: &OpenRunContent) -> Option<Arc<str>> {
    match &content.open.service_id {
        Some(ServiceIdChange::Set(id)) => Some(id.clone()),
        Some(ServiceIdChange::Clear) => None,
        None => content.head.service_id.clone(),
    }
}
