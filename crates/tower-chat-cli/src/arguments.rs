//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use tower_chat::{PersistenceMode, tool::ToolStatus};

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
  0    success
  1    there are problems in the stored conversations, or some were skipped
  2    the command cannot do its work: wrong arguments, or a store or a file that cannot be used
  130  interrupted

Stores, for --store or the environment variable TOWER_CHAT_STORE:
  sqlite:PATH                        a file
  postgres://USER@HOST:PORT/DATABASE ?schema=NAME, if the tables are not in the default schema;
                                     ?prepared_statements=false, behind a PgBouncer before 1.21 in transaction mode
  redis://HOST:PORT/DATABASE         ?prefix=TEXT, if the keys do not have the default prefix; rediss:// with TLS

The keys of an encrypted store are in the environment variable TOWER_CHAT_KEYS:
NAME:KEY,NAME:KEY,... with a KEY of 64 hexadecimal digits. The first key seals new content.";

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
    /// Each line is a message. The answer is printed to standard output while the model writes it; tool
    /// calls, their results and all other messages are printed to standard error. The conversation is
    /// stored. A later chat with the same name continues it, also after an interruption or a crash.
    /// Ctrl-C interrupts an answer, and the text that was received is stored. Ctrl-C at the prompt,
    /// Ctrl-D and /exit end the chat. If standard input is not a terminal, each line is a message and
    /// the chat ends after the last answer.
    ///
    /// With --attach the command follows a run of an application that detaches its runs: it prints the
    /// answer from its beginning, then live to its end. Nothing is sent to a model, and Ctrl-C only ends
    /// the command. A chat of this command itself cannot be followed.
    ///
    /// Exit codes: 0, success; 1, a tool call waits for approval, which only a terminal can give, or the
    /// followed run has failed or was interrupted; 2, the chat cannot begin, or, without a terminal, a
    /// message failed, or there are no updates of the run; 130, interrupted.
    Chat(Box<ChatArguments>),
    /// List the conversations of a store, the most recently active first
    ///
    /// For each conversation: its title, its state, the numbers of its messages and runs, its usage, and
    /// when it was last active. With --json each line is an object with "scope", "id", "title",
    /// "metadata", "description_version", "state", "created_at", "last_active_at", "messages", "runs",
    /// "last_mode", "usage" and "cursor".
    ///
    /// Exit codes: 0, success; 1, success, but the data of some conversations cannot be read; 2, the
    /// store cannot be used.
    List(ListArguments),
    /// Print a conversation: its runs, messages and tool calls
    ///
    /// Prints the last 50 messages, or as many as --last says. Each run has a heading with its mode,
    /// times, tokens and cost, and each call is printed with its arguments and its result. The staged
    /// messages of an open run are printed too. A line that begins with `!` gives the reason why the
    /// next request would not contain a part in its stored form: the call has no result, the result is
    /// too old, the part is outside the window, and so on. Content is printed after a bar `|`.
    ///
    /// With --json each line is a message with "number", "run", "parts" as they are stored, "calls",
    /// "staged", "sent" (unchanged, changed or left_out) and "reasons".
    ///
    /// Exit codes: 0, success; 1, success, but some data of the conversation cannot be read; 2, there is
    /// no such conversation, or the page cannot be read.
    Show(crate::show::ShowArguments),
    /// Print the usage of runs: calls of models and tools, tokens and cost
    ///
    /// The usage of a model in a run counts at the time of the model's first answer in the run. The
    /// usage of runs that were discarded or pruned counts too, because it was paid for.
    Usage(UsageArguments),
    /// Print the conversations of a store, one JSON object per line
    ///
    /// Each line is {"scope": ..., "id": ..., "messages": [OpenAI chat format]}, ordered by id and then
    /// by scope, with the messages that a model would be sent. In the formats of other providers, the
    /// messages are in the fields of their requests.
    ///
    /// With --format tower-chat all stored data are written, and import can read them.
    ///
    /// Exit codes: 0, success; 1, success, but some conversations cannot be read; 2, the store or the
    /// file cannot be used; 130, interrupted: continue with --resume.
    Export(ExportArguments),
    /// Store the conversations of a file: an export, or a file of another system
    ///
    /// A file of export --format tower-chat is checked as a whole before anything is written; then all
    /// of it is stored unchanged. A conversation that is stored already is not changed, and one that is
    /// stored in part is completed, so the same command continues after an interruption. A conversation
    /// is refused if the store has a different one with the same key. With --json each line is
    /// {"done": ...} for a conversation, and the last line is {"receipt": ...}.
    ///
    /// For another system, named by --from, all files are read first, and nothing is stored if one of
    /// them cannot be read. A conversation is stored with its id in the file; if the file has no id, the
    /// id is the name of the file without its extension. A second import stores only new messages: a
    /// conversation that is stored already is not changed, even if users have continued it; a
    /// conversation with new messages in the file is extended; and if a different conversation is stored
    /// with the same id, the conversation of the file is skipped. A line for each conversation gives the
    /// outcome, and the data that could not be imported.
    ///
    /// With --json each line is an object with "file", "scope", "id", "outcome" (written, extended,
    /// unchanged, differs or refused), "messages", "first_new" or "first_different" (the numbers of
    /// messages), "reason" (of a refusal), and "losses": a list of {"position", "what", "reason",
    /// "stored"}.
    ///
    /// Exit codes: 0, success; 1, success, but some data could not be imported, a different conversation
    /// is stored with an id, or the store refused a conversation; 2, a file cannot be read, or the store
    /// cannot be used.
    Import(ImportArguments),
    /// Copy conversations from one store to another
    ///
    /// A conversation that the target store has already is not changed, and one that it has in part is
    /// completed. The same command therefore continues after an interruption, and a later command copies
    /// the new messages of the source. A conversation is refused if the target has a different one with
    /// the same key. Content is decrypted with TOWER_CHAT_KEYS and encrypted with TOWER_CHAT_TO_KEYS. If
    /// TOWER_CHAT_TO_KEYS is not set, TOWER_CHAT_KEYS is used; if it is empty, content is not encrypted.
    ///
    /// Exit codes: 0, success; 1, success, but some conversations were refused; 2, a store cannot be
    /// used; 130, interrupted.
    Copy(CopyArguments),
    /// Delete a conversation, or all conversations of a scope, permanently
    ///
    /// The command does not ask for confirmation. After an interruption the same command continues. With
    /// --receipt a file lists everything that was deleted, over all attempts.
    ///
    /// Exit codes: 0, success; 2, the store cannot be used, or there is no such conversation; 130,
    /// interrupted.
    Delete(DeleteArguments),
    /// Copy a conversation within a store, in its current state
    ///
    /// The copy has the messages, the record of tool calls and the description. It can be continued
    /// independently.
    Fork(ForkArguments),
    /// List and total the tool calls of a store
    ///
    /// Rows of the record that cannot be read are reported on standard error; all others are counted.
    Tools(ToolsArguments),
    /// Check a whole store, and list its problems
    ///
    /// The command checks that every message can be read and none is missing; that calls and results
    /// belong together, in the messages and in the record of tool calls; that the counts of the
    /// directory are right and its descriptions can be read; that the staged messages of open runs can
    /// be read; and that the messages that a model would be sent are valid. For a SQLite store it also
    /// checks the file, and that no row lacks its conversation. Encrypted content is opened with the
    /// keys. Each problem is printed as a line, and the last line is a summary.
    ///
    /// Exit codes: 0, no problems; 1, there are problems; 2, the store cannot be used.
    Verify(VerifyArguments),
    /// List open runs, or all runs of a conversation
    ///
    /// An open run is a journaled run that was neither committed nor discarded. For each run: when it
    /// was opened, whether a process holds its lease and may still write, how many messages are staged,
    /// and how many of its tool calls are done, failed, never started, or unknown (started, without a
    /// recorded outcome).
    ///
    /// For a conversation, all of its runs are listed, the newest first, including those that were
    /// discarded or pruned: when each began, how long it took, and its usage of each model.
    Runs(RunsArguments),
    /// Serve web pages that show the content of a store
    ///
    /// The pages show conversations by their last activity, one conversation as a timeline of its runs,
    /// the messages that a model would be sent next, tools, usage and open runs. By default only this
    /// machine can reach the pages, and a reader must open the printed link, which contains a new token
    /// each time. To serve other machines, set --listen, set --host to the name in their addresses, and
    /// set a token in the environment variable TOWER_CHAT_INSPECTOR_TOKEN: readers append ?token=TOKEN
    /// to the first address that they open. A reader can read every conversation of the scopes that are
    /// shown.
    ///
    /// Ctrl-C ends the server. Responses that are being sent have 3 seconds to finish.
    ///
    /// Exit codes: 0, ended by Ctrl-C; 2, the store or the address cannot be used.
    Serve(ServeArguments),
    /// End open runs: commit their messages, or discard them
    ///
    /// To continue a run instead, send its request again through its program's stack.
    ///
    /// Exit codes: 0, success, or nothing to do; 1, a run was skipped, because a process may still work
    /// on it or its data cannot be read; 2, the store cannot be used.
    Recover(RecoverArguments),
    /// Repair the problems that verify finds
    ///
    /// A call without a result gets the result in the record of tool calls, or else a result that says
    /// that the call may or may not have taken effect. A result that answers no call, or a call that has
    /// a result, is moved into the metadata of its message. Rows of the record that refer to nothing are
    /// deleted. Calls that wait for approval are not changed, and neither is anything that cannot be
    /// read. Each conversation is changed as a whole or not at all. If a run is in flight in a changed
    /// conversation, the next write of the run is refused.
    ///
    /// Exit codes: 0, no problems remain; 1, problems remain, or with --dry-run there is something to
    /// do; 2, the store cannot be used.
    Repair(RepairArguments),
    /// Delete the oldest runs of conversations, permanently
    ///
    /// Runs are deleted as a whole, with the records of their tool calls. The last run of a conversation
    /// is kept. A run with a call that waits for approval or for its result is kept too, with all later
    /// runs. Each conversation is changed as a whole or not at all. If a run is in flight in a changed
    /// conversation, the next write of the run is refused. A conversation with an open run is skipped.
    ///
    /// Exit codes: 0, success; 1, success, but some conversations were skipped or fewer messages were
    /// deleted than requested; 2, the store cannot be used.
    Prune(PruneArguments),
    /// Copy a store while it is in use
    ///
    /// The copy contains every conversation in its state at one moment; programs can write to the store
    /// meanwhile. The copy gets its name when it is complete and on the disk. A store of an older
    /// release is copied unchanged.
    Backup(BackupArguments),
    /// Check a store, the settings of its server and the environment, and print advice
    ///
    /// Each line has the name of a check and its result: ok, warning (should be changed), or problem
    /// (loses data, or prevents the use of the store), with advice. Nothing is changed, and no key is
    /// printed. To check each message, use verify.
    ///
    /// Exit codes: 0, nothing should be changed; 1, something should be changed; 2, the store cannot be
    /// checked.
    Doctor(DoctorArguments),
    /// Migrate the file or the tables of an older release
    ///
    /// Programs that write to a store migrate it when they open it. Commands that only read never
    /// migrate a store, and refuse an older one. An older release cannot read a migrated store, so copy
    /// a file with backup first if you may need to go back. Missing tables on a server are created.
    ///
    /// Exit codes: 0, the store is current; 1, with --dry-run there is something to do; 2, the store
    /// cannot be used.
    Migrate(MigrateArguments),
    /// Rewrite a store's file, so that no remains of deleted data are left in it
    ///
    /// Deleted and pruned data are overwritten, but pieces may remain where SQLite had moved rows
    /// before. The new file is as small as possible. The command needs disk space for two files of the
    /// same size. Programs that write to the store meanwhile may be refused.
    Vacuum(VacuumArguments),
    /// Print a script that completes the command in a shell
    ///
    /// For bash: source <(tower-chat completions bash)
    Completions(CompletionsArguments),
}

