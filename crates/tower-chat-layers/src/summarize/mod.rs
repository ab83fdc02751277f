//! Makes summaries of long conversations. The last stored summary of a conversation is in force:
//! requests contain this summary in place of the messages that it covers.

mod cover;
mod make;
mod sizes;

use std::{fmt, sync::Arc, time::SystemTime};

use tower::util::BoxCloneSyncService;
use tower_chat_core::{
    BoxError, ChatRequest, ChatResponse, ConversationKey, Message, Usage,
    store::{Capability, HistoryStore, HistorySummary, StoreError},
};
use tower_service::Service;

pub(crate) use self::make::{Summarizable, SummaryFailure, SummaryMaker};
pub(crate) use self::sizes::SizedState;
use self::{cover::Limits, sizes::Sizes};
use crate::{
    PersistenceError,
    replay::{EstimatedTokens, Replay, ReplayPolicy, ReplaySources, ReplaySummary, TokenCounter},
    with_recorded_results,
};

/// The policy for summaries of long conversations. A model writes a summary, the store stores it
/// beside the messages, and requests contain it in place of the messages that it covers.
///
/// A run makes a summary before its first service call, if the history and the input of the run
/// have more tokens than the limit. The number of tokens is the usage of the previous service call
/// of the conversation, if this process has made that call, plus the tokens of the input. Otherwise
/// a [`TokenCounter`] counts the messages. The tokens of instructions and of tool definitions are
/// not counted then, so the limit must leave room for them.
///
/// - **Covered messages.** A summary covers whole turns, from the beginning of the conversation,
///   and the text of the summary before it. A summary does not cover the newest turns
///   ([`with_kept_turns`](Self::with_kept_turns)). If a turn contains a call that waits for
///   approval or was returned to the caller, a summary covers neither this turn nor later turns. If
///   the remaining turns have more than half of the tokens of the limit, the summary covers more
///   turns, but never the newest one. If the covered turns have more tokens than the limit, the run
///   makes several summaries, each of which covers the previous one.
/// - **The request.** The service receives the turns in the form in which the model of the run
///   receives them, and then the prompt. The request has no instructions, no tools and no
///   conversation. If the provider requires definitions of the called tools, as Bedrock does, add
///   them with a layer around the service.
/// - **Failures.** A summary is not made if the service fails, if its answer has no text or is cut
///   off, or if the store refuses the summary. The run then logs a warning, and continues with the
///   summary that was in force before. If the service does not answer, the run waits: limit the
///   time of the service. A stop of the run ends the wait, and no further summary is made.
/// - **Permits.** During the wait, the persistence layer that has begun the run releases the permit
///   of the service below. The service that writes summaries may therefore share a concurrency
///   limit with the model client.
/// - **Runs.** A run keeps the summary with which it began. If the request of the run is sent
///   again, this new attempt uses the summary that is in force when the attempt begins. An attempt
///   does not make a summary if an earlier attempt has stored an answer, or if it resumes a
///   journaled run.
/// - **Usage.** The tokens of the service calls for summaries are part of the usage of the run, in
///   its answer and in the directory (the store's list of conversations with their usage).
///
/// The messages stay stored. After
/// [`Summaries::remove_summary`](tower_chat_core::store::Summaries), requests contain the previous
/// summary again, or the messages if there is none. Runs use a summary in force even if their
/// policy makes none.
///
/// ```
/// use tower_chat::{PersistencePolicy, policy::Summarize, prelude::*};
/// # use tower_chat_testkit::{ScriptedModel, Step};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// # let model = ScriptedModel::new((0..4).map(|n| Step::text(format!("answer {n}"))));
/// # let small_model = ScriptedModel::new([Step::text("Alice looks for a coat.")]);
/// let summarize = Summarize::above(100_000, small_model.clone()).with_kept_turns(10);
/// # let summarize = Summarize::above(60, small_model.clone()).with_kept_turns(1);
/// let agent = ChatPipeline::builder(model.clone())
///     .history(MemoryStore::new())
///     .policy(PersistencePolicy::default().with_summarize(summarize))
///     .build()?;
/// # for n in 0..4 {
/// #     agent.ask(ConversationKey::new("alice", "coats"), format!("question {n}")).await?;
/// # }
/// # assert_eq!(small_model.requests().len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Summarize {
    service: BoxCloneSyncService<ChatRequest, ChatResponse, BoxError>,
    prompt: Arc<str>,
    limit: usize,
    kept_turns: usize,
    counter: Arc<dyn TokenCounter>,
    sizes: Arc<Sizes>,
}

const PROMPT: &str = "Summarise the conversation above. The summary replaces it for the assistant \
                      that continues the conversation, so include everything that later answers \
                      may need: the goals and decisions of the user, facts, names, numbers and \
                      identifiers, the results of tools, and open questions. Write in the language \
                      of the conversation. Do not answer the user, do not call tools, and reply \
                      only with the summary.";

