//! The entries of a conversation, in their original and in their stored form. A hook of a tool may
//! drop or change a call or a result before it is stored.

use crate::contract_model::{
    approvals::{Decision, report},
    compaction,
    media::Medium,
    script::UserMessage,
    tools::{
        Hook, NOT_STORED, STOPPED, Tool, arguments, queued_text, stored_arguments, stored_error,
        stored_result,
    },
};

#[derive(Debug, Clone)]
pub(crate) enum Entry {
    Text(UserMessage),
    Approvals {
        answers: Vec<(String, Decision)>,
        message: Option<UserMessage>,
    },
    Answer(Vec<AnswerMessage>),
    Results(Vec<Outcome>),
    /// A message that a tool has queued.
    Queued(String),
}

#[derive(Debug, Clone)]
pub(crate) struct AnswerMessage {
    pub(super) text: Option<String>,
    pub(super) calls: Vec<Call>,
    /// The summary of the earlier messages, if any.
    pub(super) compaction: Option<compaction::Item>,
}

#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) token: String,
    pub(crate) tool: Tool,
    pub(super) hook: Hook,
    pub(super) form: Form,
    /// Whether the limit of rounds has prevented the call.
    pub(super) is_over_limit: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Form {
    Call,
    /// An approval request. The flag is set if the call needs approval itself, and not set if it
    /// waits only because another call of the same answer needs approval.
    Request(bool),
}

#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) token: String,
    pub(super) text: String,
    pub(super) is_error: bool,
    pub(super) status: &'static str,
    pub(super) error: Option<String>,
    /// Whether the tool was executed. The start and end times of the call are then known.
    pub(super) ran: bool,
    pub(super) hook: Hook,
    pub(super) queued: Option<String>,
}

impl Entry {
    pub(super) fn is_answer(&self) -> bool {
        matches!(self, Self::Answer(_) | Self::Results(_) | Self::Queued(_))
    }

    /// Returns whether hooks have dropped all calls of the answer. The requests of a resumed run
    /// omit it.
    pub(super) fn is_without_calls(&self) -> bool {
        let mut calls = self.calls().peekable();
        calls.peek().is_some() && calls.all(|call| call.hook == Hook::Drop)
    }

    pub(super) fn calls(&self) -> impl Iterator<Item = &Call> {
        let answers = match self {
            Self::Answer(answers) => &answers[..],
            _ => &[],
        };
        answers.iter().flat_map(|answer| &answer.calls)
    }

    /// Formats the messages of the entry, in their stored or original form.
    pub(super) fn texts(&self, is_stored: bool) -> Vec<String> {
        let message = |role: &str, parts: Vec<String>| {
            (!parts.is_empty()).then(|| format!("{role} {}", parts.join(" | ")))
        };
        let text = |text: &String| format!("text {text}");
        let of_user = |message: &UserMessage| {
            let media = message.media.iter().map(|medium| format!("media {medium}"));
            [text(&message.text)].into_iter().chain(media).collect::<Vec<_>>()
        };
        match self {
            Self::Text(of) => message("user", of_user(of)).into_iter().collect(),
            Self::Queued(of) => message("user", vec![text(of)]).into_iter().collect(),
            Self::Approvals { answers, message: of } => {
                let answers = answers.iter().map(|(token, decision)| {
                    Decision::text(token, decision.is_approved(), decision.arguments())
                });
                let parts = answers.chain(of.iter().flat_map(of_user)).collect();
                message("user", parts).into_iter().collect()
            }
            Self::Answer(answers) => {
                let answers = answers.iter().filter_map(|answer| {
                    let calls = answer.calls.iter();
                    let calls = calls.filter(|call| !(is_stored && call.hook == Hook::Drop));
                    let calls = calls.map(|call| match call.form {
                        Form::Call => format!("call {}", call.text(is_stored)),
                        Form::Request(needs) => format!("ask {} {needs}", call.text(is_stored)),
                    });
                    let mut parts: Vec<_> = answer.text.iter().map(text).chain(calls).collect();
                    if let Some(item) = &answer.compaction {
                        parts.insert(if item.is_last { parts.len() } else { 0 }, item.text());
                    }
                    message("assistant", parts)
                });
                answers.collect()
            }
            Self::Results(outcomes) => {
                let kept = outcomes.iter().filter(|it| !(is_stored && it.hook == Hook::Drop));
                let results = kept.map(|outcome| format!("result {}", outcome.text(is_stored)));
                message("tool", results.collect()).into_iter().collect()
            }
        }
    }
}

