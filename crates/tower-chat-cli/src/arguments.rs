//! The command line.

use std::{num::NonZeroUsize, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use tower_chat::{PersistenceMode, ToolStatus};

use crate::{
    backup::BackupArguments, chat::ChatArguments, completions::CompletionsArguments,
    copy::CopyArguments, delete::DeleteArguments, doctor::DoctorArguments, export::ExportArguments,
    fork::ForkArguments, import::ImportArguments, list::ListArguments, migrate::MigrateArguments,
    prune::PruneArguments, recover::RecoverArguments, serve::ServeArguments, store::StoreLocation,
    usage::UsageArguments, vacuum::VacuumArguments,
};

/// The help text that all commands share.
const OF_ALL: &str = "\
Exit codes:
  0    all is well
  1    something is wrong with what is stored or played, or something was left undone
  2    the command cannot do its work: wrong arguments, or a store or a file that cannot be used
  130  interrupted

Stores, as --store or the environment variable TOWER_CHAT_STORE names them:
  sqlite:PATH                        a file
  postgres://USER@HOST:PORT/DATABASE ?schema=NAME, if the tables are not in the default schema;
                                     ?prepared_statements=false, behind a PgBouncer before 1.21 that pools transactions
  redis://HOST:PORT/DATABASE         ?prefix=TEXT, if the keys do not begin with the default; rediss:// with TLS

What is sealed in a store is read with the keys in the environment variable TOWER_CHAT_KEYS:
NAME:KEY,NAME:KEY,... with 64 hexadecimal digits as a KEY. The first one seals what is written.";

/// The environment variable with the store, for a command line without one. Its value may contain a
/// password, so the help does not print it.
pub(crate) const STORE_VARIABLE: &str = "TOWER_CHAT_STORE";

/// Durable histories of tool-calling conversations.
#[derive(Debug, Parser)]
#[command(name = "tower-chat", version, about, after_help = OF_ALL, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Chat with a model on the terminal
    ///
    /// Each line is a message. The answer is printed as it is written, to standard output; tool calls,
    /// their results and everything else to standard error. The conversation is stored, and goes on by
    /// its name: after an interruption and after a crash too. Ctrl-C interrupts an answer, which keeps
    /// what there is of it; Ctrl-C at the prompt, Ctrl-D and /exit end the chat. Where standard input
    /// is no terminal, each line is a message and the chat ends with the last answer.
    ///
    /// Exit codes: 0, done; 1, a tool call waits for approval, which only a terminal can ask for; 2, the
    /// chat cannot begin, or without a terminal a message failed; 130, interrupted.
    Chat(Box<ChatArguments>),
    /// Drive recorded conversations through the real stack, into a store
    ///
    /// Each line of FILE is a conversation: {"id": ..., "messages": [OpenAI chat format]}. Recorded
    /// assistant messages are the model's answers, recorded tool results are what the tools return,
    /// and everything the model is sent is compared with the recording. The last line of the output
    /// is a JSON object that says what was done.
    ///
    /// Of journaled plays into a SQLite file the service calls and tool executions are summed over
    /// all attempts, killed ones too: they are counted in a file beside it, PATH.played.
    ///
    /// Exit codes: 0, played as recorded; 1, something diverged; 2, something failed; 130,
    /// interrupted.
    Play(PlayArguments),
    /// List the conversations of a store, the one that was active last first
    ///
    /// For each: its title, what goes on in it, how many messages and runs it has, what they have used,
    /// and when it was last active. With --json a line is an object with "scope", "id", "title",
    /// "metadata", "description_version", "state", "created_at", "last_active_at", "messages", "runs",
    /// "last_mode", "usage" and "cursor".
    ///
    /// Exit codes: 0, done; 1, the same, but what the store has of some conversation cannot be read; 2,
    /// the store cannot be used.
    List(ListArguments),
    /// Print a conversation: its runs, messages and tool calls
    ///
    /// Messages are printed from the end, 50 unless --last names another number, each run under a heading
    /// with its mode, times, tokens and cost, and each call with its arguments and its result. Of an open
    /// run it says what is staged. A line that begins with `!` says why the model would not be sent a part
    /// as it is stored, if the next request added words alone: the call has no result, the result is too
    /// old, it is outside the window, and so on. Content stands behind a bar `|`.
    ///
    /// With --json a line is a message, with "number", "run", "parts" as they are stored, "calls", "staged",
    /// "sent" (unchanged, changed or left_out) and "reasons".
    ///
    /// Exit codes: 0, done; 1, the same, but something of the conversation cannot be read; 2, there is no
    /// such conversation, or the page cannot be read.
    Show(crate::show::ShowArguments),
    /// Print what runs have used: calls of models and tools, tokens and cost
    ///
    /// What a run uses of a model counts at the time at which the run was first answered by that model.
    /// What was paid for stays, also of runs that were discarded or pruned.
    Usage(UsageArguments),
    /// Print the conversations of a store, one JSON object a line
    ///
    /// Each line is {"scope": ..., "id": ..., "messages": [OpenAI chat format]}, in the order of the ids,
    /// and those of one id in the order of their scopes, with the messages that a model would be shown;
    /// in the formats of other providers the messages stand in the fields that their requests have.
    ///
    /// With --format tower-chat everything that is stored is written, to be taken back with import.
    ///
    /// Exit codes: 0, done; 1, the same, but some conversation could not be read; 2, the store or the file
    /// cannot be used; 130, interrupted: --resume goes on.
    Export(ExportArguments),
    /// Store the conversations of a file: our own, or one that another system has written
    ///
    /// A file of export --format tower-chat is checked to its end before anything is written; then all of
    /// it is stored as it was. What the store has already is left as it is, and what it has the beginning
    /// of is gone on with: the same command goes on after an interruption. A conversation of which the
    /// store has another one under the same key is refused. With --json a line is {"done": ...} for a
    /// conversation, and the last {"receipt": ...}.
    ///
    /// Of another system, named by --from, each FILE is read whole, or nothing of any is stored. A
    /// conversation is stored under the id that it has there; of a file that has none, under the name of
    /// the file without its extension. Importing
    /// again stores what is new: a conversation that is stored already stays as it is, also if users have
    /// gone on with it, one that has grown is extended, and if another one is stored under the id, it is
    /// left alone. A line for each says what was done, and what could not be kept.
    ///
    /// With --json a line is an object with "file", "scope", "id", "outcome" (written, extended, unchanged
    /// or differs), "messages", "first_new" or "first_different" (the numbers of messages), and "losses": a
    /// list of {"position", "what", "reason", "stored"}.
    ///
    /// Exit codes: 0, done; 1, the same, but something could not be kept, or another conversation is stored
    /// under an id; 2, a file cannot be read, or the store cannot be used.
    Import(ImportArguments),
    /// Copy conversations from a store to another
    ///
    /// What the other store has already is left as it is, and what it has the beginning of is gone on
    /// with: the same command goes on after an interruption, and follows the source when it is run again.
    /// A conversation of which it has another one under the same key is refused. Sealed content is read
    /// with TOWER_CHAT_KEYS, and sealed with TOWER_CHAT_TO_KEYS; with the former where that is not set, and
    /// not at all where it is empty.
    ///
    /// Exit codes: 0, done; 1, the same, but some conversation was refused; 2, a store cannot be used; 130,
    /// interrupted.
    Copy(CopyArguments),
    /// Delete a conversation, or all conversations of a scope, for good
    ///
    /// Nothing is asked. After an interruption the same command goes on; with --receipt a file has an
    /// account of everything that went, over all attempts.
    ///
    /// Exit codes: 0, done; 2, the store cannot be used, or there is no such conversation; 130, interrupted.
    Delete(DeleteArguments),
    /// Copy a conversation within a store, as it is now
    ///
    /// The copy has the messages, the record of tool calls and the description, and goes on by itself.
    Fork(ForkArguments),
    /// List and total the tool calls of a store
    ///
    /// Rows of the record that cannot be read are reported on standard error; the others count.
    Tools(ToolsArguments),
    /// Check a whole store, and list what is wrong
    ///
    /// Every message can be read, and none is missing; calls and results belong together, in the messages
    /// and in the record of tool calls; the directory counts what is there, and has descriptions that can be
    /// read; what open runs have staged can be read; what a model is shown of each conversation is valid; and of a
    /// SQLite store, the file is whole and has no row that belongs to nothing. What is encrypted is opened
    /// with the keys. A line is printed for each problem, and a last one that says what was checked.
    ///
    /// Exit codes: 0, all is well; 1, there are problems; 2, the store cannot be used.
    Verify(VerifyArguments),
    /// List open runs, or all runs of a conversation
    ///
    /// An open run is a journaled run that was neither committed nor discarded. For each: since when it
    /// is open, whether a process may still write it (it holds the lease), how many messages are staged,
    /// and how many of its tool calls are done, failed, never started, or unknown (started, with no
    /// recorded outcome).
    ///
    /// Of a conversation all runs are listed, newest first, those that were discarded or pruned too:
    /// when each began, how long it took, and what it has used of which model.
    Runs(RunsArguments),
    /// Serve web pages that show what is in a store
    ///
    /// Conversations by their last activity, one as a timeline of its runs, what a model is sent of it
    /// next, tools, usage and open runs. By default only this machine reaches the pages, and only who opens
    /// the link that is printed: it has a token, which is another one each time. To serve others,
    /// set --listen, and --host to the name in their addresses, and give them the token of the environment
    /// variable TOWER_CHAT_INSPECTOR_TOKEN: they add ?token=TOKEN to the first address they open. A reader
    /// can read every conversation of the scopes that are shown.
    ///
    /// Ctrl-C ends it: pages under way are sent for up to 3 seconds.
    ///
    /// Exit codes: 0, ended by Ctrl-C; 2, the store or the address cannot be used.
    Serve(ServeArguments),
    /// End open runs: commit what is there, or discard it
    ///
    /// To go on with a run instead, its own program sends it through its stack again.
    ///
    /// Exit codes: 0, done, or nothing to do; 1, a run was left alone because somebody may still
    /// work on it; 2, the store cannot be used.
    Recover(RecoverArguments),
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
    /// Delete the oldest runs of conversations, for good
    ///
    /// Runs go whole, with what is recorded of their tool calls; the last run of a conversation
    /// stays, as does one with a call that waits for approval or for its result, with everything
    /// after it. Each conversation is changed at once or not at all; a run that is under way in it
    /// is refused its next write, and one with an open run is left alone.
    ///
    /// Exit codes: 0, done; 1, the same, and some conversation was left alone or held back; 2, the
    /// store cannot be used.
    Prune(PruneArguments),
    /// Copy a store while it is in use
    ///
    /// The copy holds every conversation as it was at one moment; programs that write to the store
    /// go on meanwhile. It appears under its name when it is complete and on the disk. A store of
    /// an older release is copied as it is.
    Backup(BackupArguments),
    /// Check a store, its server's settings and the environment, and say what to change
    ///
    /// Each line says what was looked at and what was found: ok, warning (better changed), or problem
    /// (loses data, or keeps the store from being used), with what to do. Nothing is changed, and no key
    /// is printed. `verify` checks each message instead.
    ///
    /// Exit codes: 0, nothing should be changed; 1, something should; 2, the store cannot be looked at.
    Doctor(DoctorArguments),
    /// Bring the file or the tables of an older release up to date
    ///
    /// Programs that write to a store do so by themselves when they open it; commands that only read
    /// never do, and refuse an older store. A release reads what is newer than it no more: copy a file
    /// with `backup` first, if that is wanted. Tables on a server are made where there are none.
    ///
    /// Exit codes: 0, up to date; 1, with --dry-run something is to be done; 2, the store cannot be
    /// used.
    Migrate(MigrateArguments),
    /// Write a store's file anew, so that nothing is left in it of what was deleted
    ///
    /// What is deleted or pruned is overwritten where it stood, but pieces of it may stay where
    /// SQLite moved rows before. The file becomes as small as it can be. It takes room for two more
    /// files as large; programs that write to the store meanwhile may be refused.
    Vacuum(VacuumArguments),
    /// Print a script that completes the command in a shell
    ///
    /// For bash: source <(tower-chat completions bash)
    Completions(CompletionsArguments),
}

