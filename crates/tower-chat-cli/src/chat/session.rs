//! [`Session`], which runs a chat from its beginning to its end.

use std::{process::ExitCode, sync::Arc, time::SystemTime};

use tokio::sync::mpsc;
use tower_chat::{
    ChatOptions, ChatPipeline, ChatRequest, ConversationKey, HistoryStore, Message, Tools,
    recovery::{OpenRunReport, open_run},
    run::RunId,
    store::{Head, History},
};

use super::{
    approvals::{Approver, Decision},
    error::ChatError,
    input::Input,
    interrupts::Interrupts,
    provider::ProviderName,
    screen::Screen,
    servers::Approve,
    stored::lines_of,
    tool_events::ToolEvent,
    turn::{Printer, TurnEnd},
};

/// The number of stored messages that are printed when a conversation is continued.
const LAST_MESSAGES: usize = 6;

const HELP: &str = "/exit ends the chat, /retry repeats a message that failed, and all other \
                    lines are sent to the model. Ctrl-C interrupts an answer, or ends the chat at \
                    the prompt";

#[derive(Debug)]
pub(super) struct SessionSettings {
    pub(super) key: ConversationKey,
    pub(super) provider: ProviderName,
    pub(super) approve: Approve,
    pub(super) options: Arc<ChatOptions>,
    pub(super) is_verbose: bool,
    /// Whether the command line contains the name of the conversation.
    pub(super) is_named: bool,
}

pub(super) struct SessionParts {
    pub(super) store: Arc<dyn HistoryStore>,
    pub(super) agent: ChatPipeline,
    pub(super) tools: Tools,
    pub(super) screen: Screen,
    pub(super) input: Input,
    pub(super) interrupts: Interrupts,
    pub(super) events: mpsc::UnboundedReceiver<ToolEvent>,
}

/// A running chat.
pub(super) struct Session {
    pub(super) settings: SessionSettings,
    pub(super) store: Arc<dyn HistoryStore>,
    agent: ChatPipeline,
    tools: Tools,
    pub(super) printer: Printer,
    pub(super) input: Input,
    interrupts: Interrupts,
    /// The last request that failed, for `/retry`.
    failed: Option<ChatRequest>,
    pub(super) has_title: bool,
    /// Whether calls of the conversation wait for approval.
    has_waiting_calls: bool,
}

/// The next step of a session.
pub(super) enum Step {
    /// Reads the next line of the user.
    Line,
    /// Sends this request to the model.
    Ask(ChatRequest),
    /// Ends the chat with this exit code.
    End(ExitCode),
}

impl Session {
    pub(super) fn new(settings: SessionSettings, parts: SessionParts) -> Self {
        let SessionParts { store, agent, tools, screen, input, interrupts, events } = parts;
        let printer = Printer::new(screen, events);
        Self {
            settings,
            store,
            agent,
            tools,
            printer,
            input,
            interrupts,
            failed: None,
            has_title: false,
            has_waiting_calls: false,
        }
    }

    pub(super) async fn run(mut self) -> Result<ExitCode, ChatError> {
        let mut step = self.begin().await?;
        let code = loop {
            step = match step {
                Step::Ask(request) => self.ask(request).await?,
                Step::Line if self.printer.screen.is_open() => self.next_line().await?,
                Step::Line => break ExitCode::SUCCESS,
                Step::End(code) => break code,
            };
        };
        self.printer.screen.finish().map_err(ChatError::Output)?;
        Ok(code)
    }

    /// Prints the last messages of the conversation, continues a run that was interrupted, and asks
    /// the user about calls that wait for approval.
    async fn begin(&mut self) -> Result<Step, ChatError> {
        let history = self.store.load(&self.settings.key).await;
        let history = history.map_err(|source| self.not_read(source))?;
        self.introduce(&history);
        if self.settings.approve.asks() && !self.tools.is_empty() {
            self.printer.screen.mark_pastes();
        }
        self.set_title().await?;
        let open = open_run(&*self.store, &self.settings.key).await;
        match open.map_err(|source| self.not_read(source))? {
            Some(open) => Ok(self.resume(&open)),
            None => self.decide().await,
        }
    }

    fn introduce(&mut self, history: &History) {
        let key = self.settings.key.clone();
        let messages = history.messages.len();
        match messages {
            0 if self.settings.is_named => self.note(&format!("conversation {key} is new")),
            0 => self.note(&format!(
                "conversation {key} is new; to continue it later: tower-chat chat {}, with the \
                 same options",
                key.id()
            )),
            1 => self.note(&format!("conversation {key} has 1 message:")),
            2..=LAST_MESSAGES => self.note(&format!("conversation {key} has {messages} messages:")),
            _ => self
                .note(&format!("conversation {key} has {messages} messages, the last ones are:")),
        }
        for message in history.messages.iter().skip(messages.saturating_sub(LAST_MESSAGES)) {
            lines_of(message).iter().for_each(|line| self.note(line));
        }
    }

