//! Plays recordings through a stack.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::Path,
    sync::Arc,
    time::Duration,
};

use tower::{Layer, Service, ServiceExt, util::BoxCloneSyncService};
use tower_chat::{
    BoxError, ChatRequest, ChatResponse, HistoryStore, Message, PersistenceMode, PersistencePolicy,
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    message::{MessageId, Messages},
    policy::StoreFailure,
    recovery::{JournalPolicy, open_run},
    replay::DanglingCalls,
    run::{Conversation, RunId},
    store::{
        Revision, StoreError,
        author::{AppendError, Write},
    },
};

use super::{
    Difference, Divergence, PlayCounters, Recording,
    alignment::Alignment,
    counters::Counters,
    model::RecordedModel,
    plan::{Plan, PlannedRun},
    script::Script,
    tools::RecordedTools,
};

/// Plays recordings through the tool loop and the persistence layers into a store.
///
/// Clones share their counters. If the future of a play is dropped, the current run is cancelled.
/// The store keeps what the persistence mode guarantees, and a [`resumed`](Self::resumed) player
/// continues from there.
#[derive(Clone)]
pub(crate) struct Player {
    store: Arc<dyn HistoryStore>,
    mode: PersistenceMode,
    streams: bool,
    verifies: bool,
    resumes: bool,
    counters: Arc<Counters>,
}

/// The error of a conversation that was not played to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlayError {
    /// The store already has the conversation.
    #[error(
        "conversation {conversation:?} is in the store already: resume it, or use another store"
    )]
    AlreadyStored {
        /// The id of the conversation.
        conversation: String,
    },
    /// The stored messages of the conversation differ from the beginning of the recording.
    #[error(
        "what is stored of conversation {conversation:?} is another conversation \
         from message {message} on: it cannot be resumed"
    )]
    OtherRecording {
        /// The id of the conversation.
        conversation: String,
        /// The position of the first message that differs, from 0.
        message: usize,
    },
    /// The stored part of the conversation could not be read.
    #[error("conversation {conversation:?} could not be read from the store")]
    Load {
        /// The id of the conversation.
        conversation: String,
        /// The error of the store.
        source: StoreError,
    },
    /// The messages before the first run could not be stored.
    #[error("the first messages of conversation {conversation:?} could not be stored")]
    Import {
        /// The id of the conversation.
        conversation: String,
        /// The error of the stack.
        source: BoxError,
    },
    /// The stack failed.
    #[error("run {run} of conversation {conversation:?} failed")]
    Run {
        /// The id of the conversation.
        conversation: String,
        /// The number of the run in this play, from 0.
        run: usize,
        /// The error of the stack.
        source: BoxError,
    },
}

type Pipeline = BoxCloneSyncService<ChatRequest, ChatResponse, BoxError>;

impl Player {
    /// Creates a player with the default mode, whole answers, and comparison.
    pub(crate) fn new(store: impl HistoryStore) -> Self {
        Self {
            store: Arc::new(store),
            mode: PersistenceMode::default(),
            streams: false,
            verifies: true,
            resumes: false,
            counters: Arc::default(),
        }
    }