/// The arguments of `play`.
#[derive(Debug, Args)]
pub(crate) struct PlayArguments {
    /// The recorded conversations, one JSON object a line
    #[arg(value_name = "FILE.jsonl")]
    pub(crate) file: PathBuf,
    /// Where histories are kept: as for the other commands (what is missing is made), or memory:
    #[arg(long, value_name = "STORE", env = STORE_VARIABLE, hide_env_values = true)]
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

/// The arguments of `tools`.
#[derive(Debug, Args)]
pub(crate) struct ToolsArguments {
    /// The store: sqlite:PATH, postgres://USER@HOST/DATABASE or redis://HOST/DATABASE
    #[arg(long, value_name = "STORE", env = STORE_VARIABLE, hide_env_values = true)]
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
    /// skipped_budget, stopped, pending, pending_approval, interrupted or returned
    #[arg(long)]
    pub(crate) status: Option<ToolStatus>,
}

/// The arguments of `verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    /// The store: sqlite:PATH, postgres://USER@HOST/DATABASE or redis://HOST/DATABASE
    #[arg(long, value_name = "STORE", env = STORE_VARIABLE, hide_env_values = true)]
    pub(crate) store: StoreLocation,
    /// Print one JSON object a line: one for each problem, and a last one that says what was checked
    #[arg(long)]
    pub(crate) json: bool,
}

