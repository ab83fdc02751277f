//! The text of an answer while the model generates it.
//!
//! An application may execute its runs in separate tasks, with an update log that contains the
//! deltas of the answers. The text is read from this log. An *attempt* is one execution of a run.

use std::{future::pending, time::Duration};

use tokio::time::{Instant, timeout_at};
use tower_chat_delivery::{
    DeliveryError, DetachedRunsLayer, RunEvent, RunKey, RunReader, UpdatePosition,
};
use tower_chat_layers::{ChatUpdate, ConversationKey, RunId, store::OpenRun};

use crate::view::visible;

/// The maximum number of bytes of the text that a page shows.
const SHOWN: usize = 4096;

/// The text of the message that the model is generating, assembled from the update log.
#[derive(Debug, Default)]
pub(crate) struct LiveText {
    /// The run whose updates are read, and the number of the attempt that executes the run.
    run: Option<(RunId, u32)>,
    /// The reader of the run's updates, if a run is open and its updates can be read.
    reader: Option<RunReader>,
    /// The last bytes of the text, at most [`SHOWN`].
    text: String,
    /// Whether `text` is incomplete because its beginning was removed.
    is_cut: bool,
}

impl LiveText {
    /// Begins to read the updates of the open run, unless the same attempt is read already.
    pub(crate) async fn follow(
        &mut self,
        runs: &DetachedRunsLayer,
        conversation: &ConversationKey,
        open: Option<&OpenRun>,
    ) {
        let run = open.map(|open| (open.run, open.lease.attempt));
        if self.run == run {
            return;
        }
        self.run = run;
        self.reader = None;
        if let Some((run, _)) = run {
            let run = RunKey::new(conversation.clone(), run);
            let attached = runs.attach(&run, UpdatePosition::START).await;
            self.reader = attached.ok().map(RunReader::read_only);
        }
    }

    /// Receives updates until `time` has passed. Returns the text if the updates changed it.
    pub(crate) async fn changed(&mut self, time: Duration) -> Option<String> {
        if self.reader.is_none() {
            self.clear();
        }
        let before = (self.is_cut, self.text.clone());
        let end = Instant::now() + time;
        // `timeout_at` returns a ready update even after `end`.
        while Instant::now() < end
            && let Ok(event) = timeout_at(end, next(&mut self.reader)).await
        {
            self.receive(event);
        }
        let is_changed = (self.is_cut, self.text.as_str()) != (before.0, before.1.as_str());
        is_changed.then(|| self.shown())
    }

    fn receive(&mut self, event: Option<Result<RunEvent, DeliveryError>>) {
        match event {
            Some(Ok(RunEvent::Update { update: ChatUpdate::TextDelta(text), .. })) => {
                self.text.push_str(&text);
                self.cut();
            }
            Some(Ok(RunEvent::Update { update: ChatUpdate::Message(_), .. }))
            | Some(Ok(RunEvent::Restarted { .. })) => self.clear(),
            Some(Ok(RunEvent::Ended(_)) | Err(_)) | None => {
                self.clear();
                self.reader = None;
            }
            Some(Ok(_)) => {}
        }
    }

    fn clear(&mut self) {
        self.text.clear();
        self.is_cut = false;
    }

    /// Removes the beginning of the text if the text is longer than [`SHOWN`] bytes.
    fn cut(&mut self) {
        if let Some(excess) = self.text.len().checked_sub(SHOWN + 1) {
            let boundaries = excess + 1..=self.text.len();
            let from = boundaries.into_iter().find(|&at| self.text.is_char_boundary(at));
            self.text.drain(..from.unwrap_or_default());
            self.is_cut = true;
        }
    }

    fn shown(&self) -> String {
        let mark = if self.is_cut { "…" } else { "" };
        format!("{mark}{}", visible(&self.text))
    }
}

/// Returns the next event of a reader. Without a reader, the future never completes.
async fn next(reader: &mut Option<RunReader>) -> Option<Result<RunEvent, DeliveryError>> {
    match reader {
        Some(reader) => reader.next().await,
        None => pending().await,
    }
}