impl Summarize {
    /// Summarises conversations with more than this number of tokens. `service` writes the
    /// summaries: any model client, usually of a small model.
    pub fn above<S>(tokens: usize, service: S) -> Self
    where
        S: Service<ChatRequest, Response = ChatResponse> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
    {
        Self {
            service: BoxCloneSyncService::new(tower::ServiceExt::map_err(service, Into::into)),
            prompt: PROMPT.into(),
            limit: tokens,
            kept_turns: 5,
            counter: Arc::new(EstimatedTokens),
            sizes: Arc::default(),
        }
    }

    /// Sets the prompt, which the service receives after the messages to summarise.
    #[must_use]
    pub fn with_prompt(mut self, prompt: impl Into<Arc<str>>) -> Self {
        self.prompt = prompt.into();
        self
    }

    /// Sets the number of the newest turns that a summary does not cover. The default is 5, and 0
    /// has the effect of 1.
    #[must_use]
    pub fn with_kept_turns(mut self, turns: usize) -> Self {
        self.kept_turns = turns;
        self
    }

    /// Sets the counter of tokens. The default is [`EstimatedTokens`].
    #[must_use]
    pub fn with_token_counter(mut self, counter: impl TokenCounter + 'static) -> Self {
        self.counter = Arc::new(counter);
        self
    }

    /// Makes a summary of a stored conversation now, whatever the number of its tokens is. The
    /// summary covers all turns that may be covered. Returns the summary that is then in force, or
    /// `None` if the conversation has no turn that may be covered.
    ///
    /// The service receives the turns as the default [`ReplayPolicy`] replays them, because this
    /// method does not know the policy of the runs. If the policy of the runs omits results, for
    /// example with [`ToolHistory`](crate::replay::ToolHistory) or because the results are out of
    /// date, the summary may nevertheless contain these results.
    ///
    /// Active runs of the conversation are not blocked. Runs that begin later use the summary. The
    /// usage of the service calls is stored only with the summary.
    ///
    /// # Errors
    ///
    /// Returns [`PersistenceError::NotLoaded`] if the store cannot be read, and
    /// [`PersistenceError::MissingCapability`] if the store stores no summaries. Returns
    /// [`PersistenceError::NotSummarized`] if the service fails, if its answer is not usable, or if
    /// the store does not add the summary. Summaries that were made before the failure remain
    /// stored.
    pub async fn now(
        &self,
        store: &impl HistoryStore,
        key: &ConversationKey,
    ) -> Result<Option<HistorySummary>, PersistenceError> {
        if store.summaries().is_none() {
            let (key, capability) = (key.clone(), Capability::Summaries);
            return Err(PersistenceError::MissingCapability { key, capability });
        }
        let policy = ReplayPolicy::default();
        let not_loaded = |source| PersistenceError::NotLoaded { key: key.clone(), source };
        let source = load_summarizable(store, key, &policy).await.map_err(not_loaded)?;
        let now = SystemTime::now();
        let (channel, tools, run) = (None, None, None);
        let sources = ReplaySources { store, key, policy: &policy, now, channel, tools, run };
        let limits = Limits {
            kept_turns: self.kept_turns,
            kept_tokens: usize::MAX,
            covered_tokens: self.limit,
        };
        let answers = Vec::new();
        let (prices, handle) = (None, None);
        let mut maker =
            SummaryMaker { summarize: self, sources, prices, handle, source, limits, answers };
        match maker.make_all().await {
            // Without a handle, nothing stops the work.
            None | Some(Ok(())) => {
                Ok(maker.source.summary.map(|summary| summary.summary().clone()))
            }
            Some(Err(failure)) => {
                let source = failure.classified();
                Err(PersistenceError::NotSummarized { key: key.clone(), source })
            }
        }
    }

    pub(crate) fn note_size(&self, key: &ConversationKey, state: SizedState, usage: &Usage) {
        self.sizes.note(key, state, usage);
    }

    fn tokens<'m>(&self, messages: impl IntoIterator<Item = &'m Arc<Message>>) -> usize {
        let tokens = messages.into_iter().map(|message| self.counter.tokens(message));
        tokens.fold(0, usize::saturating_add)
    }
}

async fn load_summarizable(
    store: &impl HistoryStore,
    key: &ConversationKey,
    policy: &ReplayPolicy,
) -> Result<Summarizable, StoreError> {
    let history = store.load(key).await?;
    let summary = ReplaySummary::in_force(store, key, &history).await?;
    let completed = with_recorded_results(store, key, &history, policy.dangling_calls).await?;
    let replay = match completed {
        Some(completed) => {
            let mut replay = Replay::new(policy.dangling_calls);
            replay.push_from(&completed, 0);
            replay
        }
        None => Replay::of_long_history(&history, policy.dangling_calls).await,
    };
    Ok(Summarizable { history, replay, summary, run: None })
}

impl fmt::Debug for Summarize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Summarize")
            .field("prompt", &self.prompt)
            .field("limit", &self.limit)
            .field("turns", &self.kept_turns)
            .finish_non_exhaustive()
    }
}