impl Call {
    pub(super) fn text(&self, is_stored: bool) -> String {
        let hides = is_stored && matches!(self.hook, Hook::Arguments | Hook::Both);
        let arguments = if hides { stored_arguments(&self.token) } else { arguments(&self.token) };
        format!("{}({arguments})", self.tool.name(&self.token))
    }
}

impl Outcome {
    pub(super) fn new(token: &str, text: String, status: &'static str) -> Self {
        let token = token.to_owned();
        Self {
            token,
            text,
            is_error: false,
            status,
            error: None,
            ran: false,
            hook: Hook::None,
            queued: None,
        }
    }

    pub(super) fn of_tool(call: &Call, medium: Option<Medium>) -> Self {
        let token = &*call.token;
        let with_medium =
            |text: String| text + &medium.map(|medium| medium.to_string()).unwrap_or_default();
        let outcome = match call.tool {
            tool if tool.fails() => Self {
                is_error: true,
                error: Some(format!("broken {token}")),
                ..Self::new(token, format!("The tool failed: broken {token}"), "error")
            },
            Tool::Stop => Self::new(token, with_medium(format!("stopped {token}")), "ok"),
            Tool::Note => Self {
                queued: Some(queued_text(token)),
                ..Self::new(token, with_medium(format!("found {token}")), "ok")
            },
            _ => Self::new(token, with_medium(format!("found {token}")), "ok"),
        };
        Self { ran: true, hook: call.tool.hook(), ..outcome }
    }

    pub(super) fn stopped(call: &Call) -> Self {
        let stopped = Self::new(&call.token, STOPPED.to_owned(), "stopped");
        Self { is_error: true, hook: call.hook, ..stopped }
    }

    /// Returns the outcome of the tool of an approved call. A hook can no longer drop the call,
    /// because it is already stored.
    pub(super) fn of_approved(call: &Call, decision: &Decision, medium: Option<Medium>) -> Self {
        let outcome = Self::of_tool(call, medium);
        let report = decision.arguments().map(report).unwrap_or_default();
        let text = outcome.text + &report;
        Self { text, hook: outcome.hook.of_result(), ..outcome }
    }

    /// Returns the stored outcome of an approved call whose arguments a hook has changed.
    pub(super) fn not_kept(call: &Call) -> Self {
        let text = "The call was not run: its arguments were not stored.".to_owned();
        let refused = Self::new(&call.token, text, "rejected_arguments");
        Self { is_error: true, hook: call.hook, ..refused }.stored()
    }

    pub(super) fn stored(&self) -> Self {
        let hides = matches!(self.hook, Hook::Result | Hook::Both);
        let error = self.error.clone();
        let error = error.map(|it| if hides { stored_error(&self.token) } else { it });
        Self { text: self.words(true), error, ..self.clone() }
    }

    pub(super) fn words(&self, is_stored: bool) -> String {
        match self.hook {
            Hook::Result | Hook::Both if is_stored => stored_result(&self.token),
            Hook::DropResult if is_stored => NOT_STORED.to_owned(),
            _ => self.text.clone(),
        }
    }

    /// Returns the text of the outcome, followed by `!` if it is an error.
    pub(super) fn text(&self, is_stored: bool) -> String {
        format!("{}{}", self.words(is_stored), if self.is_error { "!" } else { "" })
    }

    pub(super) fn row(&self, call: &Call) -> String {
        let error = self.error.as_ref().map(|error| match self.hook {
            Hook::Result | Hook::Both => stored_error(&self.token),
            _ => error.clone(),
        });
        format!(
            "{} {} [{}] error={error:?} ran={}",
            call.text(true),
            self.status,
            self.text(true),
            self.ran
        )
    }
}