    /// Returns the step that continues the run of an earlier process, which was interrupted.
    fn resume(&mut self, report: &OpenRunReport) -> Step {
        let messages = match report.messages.len() {
            1 => "1 message".to_owned(),
            messages => format!("{messages} messages"),
        };
        self.note(&format!("a run was interrupted after {messages}; it continues:"));
        report
            .messages
            .iter()
            .flat_map(|message| lines_of(message))
            .for_each(|line| self.note(&line));
        if report.open.is_held_at(SystemTime::now()) {
            let key = &report.key;
            self.note(&format!(
                "(waiting for the lease of the run to end, because another process may still work on the run; if \
                 that process is dead and its clock was ahead, end the run with recover --end commit --force --scope \
                 {} --conversation {})",
                key.scope(),
                key.id()
            ));
        }
        Step::Ask(report.resume().with_options(self.settings.options.clone()))
    }

    async fn next_line(&mut self) -> Result<Step, ChatError> {
        self.printer.screen.prompt();
        let line = tokio::select! {
            biased;
            () = self.interrupts.next() => {
                self.end_prompt();
                return Ok(Step::End(ExitCode::from(130)));
            }
            line = self.input.next() => line,
        };
        let Some(line) = line else {
            self.end_prompt();
            return Ok(Step::End(self.exit_code()));
        };
        let line = line.map_err(ChatError::Input)?.text;
        match (line.trim(), self.input.is_terminal()) {
            ("", _) => Ok(Step::Line),
            ("/exit", true) => Ok(Step::End(self.exit_code())),
            ("/help", true) => {
                self.note(HELP);
                Ok(Step::Line)
            }
            ("/retry", true) => match self.failed.take() {
                Some(request) => Ok(Step::Ask(request)),
                None => {
                    self.note("no message has failed");
                    Ok(Step::Line)
                }
            },
            _ => Ok(Step::Ask(self.request(Message::user(line)))),
        }
    }

    /// Sends a request and prints the answer. Returns the next step.
    async fn ask(&mut self, request: ChatRequest) -> Result<Step, ChatError> {
        self.failed = None;
        let run = request.conversation().map_or_else(RunId::new, |conversation| conversation.run);
        let turn = self.printer.run(self.agent.clone(), request.clone(), &mut self.interrupts);
        match turn.await {
            TurnEnd::Answered(finish) => {
                self.report_finish(&finish);
                self.set_title().await?;
                self.decide().await
            }
            TurnEnd::Interrupted => {
                self.report_interrupted(run).await?;
                self.set_title().await?;
                match self.input.is_terminal() {
                    true => Ok(Step::Line),
                    false => Ok(Step::End(ExitCode::from(130))),
                }
            }
            TurnEnd::Failed(error) => {
                let error = ChatError::run(&error, self.settings.provider);
                let advice = self.report_of_failure(run).await?;
                if self.input.is_terminal() {
                    crate::output::print_error(&error);
                    self.note(&advice);
                    self.failed = Some(request);
                    return Ok(Step::Line);
                }
                self.note(&advice);
                Err(error)
            }
        }
    }

    /// Asks the user about waiting calls. The returned step sends the decisions, if there are any.
    async fn decide(&mut self) -> Result<Step, ChatError> {
        let head = self.head().await?;
        let mut postponed = false;
        for waiting in &head.pending_approvals {
            let mut approver = Approver {
                approve: self.settings.approve,
                tools: &self.tools,
                screen: &mut self.printer.screen,
                input: &mut self.input,
                interrupts: &mut self.interrupts,
            };
            match approver.decide(waiting).await.map_err(ChatError::Input)? {
                Decision::Made(decisions) => {
                    return Ok(Step::Ask(self.request(Message::approvals(decisions))));
                }
                Decision::Postponed => postponed = true,
                Decision::InputEnded => {
                    self.end_prompt();
                    return Ok(Step::End(ExitCode::SUCCESS));
                }
            }
        }
        self.has_waiting_calls = postponed;
        Ok(Step::Line)
    }

    fn request(&self, message: Message) -> ChatRequest {
        ChatRequest::new([message])
            .with_options(self.settings.options.clone())
            .in_conversation(self.settings.key.clone())
    }

    pub(super) async fn head(&self) -> Result<Head, ChatError> {
        let head = self.store.head(&self.settings.key).await;
        head.map_err(|source| self.not_read(source))
    }

    pub(super) fn note(&mut self, line: &str) {
        self.printer.screen.note(line);
    }

    /// Ends the line of a prompt to which the user has typed nothing.
    fn end_prompt(&mut self) {
        if self.input.is_terminal() {
            self.note("");
        }
    }

    /// Returns 1 if calls wait for approval and standard input is not a terminal, and 0 otherwise.
    fn exit_code(&self) -> ExitCode {
        ExitCode::from(u8::from(self.has_waiting_calls && !self.input.is_terminal()))
    }
}
