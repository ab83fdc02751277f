//! The progress bar on standard error.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::playback::PlayCounters;

/// A progress bar, which is hidden unless standard error is a terminal.
pub(super) struct Progress(ProgressBar);

impl Progress {
    pub(super) fn new(conversations: usize) -> Self {
        let bar =
            ProgressBar::with_draw_target(Some(conversations as u64), ProgressDrawTarget::stderr());
        if let Ok(style) =
            ProgressStyle::with_template("{bar:30} {pos}/{len} conversations, {msg} [{elapsed}]")
        {
            bar.set_style(style);
        }
        bar.set_message("0 service calls");
        Self(bar)
    }

    /// Advances the bar by one conversation.
    pub(super) fn played_one(&self, counters: PlayCounters) {
        self.0.set_message(format!("{} service calls", counters.service_calls));
        self.0.inc(1);
    }

    /// Hides the bar while a function prints.
    pub(super) fn aside<R>(&self, print: impl FnOnce() -> R) -> R {
        self.0.suspend(print)
    }

    pub(super) fn finish(&self) {
        self.0.finish_and_clear();
    }
}
