//! Makes summaries: requests the text from the service, and adds the summary to the store. A
//! summary covers the first messages of a conversation. The last stored summary is in force:
//! requests contain this summary in place of the covered messages.

use std::{pin::pin, sync::Arc};

use futures_util::future::{Either, select};
use tower::ServiceExt;
use tower_chat_core::{
    Answer, BoxError, ChatRequest, Classified, FinishReason, Message, Messages, RefusalMarks,
    RunHandle, RunId, is_retryable,
    store::{AddedSummary, History, HistorySummary, StoreError, Summaries as _},
};

use super::{
    Summarize,
    cover::{Limits, messages_to_cover},
    sizes::SizedState,
};
use crate::{
    policy::PriceList,
    replay::{Covered, Replay, ReplayPolicy, ReplaySources, ReplaySummary},
    run::usage_of,
};

/// The loaded history of a conversation, from which a summary can be made.
#[derive(Debug, Clone)]
pub(crate) struct Summarizable {
    pub(crate) history: History,
    /// The replay before the steps of the replay policy.
    pub(crate) replay: Replay,
    pub(crate) summary: Option<ReplaySummary>,
    /// The run that makes the summary, whose stored input is not covered.
    pub(crate) run: Option<RunId>,
}

impl Summarizable {
    fn covered(&self) -> usize {
        let covers_to = self.summary.as_ref().map_or(0, |summary| summary.summary().covers_to);
        let covered = covers_to.saturating_sub(self.history.skipped());
        usize::try_from(covered).unwrap_or(usize::MAX)
    }

    /// Returns the messages before those of the run.
    fn earlier_messages(&self) -> Messages {
        let messages = &self.history.messages;
        let is_earlier =
            |message: &Arc<Message>| self.run.is_none() || message.id.map(|id| id.run) != self.run;
        messages.take(messages.iter().rposition(is_earlier).map_or(0, |last| last + 1))
    }

    pub(crate) fn summary_id(&self) -> Option<u64> {
        self.summary.as_ref().map(|summary| summary.summary().id)
    }
}

/// Makes the summaries of one conversation.
pub(crate) struct SummaryMaker<'a> {
    pub(super) summarize: &'a Summarize,
    pub(super) sources: ReplaySources<'a>,
    pub(crate) prices: Option<&'a PriceList>,
    /// The handle that can stop the run.
    pub(crate) handle: Option<&'a RunHandle>,
    pub(super) limits: Limits,
    /// The history, with its newest summary.
    pub(crate) source: Summarizable,
    /// All answers of the service, including unusable ones.
    pub(crate) answers: Vec<Answer>,
}

/// The cause for which a summary was not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SummaryFailure {
    #[error("the service that writes summaries failed")]
    Service(#[source] BoxError),
    #[error("the service returned no text for the summary")]
    NoText,
    #[error(
        "the text of the summary was cut off: give the service a larger limit of output tokens"
    )]
    CutOff,
    #[error("the store could not add the summary")]
    Store(#[from] StoreError),
    #[error("the store did not add the summary: {}", reason(*.0))]
    NotAdded(AddedSummary),
}

fn reason(outcome: AddedSummary) -> &'static str {
    match outcome {
        AddedSummary::NoSuchMessage => "the messages that it covers are not stored any more",
        AddedSummary::Rewritten => "messages of the conversation were rewritten meanwhile",
        AddedSummary::Superseded => "another summary of these messages was added meanwhile",
        _ => "the conversation has changed meanwhile",
    }
}

impl SummaryFailure {
    pub(crate) fn classified(self) -> BoxError {
        match self {
            Self::NotAdded(_) => Classified::retryable(self).into(),
            Self::NoText | Self::CutOff | Self::Service(_) | Self::Store(_) => {
                match is_retryable(&self) {
                    Some(_) => self.into(),
                    None => Classified::permanent(self).into(),
                }
            }
        }
    }
}

impl<'a> SummaryMaker<'a> {
    /// Begins to make the summaries of a run, if it exceeds the limit. `view` contains the history
    /// as the model receives it, and `own` the input of the run.
    pub(crate) fn of_run(
        summarize: &'a Summarize,
        source: Summarizable,
        sources: ReplaySources<'a>,
        (view, own): (&Messages, &[Arc<Message>]),
    ) -> Option<Self> {
        let own = summarize.tokens(own);
        let counted = summarize.tokens(view).saturating_add(own);
        let last_run = source.history.messages.last().and_then(|last| last.id).map(|id| id.run);
        let state = SizedState {
            run: last_run?,
            summary: source.summary_id(),
            pruned: source.history.head.pruned,
            rewrites: source.history.head.rewrites,
        };
        let known = summarize.sizes.of(sources.key, state);
        let size = known.map_or(counted, |known| known.saturating_add(own));
        if size <= summarize.limit {
            return None;
        }
        // The counter measures the turns, but the limit is in tokens of the provider if the size of
        // the conversation is known.
        let by_counter = |tokens: usize| scaled(tokens, counted, size);
        let limits = Limits {
            kept_turns: summarize.kept_turns,
            kept_tokens: by_counter(summarize.limit / 2).saturating_sub(own),
            covered_tokens: by_counter(summarize.limit),
        };
        Some(Self {
            summarize,
            sources,
            prices: None,
            handle: None,
            limits,
            source,
            answers: Vec::new(),
        })
    }