    /// Sets the mode, which determines when messages become durable.
    #[must_use]
    pub(crate) fn mode(mut self, mode: PersistenceMode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets whether answers are streamed.
    #[must_use]
    pub(crate) fn streamed(mut self, streams: bool) -> Self {
        self.streams = streams;
        self
    }

    /// Sets whether each request, and the stored messages, are compared with the recording.
    #[must_use]
    pub(crate) fn verified(mut self, verifies: bool) -> Self {
        self.verifies = verifies;
        self
    }

    /// Sets whether conversations that the store already has are continued.
    #[must_use]
    pub(crate) fn resumed(mut self, resumes: bool) -> Self {
        self.resumes = resumes;
        self
    }

    /// Also counts service calls and tool executions in a file, when each of them begins. If this
    /// player [resumes](Self::resumed), the counts include those of earlier players, even killed
    /// ones. Otherwise, the file is emptied.
    pub(crate) fn counters_in(mut self, file: impl AsRef<Path>) -> io::Result<Self> {
        self.counters = Arc::new(Counters::in_file(file.as_ref(), self.resumes)?);
        Ok(self)
    }

    pub(crate) fn counters(&self) -> PlayCounters {
        self.counters.counters()
    }

    /// Returns the divergences since the last call, the oldest first.
    pub(crate) fn take_divergences(&self) -> Vec<Divergence> {
        self.counters.take_divergences()
    }

    /// Returns whether the store has the conversation of a recording, or a part of it.
    pub(crate) async fn is_stored(&self, recording: &Recording) -> Result<bool, PlayError> {
        let head = self.store.head(&recording.key()).await;
        let head = head.map_err(|source| load_failed(recording, source))?;
        Ok(head.revision != Revision::ABSENT)
    }

    /// Plays one recording to its end, or until the stack makes other service calls than the
    /// recording. Divergences are not errors: see [`take_divergences`](Self::take_divergences).
    pub(crate) async fn play(&self, recording: &Recording) -> Result<(), PlayError> {
        let Some(covered) = self.covered(recording).await? else { return Ok(()) };
        let plan = Plan::new(recording.messages(), covered.messages);
        self.import(recording, &plan, covered.revision).await?;
        let mut resume = covered.resume;
        let script = Script::new(recording, &plan, self.verifies, &self.counters);
        let mut pipeline = self.pipeline(&script);
        for (number, run) in plan.runs.iter().enumerate() {
            script.begin_run(run.answers.len());
            let request = match resume.take() {
                Some(Resume { request, resumes_with_tools }) => {
                    if resumes_with_tools {
                        script.resume_with_tools();
                    }
                    request
                }
                None => request(recording, run),
            };
            let played = self.run(&mut pipeline, request).await;
            if script.is_overrun() {
                return Ok(());
            }
            let conversation = || recording.id().to_owned();
            played.map_err(|source| PlayError::Run {
                conversation: conversation(),
                run: number,
                source,
            })?;
            if !script.ended_as_recorded() {
                return Ok(());
            }
        }
        if self.verifies && (!plan.runs.is_empty() || !plan.import.is_empty()) {
            self.verify_stored(recording, plan.end).await?;
        }
        Ok(())
    }

    /// Returns the stored part of a recording, or `None` if it diverges from the recording.
    async fn covered(&self, recording: &Recording) -> Result<Option<Covered>, PlayError> {
        if !self.resumes {
            if self.is_stored(recording).await? {
                return Err(PlayError::AlreadyStored { conversation: recording.id().to_owned() });
            }
            let revision = Revision::ABSENT;
            return Ok(Some(Covered { messages: 0, revision, resume: None }));
        }
        let history = self.store.load(&recording.key()).await;
        let mut history = history.map_err(|source| load_failed(recording, source))?;
        let open = open_run(&self.store, &recording.key()).await;
        let open = open.map_err(|source| load_failed(recording, source))?;
        if let Some(open) = &open {
            history.messages.extend(open.messages.iter().cloned());
        }
        let alignment = Alignment::of(recording, &history.messages);
        if self.verifies && !alignment.differences.is_empty() {
            self.stored_differs(recording, alignment.differences);
            return Ok(None);
        }
        if let Some(message) = alignment.other_shape {
            let conversation = recording.id().to_owned();
            return Err(PlayError::OtherRecording { conversation, message });
        }
        let mut covered =
            Covered { messages: alignment.covered, revision: history.head.revision, resume: None };
        if let Some(open) = open {
            // If the last stored message has calls, the play first executes them. The plan
            // therefore begins with this message.
            let resumes_with_tools =
                history.messages.last().is_some_and(|message| message.calls().next().is_some());
            covered.messages -= usize::from(resumes_with_tools);
            covered.resume = Some(Resume { request: open.resume(), resumes_with_tools });
        }
        Ok(Some(covered))
    }

    /// Appends the messages before the first run unchanged.
    async fn import(
        &self,
        recording: &Recording,
        plan: &Plan,
        expected: Revision,
    ) -> Result<(), PlayError> {
        let messages = inputs(recording, plan.import.clone());
        if messages.is_empty() {
            return Ok(());
        }
        let failed = |source: BoxError| PlayError::Import {
            conversation: recording.id().to_owned(),
            source,
        };
        let id = MessageId { run: run_id(recording, plan.import.start), index: 0 };
        let write = Write::new(recording.key(), id, expected, messages);
        let slot = self.store.reserve().await.map_err(|error| failed(error.into()))?;
        let appended: Result<Revision, AppendError> = self.store.append(slot, vec![write]).await;
        appended.map(drop).map_err(|error| failed(error.source.into()))
    }

    /// Builds the stack without a `ChatPipeline`. A pipeline reads the hooks of its tools when it
    /// is built, but the tools of a recording change with each answer.
    fn pipeline(&self, script: &Script) -> Pipeline {
        let tool_loop = ToolLoopLayer::new(RecordedTools(script.clone()))
            .unlimited_rounds()
            .unlimited_failing_rounds()
            .max_calls(None);
        // No other process uses the store. With a lease, a resumed run would wait until the lease
        // of the earlier process expires.
        let journal = JournalPolicy::default().with_lease(Duration::ZERO);
        // Otherwise, replay would add results that the recording does not contain.
        let policy = PersistencePolicy::default()
            .on_store_failure(StoreFailure::FailCall)
            .with_journal(journal)
            .with_dangling_calls(DanglingCalls::Drop);
        let below = PerServiceCallPersistence::new(self.store.clone());
        let client = tool_loop.layer(below.layer(RecordedModel(script.clone())));
        let above = PerRunPersistence::new(self.store.clone()).mode(self.mode).policy(policy);
        BoxCloneSyncService::new(above.layer(client))
    }

    async fn run(&self, pipeline: &mut Pipeline, mut request: ChatRequest) -> Result<(), BoxError> {
        if self.streams {
            request = request.streamed();
        }
        pipeline.ready().await?.call(request).await?.collect().await?;
        Ok(())
    }

    /// Compares the stored messages with the recording. No request contains the last answer.
    async fn verify_stored(&self, recording: &Recording, end: usize) -> Result<(), PlayError> {
        let history = self.store.load(&recording.key()).await;
        let history = history.map_err(|source| load_failed(recording, source))?;
        let mut alignment = Alignment::of(recording, &history.messages);
        for position in alignment.covered..end {
            let expected =
                recording.messages().get(position).map(|recorded| recorded.json.to_string());
            let expected = expected.unwrap_or_default();
            alignment.differences.push((position, Difference::Missing { expected }));
        }
        self.stored_differs(recording, alignment.differences);
        Ok(())
    }

    fn stored_differs(&self, recording: &Recording, differences: Vec<(usize, Difference)>) {
        for (message, difference) in differences {
            self.counters.diverged(Divergence {
                conversation: recording.id().to_owned(),
                service_call: None,
                message,
                difference,
            });
        }
    }
}

impl std::fmt::Debug for Player {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Player")
            .field("mode", &self.mode)
            .field("streams", &self.streams)
            .field("verifies", &self.verifies)
            .field("resumes", &self.resumes)
            .finish_non_exhaustive()
    }
}

