//! Makes a summary before the first service call of a run, if the policy requires it.

use tower_chat_core::{ChatRequest, Usage};

use super::{Run, RunLog, Settings};
use crate::{
    replay::{Replay, ReplaySources},
    summarize::{Making, Summarizable},
    telemetry,
};

/// Makes a summary if the history and the input of the run have more tokens than the limit of the
/// policy. The requests of the run then contain the summary. If no summary can be made, the run does
/// not change. Must be called before the first service call of the run.
pub(crate) async fn summarize_before(settings: &Settings, run: &Run, request: &ChatRequest) {
    let Some(summarize) = &settings.policy.summarize else { return };
    let (source, view, own) = {
        let mut log = run.log();
        let Some(source) = log.take_summarizable() else { return };
        (*source, log.conversation.replay.view(), log.input(request))
    };
    let sources = settings.replay_sources(run.key(), request);
    let prices = settings.policy.prices.as_ref();
    let Some(mut making) = Making::of_run(summarize, source, sources, (&view, &own)) else {
        return;
    };
    making.prices = prices;
    let before = making.source.summary_id();
    if making.next().is_none() {
        return telemetry::nothing_to_summarize(run.key());
    }
    let made = making.make_all().await;
    telemetry::summarized(run.key(), made.as_ref().err());
    let Making { source, answers, .. } = making;
    let replay = match source.summary_id() == before {
        true => None,
        false => Some(replay_with_summary(sources, &source).await),
    };
    let mut log = run.log();
    for answer in &answers {
        log.calls.unreported_usage.note(answer, prices);
        log.usage_of_summaries += answer.finish.usage;
    }
    log.conversation.summary = source.summary_id();
    if let Some(replay) = replay {
        log.conversation.replay = replay;
    }
}

async fn replay_with_summary(sources: ReplaySources<'_>, source: &Summarizable) -> Replay {
    let mut replay = source.replay.clone();
    sources.edit(&mut replay, source.summary.as_ref()).await;
    replay
}

impl RunLog {
    /// Removes and returns the history from which the run may make a summary. Returns `None` if the
    /// run must not make one, because an earlier attempt has stored an answer.
    fn take_summarizable(&mut self) -> Option<Box<Summarizable>> {
        let summarizable = self.conversation.summarizable.take();
        summarizable.filter(|_| !self.conversation.has_answers())
    }

    /// Returns the usage of the summaries that this attempt has made, once.
    pub(crate) fn take_usage_of_summaries(&mut self) -> Usage {
        std::mem::take(&mut self.usage_of_summaries)
    }
}
