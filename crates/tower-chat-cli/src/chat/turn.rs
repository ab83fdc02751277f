//! Executes one run: sends a request, and prints the streamed answer.

use std::{pin::pin, sync::Arc, time::Duration};

use futures_util::{StreamExt, TryFutureExt, TryStreamExt, stream};
use tokio::sync::mpsc;
use tower::ServiceExt;
use tower_chat::{
    BoxError, ChatPipeline, ChatRequest, ChatUpdate, Finish, Message, Role, request::EndedBy,
};

use super::{
    interrupts::Interrupts,
    screen::Screen,
    stored::{call_line, call_lines_of, cut},
    tool_events::{ToolEvent, ToolOutcome},
};

/// How a run has ended.
#[derive(Debug)]
pub(super) enum TurnEnd {
    Answered(Box<Finish>),
    /// The user has interrupted the run, which was then stopped or dropped.
    Interrupted,
    Failed(BoxError),
}

/// Prints the updates of a run when they arrive.
#[derive(Debug)]
pub(super) struct Printer {
    pub(super) screen: Screen,
    pub(super) events: mpsc::UnboundedReceiver<ToolEvent>,
    /// The ids of the calls that were printed, and whose results are not in the stream yet.
    reported: Vec<String>,
    /// Whether deltas of the current message were printed.
    has_streamed: bool,
    /// Whether this process executes the tools. In this case the tools send events.
    has_tools: bool,
}

impl Printer {
    pub(super) fn new(screen: Screen, events: mpsc::UnboundedReceiver<ToolEvent>) -> Self {
        Self { screen, events, reported: Vec::new(), has_streamed: false, has_tools: true }
    }

    /// Creates a printer for a run of another process, which prints calls with their messages.
    pub(super) fn of_other_process(screen: Screen) -> Self {
        let (_, events) = mpsc::unbounded_channel();
        Self { has_tools: false, ..Self::new(screen, events) }
    }

    /// Ends the line of an unfinished message, which another attempt generates again.
    pub(super) fn restart(&mut self) {
        self.screen.end_line();
        self.has_streamed = false;
    }

    /// Sends a request and prints the updates of the run. The first interrupt stops the run, which
    /// then stores its messages. The second interrupt drops the run.
    pub(super) async fn run(
        &mut self,
        agent: ChatPipeline,
        mut request: ChatRequest,
        interrupts: &mut Interrupts,
    ) -> TurnEnd {
        self.reported.clear();
        self.has_streamed = false;
        let handle = request.run_handle();
        let response = agent.oneshot(request).map_err(BoxError::from);
        let mut updates = pin!(stream::once(response).try_flatten());
        loop {
            let update = tokio::select! {
                biased;
                Some(event) = self.events.recv() => {
                    self.print_event(event);
                    continue;
                }
                () = interrupts.next() => {
                    self.screen.end_line();
                    if handle.is_stopped() {
                        return TurnEnd::Interrupted;
                    }
                    handle.stop();
                    continue;
                }
                update = updates.next() => update,
            };
            match update {
                Some(Ok(ChatUpdate::Finish(finish))) => {
                    self.print_events();
                    self.screen.end_line();
                    return match finish.ended_by {
                        Some(EndedBy::Stop) => TurnEnd::Interrupted,
                        _ => TurnEnd::Answered(finish),
                    };
                }
                Some(Ok(update)) => self.print_update(update),
                Some(Err(error)) => {
                    self.print_events();
                    self.screen.end_line();
                    return TurnEnd::Failed(error);
                }
                None => {
                    return TurnEnd::Failed(tower_chat::error::TruncatedStream::default().into());
                }
            }
        }
    }

    /// Prints an update other than the [`Finish`], which ends an answer.
    pub(super) fn print_update(&mut self, update: ChatUpdate) {
        match update {
            ChatUpdate::TextDelta(text) => {
                self.screen.answer(&text);
                self.has_streamed = true;
            }
            ChatUpdate::ReasoningDelta(text) => self.screen.reasoning(&text),
            ChatUpdate::Message(message) => {
                self.print_events();
                self.print_message(&message);
            }
            _ => {}
        }
    }

    /// Prints the parts of a whole message that were not printed before: the text, if it was not
    /// streamed, and the results of calls that did not run.
    fn print_message(&mut self, message: &Arc<Message>) {
        if message.role == Role::Assistant {
            if !self.has_streamed {
                self.screen.answer(&message.text());
            }
            self.has_streamed = false;
            self.screen.end_line();
        }
        if !self.has_tools {
            return call_lines_of(message).iter().for_each(|line| self.screen.note(line));
        }
        for result in message.results() {
            let reported = self.reported.iter().position(|id| Some(id) == result.call_id.as_ref());
            match reported {
                Some(index) => drop(self.reported.swap_remove(index)),
                None => {
                    let name = result.name.as_deref().unwrap_or("tool");
                    let text = cut(&result.text());
                    self.screen.note(&format!("  {name} did not run: {text}"));
                }
            }
        }
    }

    fn print_events(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            self.print_event(event);
        }
    }

    fn print_event(&mut self, event: ToolEvent) {
        match event {
            ToolEvent::Began { call_id, tool, arguments } => {
                self.screen.note(&call_line(&tool, &arguments));
                self.reported.push(call_id);
            }
            ToolEvent::Ended { tool, outcome, duration } => {
                let duration = seconds(duration);
                let text = match outcome {
                    ToolOutcome::Done(output) if output.is_error => {
                        format!("failed after {duration}: {}", cut(&output.text()))
                    }
                    ToolOutcome::Done(output) => format!("{} ({duration})", cut(&output.text())),
                    ToolOutcome::Failed(error) => {
                        format!("failed after {duration}: {}", cut(&error))
                    }
                    ToolOutcome::Interrupted => format!("interrupted after {duration}"),
                };
                self.screen.note(&format!("  {tool}: {text}"));
            }
        }
    }
}

pub(super) fn seconds(duration: Duration) -> String {
    match duration.as_millis() {
        milliseconds @ ..1000 => format!("{milliseconds} ms"),
        _ => format!("{:.1} s", duration.as_secs_f64()),
    }
}