struct Covered {
    messages: usize,
    revision: Revision,
    /// How to resume a journaled run, if an earlier play was interrupted.
    resume: Option<Resume>,
}

struct Resume {
    request: ChatRequest,
    /// Whether the run was interrupted while the tools of its last answer ran.
    resumes_with_tools: bool,
}

fn request(recording: &Recording, run: &PlannedRun) -> ChatRequest {
    let input: Messages = inputs(recording, run.input.clone()).into_iter().collect();
    let run = run_id(recording, run.input.start + 1);
    ChatRequest::new(input).with_extension(Conversation { key: recording.key(), run })
}

/// Returns the id of the run that begins at a position in a recording. The id must be the same in
/// every play, because call ids are generated from it. Later runs must have later ids: the time in
/// this UUID of version 7 (RFC 9562) is the position.
fn run_id(recording: &Recording, position: usize) -> RunId {
    let hash = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, recording.id()).hash(&mut hasher);
        hasher.finish()
    };
    let (version, variant) = (7_u128 << 76, 2_u128 << 62);
    let time = (position as u128) << 80;
    let random = (u128::from(hash(0) & 0x0fff) << 64) | u128::from(hash(1) >> 2);
    RunId::from_bytes((time | version | variant | random).to_be_bytes())
}

fn load_failed(recording: &Recording, source: StoreError) -> PlayError {
    PlayError::Load { conversation: recording.id().to_owned(), source }
}

fn inputs(recording: &Recording, range: std::ops::Range<usize>) -> Vec<Arc<Message>> {
    let messages = recording.messages().get(range).unwrap_or_default();
    messages.iter().map(|recorded| recorded.message.clone()).collect()
}
