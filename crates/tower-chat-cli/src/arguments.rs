//! What is said on the command line.

use std::{num::NonZeroUsize, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use tower_chat::{PersistenceMode, core::ToolStatus};

use crate::store::StoreLocation;

/// Durable histories of tool-calling conversations.
#[derive(Debug, Parser)]
#[command(name = "tower-chat", version, about, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Drive recorded conversations through the real stack, into a store
    ///
    /// Each line of FILE is a conversation: {"id": ..., "messages": [OpenAI chat format]}. Recorded
    /// assistant messages are the model's answers, recorded tool results are what the tools return,
    /// and everything the model is sent is compared with the recording. The last line of the output
    /// is a JSON object that says what was done.
    ///
    /// Exit codes: 0, played as recorded; 1, something diverged; 2, something failed; 130,
    /// interrupted.
    Play(PlayArguments),
    /// Print the conversations of a store, one JSON object a line
    ///
    /// Each line is {"id": ..., "messages": [OpenAI chat format]}, in the order of the ids, with the
    /// messages that a model would be shown.
    Export(ExportArguments),
    /// List and total the tool calls of a store
    ///
    /// Rows of the record that cannot be read are reported on standard error; the others count.
    Tools(ToolsArguments),
    /// Check a whole database, and list what is wrong
    ///
    /// The file is sound; every message can be read, and none is missing; calls and results belong
    /// together, in the messages and in the record of tool calls; and what a model is shown of each
    /// conversation is valid. A line is printed for each problem.
    ///
    /// Exit codes: 0, all is well; 1, there are problems; 2, the store cannot be used.
    Verify(VerifyArguments),
    /// Repair what verify finds, for good
    ///
    /// A call without a result gets the one in the record of tool calls, or else one that says it
    /// may or may not have taken effect; a result that answers no call, or answers one again, is
    /// moved into the metadata of its message; rows of the record that refer to nothing go. Calls
    /// that wait for approval are left alone, as is everything that cannot be read. Each
    /// conversation is changed at once or not at all; a run that is under way in it is refused its
    /// next write.
    ///
    /// Exit codes: 0, nothing is wrong any more; 1, something is left, or with --dry-run something
    /// is to be done; 2, the store cannot be used.
    Repair(RepairArguments),
}

/// What `play` is told.
#[derive(Debug, Args)]
pub(crate) struct PlayArguments {
    /// The recorded conversations, one JSON object a line
    #[arg(value_name = "FILE.jsonl")]
    pub(crate) file: PathBuf,
    /// Where histories are kept: sqlite:PATH (made if missing), or memory:
    #[arg(long, value_name = "STORE")]
    pub(crate) store: StoreLocation,
    /// When messages become durable
    #[arg(long, value_enum, default_value_t = Persistence::PerRun)]
    pub(crate) persistence: Persistence,
    /// Ask for answers as streams
    #[arg(long)]
    pub(crate) stream: bool,
    /// How many conversations are played at the same time
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) concurrency: NonZeroUsize,
    /// Go on with conversations that are partly in the store
    #[arg(long)]
    pub(crate) resume: bool,
    /// Compare what the model is sent, and what is stored, with the recording (the default)
    #[arg(long)]
    pub(crate) verify: bool,
    /// Compare nothing
    #[arg(long, conflicts_with = "verify")]
    pub(crate) no_verify: bool,
}

/// What `export` is told.
#[derive(Debug, Args)]
pub(crate) struct ExportArguments {
    /// The store: sqlite:PATH
    #[arg(long, value_name = "STORE")]
    pub(crate) store: StoreLocation,
    /// Print everything that is stored: calls without a result and calls that wait for approval too
    ///
    /// What the OpenAI chat format has no place for stands in a field x_parts.
    #[arg(long)]
    pub(crate) record: bool,
    /// Print the conversations of this scope alone
    #[arg(long)]
    pub(crate) scope: Option<String>,
}

/// What `tools` is told.
#[derive(Debug, Args)]
pub(crate) struct ToolsArguments {
    /// The store: sqlite:PATH
    #[arg(long, value_name = "STORE")]
    pub(crate) store: StoreLocation,
    /// Print one JSON object: {"total": N, "tools": [{"name", "calls", "errors", "open",
    /// "duration_ms"}]}, tools in the byte order of their names
    #[arg(long)]
    pub(crate) json: bool,
    /// Print each call too; with --json in a list "calls"
    #[arg(long)]
    pub(crate) list: bool,
    /// Only calls in conversations of this scope
    #[arg(long)]
    pub(crate) scope: Option<String>,
    /// Only calls in the conversation of this id
    #[arg(long, value_name = "ID")]
    pub(crate) conversation: Option<String>,
    /// Only calls of this tool
    #[arg(long, value_name = "NAME")]
    pub(crate) tool: Option<String>,
    /// Only calls that went so: ok, error, rejected_by_approval, rejected_arguments, unknown_tool,
    /// skipped_budget, pending, pending_approval or interrupted
    #[arg(long)]
    pub(crate) status: Option<ToolStatus>,
}

/// What `verify` is told.
#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    /// The store: sqlite:PATH
    #[arg(long, value_name = "STORE")]
    pub(crate) store: StoreLocation,
}

/// What `repair` is told.
#[derive(Debug, Args)]
pub(crate) struct RepairArguments {
    /// The store: sqlite:PATH
    #[arg(long, value_name = "STORE")]
    pub(crate) store: StoreLocation,
    /// Print what would be done, and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Persistence {
    /// Each run at its end, at once or not at all
    PerRun,
    /// Each service call when it has answered
    PerServiceCall,
}

impl From<Persistence> for PersistenceMode {
    fn from(persistence: Persistence) -> Self {
        match persistence {
            Persistence::PerRun => Self::PerRun,
            Persistence::PerServiceCall => Self::PerServiceCall,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        super::Arguments::command().debug_assert();
    }
}
