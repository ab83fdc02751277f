//! Makes a summary before the first service call of a run, if the policy requires it.

use std::pin::pin;

use futures_util::FutureExt;
use tower_chat_core::{BoxError, ChatRequest, RunHandle, Usage};

use super::{
    BegunBy, Run, Settings, conversation::LoadedConversation, log::RunLog, usage::model_usage,
};
use crate::{
    chat_service::ChatService,
    summarize::{SizedState, Summarizable, SummaryMaker},
    telemetry,
    wait_without_permit::wait_without_permit,
};

/// Makes a summary if the run has more tokens than the limit of the policy. The requests of the run
/// then contain the summary. If no summary can be made, or if the run is stopped, the run does not
/// change. Must be called before the first service call.
///
/// During the wait, `service` has no permit, because the service that writes the summary may need
/// it.
pub(crate) async fn summarize_before<S: ChatService>(
    service: &mut S,
    settings: &Settings,
    run: &Run,
    request: &ChatRequest,
) -> Result<(), BoxError> {
    if settings.policy.summarize.is_none() {
        return Ok(());
    }
    // Boxed, because the future of every run would otherwise contain this future.
    let summarized = Box::pin(use_new_summary(settings, run, request));
    wait_without_permit(service, pin!(summarized.map(Ok))).await
}

async fn use_new_summary(settings: &Settings, run: &Run, request: &ChatRequest) {
    let Some(summarize) = &settings.policy.summarize else { return };
    let (source, view, own) = {
        let mut log = run.log();
        let Some(source) = log.conversation.take_summarizable() else { return };
        // The replay contains the stored input of a run that is sent again.
        let own = if log.has_stored() { Vec::new() } else { log.conversation.input(request) };
        (*source, log.conversation.replay.view(), own)
    };
    let sources = settings.replay_sources(run.conversation(), request);
    let prices = settings.policy.prices.as_ref();
    let Some(mut maker) = SummaryMaker::of_run(summarize, source, sources, (&view, &own)) else {
        return;
    };
    maker.prices = prices;
    // If no layer above has begun the run, the tool loop drops this future at a stop. With the
    // handle, the persister would continue with the service call before that.
    maker.handle =
        request.extensions.get::<RunHandle>().filter(|_| run.begun_by() == BegunBy::LayerAbove);
    let before = maker.source.summary_id();
    if maker.next_covered().is_none() {
        return telemetry::nothing_to_summarize(run.key());
    }
    if let Some(made) = maker.make_all().await {
        telemetry::summarized(run.key(), made.as_ref().err());
    }
    let SummaryMaker { source, answers, .. } = maker;
    let replay = match source.summary_id() == before {
        true => None,
        false => {
            let mut replay = source.replay.clone();
            sources.edit(&mut replay, source.summary.as_ref()).await;
            Some(replay)
        }
    };
    let mut log = run.log();
    for answer in &answers {
        log.calls.unreported_usage.push(model_usage(answer, prices));
        log.usage_of_summaries += answer.finish.usage;
    }
    log.conversation.summary = source.summary_id();
    if let Some(replay) = replay {
        log.conversation.replay = replay;
    }
}

impl LoadedConversation {
    /// Takes the history from which the run may make a summary. `None` if an earlier attempt has
    /// stored an answer.
    fn take_summarizable(&mut self) -> Option<Box<Summarizable>> {
        let summarizable = self.summarizable.take();
        summarizable.filter(|_| !self.added.has_answers())
    }

    pub(super) fn sized_state(&self) -> SizedState {
        let head = &self.history.head;
        let (pruned, rewrites) = (head.pruned, head.rewrites);
        SizedState { run: self.added.run, summary: self.summary, pruned, rewrites }
    }
}

impl RunLog {
    /// Takes the usage of the summaries that this attempt has made.
    pub(crate) fn take_usage_of_summaries(&mut self) -> Usage {
        std::mem::take(&mut self.usage_of_summaries)
    }
}