    /// Makes summaries until no further turn (the messages of one run) may be covered. Returns
    /// `None` if the run is stopped. Summaries that were made before a stop or a failure remain
    /// stored.
    pub(crate) async fn make_all(&mut self) -> Option<Result<(), SummaryFailure>> {
        while let Some(covered) = self.next_covered() {
            let request = self.request(covered).await;
            let added = match self.call(request).await? {
                Ok(answer) => self.add_summary(covered, answer).await,
                Err(error) => Err(SummaryFailure::Service(error)),
            };
            if added.is_err() {
                return Some(added);
            }
        }
        Some(Ok(()))
    }

    /// Calls the service. Returns `None` if the run is stopped before the service has answered.
    async fn call(&self, request: ChatRequest) -> Option<Result<Answer, BoxError>> {
        let service = self.summarize.service.clone();
        let answer = async { service.oneshot(request).await?.collect().await };
        let Some(handle) = self.handle else { return Some(answer.await) };
        match select(pin!(handle.stopped()), pin!(answer)).await {
            Either::Left(_) => None,
            Either::Right((answer, _)) => Some(answer),
        }
    }

    /// Returns the number of messages that the next summary covers, from the beginning of the
    /// history.
    pub(crate) fn next_covered(&self) -> Option<usize> {
        let before = self.source.covered();
        let uncovered = self.source.earlier_messages().skip(before);
        let next = messages_to_cover(&uncovered, &*self.summarize.counter, self.limits)?;
        Some(before + next)
    }

    async fn add_summary(&mut self, covered: usize, answer: Answer) -> Result<(), SummaryFailure> {
        let (text, usage) = (answer.text(), usage_of(&answer, self.prices));
        let model = answer.finish.model.as_deref().map(Into::into);
        let is_cut = matches!(
            answer.finish.reason,
            Some(FinishReason::Length | FinishReason::ContentFilter)
        );
        self.answers.push(answer);
        if text.trim().is_empty() {
            return Err(SummaryFailure::NoText);
        }
        if is_cut {
            return Err(SummaryFailure::CutOff);
        }
        let history = &self.source.history;
        let last = covered.checked_sub(1).and_then(|last| history.messages.get(last)?.id);
        let last = last.ok_or(SummaryFailure::NotAdded(AddedSummary::NoSuchMessage))?;
        let summary = HistorySummary::new(history.skipped() + covered as u64, last, text)
            .with_made_by(model)
            .with_time(self.sources.now)
            .with_usage(usage);
        let ReplaySources { store, key, .. } = self.sources;
        match store.add_summary(key, &summary, history.head.rewrites).await? {
            AddedSummary::Stored => {
                self.source.summary = ReplaySummary::of(history, summary);
                Ok(())
            }
            AddedSummary::Superseded => {
                // Uses the newest summary of another process, if it belongs to the loaded history.
                let newest = store.history_summaries(key).await?.pop();
                if let Some(newest) = newest.and_then(|newest| ReplaySummary::of(history, newest)) {
                    self.source.summary = Some(newest);
                }
                Err(SummaryFailure::NotAdded(AddedSummary::Superseded))
            }
            refused => Err(SummaryFailure::NotAdded(refused)),
        }
    }

    async fn request(&self, covered: usize) -> ChatRequest {
        let Summarizable { history, replay, summary, .. } = &self.source;
        let policy = ReplayPolicy { window: None, ..self.sources.policy.clone() };
        let mut replay = replay.clone();
        // The open round may contain results of earlier calls, which are not covered.
        replay.retract_answered_by(&[]);
        let sources = ReplaySources { policy: &policy, ..self.sources };
        sources.edit(&mut replay, summary.as_ref()).await;
        let covered = Covered::of(&history.messages, covered);
        let mut messages = Messages::new();
        replay.edit_closed(|closed| {
            messages = covered.split(closed).0;
            Messages::new()
        });
        messages.push(Message::user(&*self.summarize.prompt));
        let mut request = ChatRequest::new(messages);
        // The model client omits content that its service has refused before.
        let refused = self.source.replay.refused();
        if !refused.is_empty() {
            request.extensions.insert(RefusalMarks::new(refused.iter().cloned()));
        }
        request
    }
}

fn scaled(tokens: usize, numerator: usize, denominator: usize) -> usize {
    let [tokens, numerator, denominator] =
        [tokens, numerator, denominator].map(|number| number as u128);
    let scaled = (tokens * numerator).checked_div(denominator);
    scaled.and_then(|scaled| usize::try_from(scaled).ok()).unwrap_or(usize::MAX)
}