/// The arguments of `runs`.
#[derive(Debug, Args)]
pub(crate) struct RunsArguments {
    /// List all runs of a conversation, open or not: this is its scope
    #[arg(value_name = "SCOPE", requires = "id", conflicts_with_all = ["scope", "conversation"])]
    pub(crate) of_scope: Option<String>,
    /// And this is its id
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// The store: sqlite:PATH, postgres://USER@HOST/DATABASE or redis://HOST/DATABASE
    #[arg(long, value_name = "STORE", env = STORE_VARIABLE, hide_env_values = true)]
    pub(crate) store: StoreLocation,
    /// Print one JSON object a line, with each call
    #[arg(long)]
    pub(crate) json: bool,
    /// Only runs in conversations of this scope
    #[arg(long)]
    pub(crate) scope: Option<String>,
    /// Only the run in the conversation of this id
    #[arg(long, value_name = "ID")]
    pub(crate) conversation: Option<String>,
}

/// The arguments of `repair`.
#[derive(Debug, Args)]
pub(crate) struct RepairArguments {
    /// The store: sqlite:PATH, postgres://USER@HOST/DATABASE or redis://HOST/DATABASE
    #[arg(long, value_name = "STORE", env = STORE_VARIABLE, hide_env_values = true)]
    pub(crate) store: StoreLocation,
    /// Print what would be done, and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print one JSON object a line: one for each repair and each problem that is left, and a last one with
    /// their counts
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Persistence {
    /// Each run at its end, at once or not at all
    PerRun,
    /// Each service call when it has answered
    PerServiceCall,
    /// Each step as it happens, and all of a run at its end
    Journaled,
}

impl From<Persistence> for PersistenceMode {
    fn from(persistence: Persistence) -> Self {
        match persistence {
            Persistence::PerRun => Self::PerRun,
            Persistence::PerServiceCall => Self::PerServiceCall,
            Persistence::Journaled => Self::Journaled,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_valid() {
        super::Arguments::command().debug_assert();
    }

    #[test]
    fn every_store_can_be_named_by_the_environment_and_help_does_not_print_it() {
        let command = super::Arguments::command();
        let stores: Vec<_> = command
            .get_subcommands()
            .filter_map(|it| {
                Some((it.get_name(), it.get_arguments().find(|it| it.get_id() == "store")?))
            })
            .collect();
        assert!(stores.len() >= 9, "{stores:?}");
        for (name, store) in stores {
            assert_eq!(store.get_env(), Some(super::STORE_VARIABLE.as_ref()), "{name}");
            assert!(store.is_hide_env_values_set(), "{name}");
        }
    }
}