/// The arguments of `tools`.
#[derive(Debug, Args)]
pub(crate) struct ToolsArguments {
    /// The store: sqlite:PATH, postgres://USER@HOST/DATABASE or redis://HOST/DATABASE
    #[arg(long, value_name = "STORE", env = STORE_VARIABLE, hide_env_values = true)]
    pub(crate) store: StoreLocation,
    /// Print one JSON object: {"total": N, "tools": [{"name", "calls", "errors", "open",
    /// "duration_ms"}]}, with the tools in the byte order of their names
    #[arg(long)]
    pub(crate) json: bool,
    /// Print each call too; with --json in a list "calls"
    #[arg(long)]
    pub(crate) list: bool,
    /// Only calls in conversations of this scope
    #[arg(long)]
    pub(crate) scope: Option<String>,
    /// Only calls in the conversation with this id
    #[arg(long, value_name = "ID")]
    pub(crate) conversation: Option<String>,
    /// Only calls of this tool
    #[arg(long, value_name = "NAME")]
    pub(crate) tool: Option<String>,
    /// Only calls with this status: ok, error, rejected_by_approval, rejected_arguments, unknown_tool,
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
    /// Print one JSON object per line: one for each problem, and a summary
    #[arg(long)]
    pub(crate) json: bool,
}

/// The arguments of `runs`.
#[derive(Debug, Args)]
pub(crate) struct RunsArguments {
    /// The scope of a conversation whose runs, open or not, are listed
    #[arg(value_name = "SCOPE", requires = "id", conflicts_with_all = ["scope", "conversation"])]
    pub(crate) of_scope: Option<String>,
    /// The id of this conversation
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// The store: sqlite:PATH, postgres://USER@HOST/DATABASE or redis://HOST/DATABASE
    #[arg(long, value_name = "STORE", env = STORE_VARIABLE, hide_env_values = true)]
    pub(crate) store: StoreLocation,
    /// Print one JSON object per line, with each call
    #[arg(long)]
    pub(crate) json: bool,
    /// Only runs in conversations of this scope
    #[arg(long)]
    pub(crate) scope: Option<String>,
    /// Only the run in the conversation with this id
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
    /// Print one JSON object per line: one for each repair and each problem that remains, and a summary
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Persistence {
    /// Store each run at its end, as a whole or not at all
    PerRun,
    /// Store each service call after its answer
    PerServiceCall,
    /// Stage each step when it happens, and commit the run at its end
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
