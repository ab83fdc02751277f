//! The tools of all cases. A hook of a tool changes or drops what is stored of a call.

use std::fmt;

use serde_json::json;
use tower_chat::{
    BoxError, Message, ToolContext, ToolDefinition, Tools,
    tool::{Retention, StoredCall, ToolOutput, persist_with},
    tool_fn,
};

use tower_chat_testkit::Rng;

use crate::contract_model::{
    media::{self, Medium},
    world::World,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tool {
    /// Returns a result.
    Look,
    /// Returns an error.
    Fail,
    /// Returns a result, and ends the run.
    Stop,
    /// Returns a result, and queues a message for the next service call.
    Note,
    /// Returns a result, and stops the run.
    Halt,
    /// Needs approval.
    Pay,
    /// Needs approval, and its hook changes the result.
    Sign,
    /// Needs approval, and its hook drops the call.
    Vote,
    /// Needs approval, and its hook changes the arguments.
    Wire,
    /// Needs approval, its hook changes the arguments, and the tool accepts the stored arguments.
    Token,
    /// The caller executes the tool.
    Ask,
    /// Its hook changes the arguments and the result.
    Hide,
    /// Its hook changes the result.
    Mask,
    /// Returns an error, and its hook changes the result and the error text.
    Spill,
    /// Its hook drops the call.
    Forget,
    /// No tool with this name is registered.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Hook {
    None,
    Result,
    Arguments,
    Both,
    Drop,
    /// Only the result is dropped.
    DropResult,
}

impl Hook {
    /// Returns the effect of the hook on the result of a call that is already stored.
    pub(crate) fn of_result(self) -> Self {
        if self == Self::Drop { Self::DropResult } else { self }
    }

    /// Returns whether this effect leaves the stored call unchanged.
    pub(crate) fn keeps_call(self) -> bool {
        matches!(self, Self::None | Self::Result)
    }
}

pub(crate) const REGISTERED: [Tool; 15] = [
    Tool::Look,
    Tool::Fail,
    Tool::Stop,
    Tool::Note,
    Tool::Halt,
    Tool::Pay,
    Tool::Sign,
    Tool::Vote,
    Tool::Wire,
    Tool::Token,
    Tool::Ask,
    Tool::Hide,
    Tool::Mask,
    Tool::Spill,
    Tool::Forget,
];

#[derive(Clone, Copy, PartialEq)]
pub(crate) struct ToolMask(u32);

impl fmt::Debug for ToolMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let missing: Vec<_> = REGISTERED.iter().filter(|tool| !self.has(**tool)).collect();
        write!(f, "all tools but {missing:?}")
    }
}

impl ToolMask {
    pub(crate) const ALL: Self = Self(u32::MAX);

    pub(crate) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn random(rng: &mut Rng) -> Self {
        // Each bit is set with a probability of three quarters.
        Self((rng.next() as u32) | (rng.next() as u32))
    }

    pub(crate) fn has(self, tool: Tool) -> bool {
        tool != Tool::Unknown && self.0 & (1 << tool as u32) != 0
    }
}

impl Tool {
    /// Returns the name that the model uses in a call. The name of an unknown tool is different in
    /// each call.
    pub(crate) fn name(self, token: &str) -> String {
        match self {
            Self::Look => "look",
            Self::Fail => "fail",
            Self::Stop => "stop",
            Self::Note => "note",
            Self::Halt => "halt",
            Self::Pay => "pay",
            Self::Sign => "sign",
            Self::Vote => "vote",
            Self::Wire => "wire",
            Self::Token => "token",
            Self::Ask => "ask",
            Self::Hide => "hide",
            Self::Mask => "mask",
            Self::Spill => "spill",
            Self::Forget => "forget",
            Self::Unknown => return format!("nosuch_{token}"),
        }
        .to_owned()
    }

    pub(crate) fn hook(self) -> Hook {
        match self {
            Self::Hide => Hook::Both,
            Self::Mask | Self::Sign | Self::Spill => Hook::Result,
            Self::Wire | Self::Token => Hook::Arguments,
            Self::Forget | Self::Vote => Hook::Drop,
            Self::Look
            | Self::Fail
            | Self::Stop
            | Self::Note
            | Self::Halt
            | Self::Pay
            | Self::Ask
            | Self::Unknown => Hook::None,
        }
    }

    pub(crate) fn needs_approval(self) -> bool {
        matches!(self, Self::Pay | Self::Sign | Self::Vote | Self::Wire | Self::Token)
    }

    pub(crate) fn fails(self) -> bool {
        matches!(self, Self::Fail | Self::Spill)
    }
}

pub(crate) fn arguments(token: &str) -> String {
    format!(r#"{{"call":"{token}"}}"#)
}

pub(crate) fn stored_arguments(token: &str) -> String {
    format!(r#"{{"hidden":"{token}"}}"#)
}

pub(crate) fn stored_result(token: &str) -> String {
    format!("hidden result of {token}")
}

pub(crate) const NOT_STORED: &str =
    "The result was not stored: the tool of the call does not allow it.";

pub(crate) fn queued_text(token: &str) -> String {
    format!("noted {token}")
}

/// The result of a call whose tool was not started, because its run was stopped.
pub(crate) const STOPPED: &str =
    "The call was not run: the run was stopped before the call started.";

pub(crate) fn stored_error(token: &str) -> String {
    format!("hidden error of {token}")
}

/// Returns the first word that consists of a `t` followed by digits and underscores.
pub(crate) fn token_in(text: &str) -> Option<&str> {
    let is_token = |text: &&str| {
        text.strip_prefix('t').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .flat_map(|word| [word, word.strip_prefix("nosuch_").unwrap_or(word)])
        .find(is_token)
}

pub(crate) fn registered(mask: ToolMask, world: &World) -> Tools {
    let kinds = REGISTERED.into_iter().filter(|kind| mask.has(*kind));
    kinds.fold(Tools::new(), |tools, kind| {
        let mut definition =
            ToolDefinition::new(kind.name(""), "A tool.", json!({"type": "object"}));
        definition.needs_approval = kind.needs_approval();
        definition.accepts_stored_arguments = kind == Tool::Token;
        if kind == Tool::Ask {
            return tools.declare(definition);
        }
        let ran = world.clone();
        let tool = tool_fn(definition, move |context| {
            let output = run(kind, &context, &ran);
            async move { output }
        });
        let hooked = world.clone();
        match kind.hook() {
            Hook::None => tools.with(tool),
            hook => tools.with(persist_with(tool, move |call| {
                if hooked.loses_hook(call) { Ok(Retention::Keep) } else { persist(hook, call) }
            })),
        }
    })
}

fn run(kind: Tool, context: &ToolContext, world: &World) -> Result<ToolOutput, BoxError> {
    let token = token_in(context.arguments()).unwrap_or_default().to_owned();
    world.tool_runs(format!("{}({})", kind.name(&token), context.arguments()));
    let output = |text: String| {
        let mut output = ToolOutput::from(text);
        output.content.extend(media::of_tool(world.case(), &token).map(Medium::part));
        output
    };
    match kind {
        _ if kind.fails() => Err(format!("broken {token}").into()),
        Tool::Stop => Ok(output(format!("stopped {token}")).terminate()),
        Tool::Note => {
            context.queue(Message::user(queued_text(&token)));
            Ok(output(format!("found {token}")))
        }
        Tool::Halt => {
            if !world.misses_stop() {
                context.run_handle().stop();
            }
            Ok(output(format!("found {token}")))
        }
        _ => Ok(output(format!("found {token}"))),
    }
}

fn persist(hook: Hook, call: &mut StoredCall<'_>) -> Result<Retention, BoxError> {
    let token = token_in(&call.call().arguments).unwrap_or_default().to_owned();
    if matches!(hook, Hook::Arguments | Hook::Both) {
        call.redact_arguments(stored_arguments(&token));
    }
    let is_rejection =
        call.result().is_some_and(|result| result.text().starts_with("The call was rejected"));
    if matches!(hook, Hook::Result | Hook::Both) && !is_rejection {
        call.redact_result(stored_result(&token));
        if call.error().is_some() {
            call.redact_error(Some(stored_error(&token)));
        }
    }
    Ok(if hook == Hook::Drop && !is_rejection { Retention::Forget } else { Retention::Keep })
}
