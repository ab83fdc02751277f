//! The commands and their options, which clap parses. The doc comments are the help texts.

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
NAME:KEY,NAME:KEY,... with a KEY of 64 hexadecimal digits. The first key encrypts new content.";

/// The environment variable that names the store if the command line does not. The help does not
/// print the value, because it may contain a password.
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
    /// Each line of the input is a message to the model. The answer is printed to standard output
    /// while the model generates it. Tool calls, their results and all other messages are printed
    /// to standard error. The conversation is stored, and a later chat with the same name continues
    /// the conversation, even after an interruption or a crash. Ctrl-C interrupts an answer, and
    /// the text that was received is stored. Ctrl-C at the prompt, Ctrl-D and /exit end the chat.
    /// If standard input is not a terminal, the chat ends after the answer to the last line.
    ///
    /// With --attach, the command follows a run of an application that executes its runs in
    /// separate tasks (DetachedRunsLayer): the command prints the answer from its beginning, and
    /// then new text until the run ends. The command sends nothing to a model. Ctrl-C ends the
    /// command but not the run. A run of `tower-chat chat` itself cannot be followed.
    ///
    /// Exit codes: 0, success; 1, a tool call waits for approval and there is no terminal to ask
    /// the user, or the followed run has failed or was interrupted; 2, the chat cannot begin, or a
    /// message has failed and there is no terminal, or the update log has no updates of the run;
    /// 130, interrupted.
    Chat(Box<ChatArguments>),
    /// List the conversations of a store, the most recently active first
    ///
    /// Prints for each conversation the title, the state, the numbers of messages and runs, the
    /// usage, and the time of the last activity. With --json each line is an object with "scope",
    /// "id", "title", "metadata", "description_version", "state", "created_at", "last_active_at",
    /// "messages", "runs", "last_mode", "usage" and "cursor".
    ///
    /// Exit codes: 0, success; 1, success, but the entries of some conversations cannot be read; 2,
    /// the store cannot be used.
    List(ListArguments),
    /// Print a conversation: its runs, messages and tool calls
    ///
    /// Prints the last 50 messages, or the number of messages that --last sets. Each run has a
    /// heading with its mode, times, tokens and cost, and each call is printed with its arguments
    /// and its result. The messages of an open run, which are stored but not part of the history
    /// yet, are printed too. Stored content is printed after a bar `|`. A line that begins with `!`
    /// says that the next request to the model would change or leave out a part, and why: for
    /// example, a call has no result, a result is too old, or the part is outside of the window.
    ///
    /// With --json each line is a message with "number", "run", "parts" in their stored form,
    /// "calls", "staged", "sent" (unchanged, changed or left_out) and "reasons".
    ///
    /// Exit codes: 0, success; 1, success, but some data of the conversation cannot be read; 2,
    /// there is no such conversation, or its messages cannot be read.
    Show(crate::show::ShowArguments),
    /// Print the usage of runs: calls of models and tools, tokens and cost
    ///
    /// For --since, --until and the sums by day, the usage of a model in a run belongs to the time
    /// of the model's first answer in the run. Runs that were discarded or pruned are included,
    /// because their usage was paid for.
    Usage(UsageArguments),
    /// Print the conversations of a store, one JSON object per line
    ///
    /// Each line is {"scope": ..., "id": ..., "messages": [OpenAI chat format]}. The lines are
    /// ordered by id and then by scope. The messages are those that a model would receive. In the
    /// format of another provider, a line has the same fields for messages as a request to this
    /// provider.
    ///
    /// With --format tower-chat, the export contains all stored data, and `tower-chat import` can
    /// read it.
    ///
    /// Exit codes: 0, success; 1, success, but some conversations cannot be read; 2, the store or the
    /// file cannot be used; 130, interrupted: continue with --resume.
    Export(ExportArguments),
    /// Store the conversations of a file: an export, or a file of another system
    ///
    /// A file that export --format tower-chat has written is checked completely before the first
    /// conversation is stored. The conversations of the file are stored unchanged. A conversation
    /// that is already stored is not changed, and a conversation of which a part is stored is
    /// completed. The same command therefore continues an import that was interrupted. A
    /// conversation is refused if a different conversation with the same scope and id is stored.
    /// With --json each line is {"done": ...} for a conversation, and the last line is {"receipt":
    /// ...}.
    ///
    /// For files of another system, which --from names, all files are read before the first
    /// conversation is stored. If one of the files cannot be read, nothing is stored. The id of a
    /// conversation is that in the file, or, if the file contains no id, the name of the file
    /// without its extension. A second import stores only new messages: a stored conversation is
    /// extended if the file has further messages of it, and is otherwise not changed, even if users
    /// have continued it. A conversation is skipped if a different conversation with the same id is
    /// stored. One line is printed with the outcome of each conversation, and one line for each
    /// part of its data that could not be imported.
    ///
    /// With --json each line is an object with "file", "scope", "id", "outcome" (written, extended,
    /// unchanged, differs or refused), "messages", "first_new" or "first_different" (the number of
    /// a message), "reason" (of a refusal), and "losses": a list of {"position", "what", "reason",
    /// "stored"}.
    ///
    /// Exit codes: 0, success; 1, success, but some data could not be imported, or a conversation
    /// was skipped or refused; 2, a file cannot be read, or the store cannot be used.
    Import(ImportArguments),
    /// Copy conversations from one store to another
    ///
    /// A conversation that the target store already contains is not changed, and a conversation of
    /// which the target store contains a part is completed. The same command therefore continues a
    /// copy that was interrupted, and, when repeated later, copies the new messages of the source.
    /// A conversation is refused if the target store contains a different conversation with the
    /// same scope and id. Content is decrypted with the keys in TOWER_CHAT_KEYS and encrypted with
    /// the keys in TOWER_CHAT_TO_KEYS. If TOWER_CHAT_TO_KEYS is not set, the keys in
    /// TOWER_CHAT_KEYS are used. If TOWER_CHAT_TO_KEYS is empty, content is not encrypted.
    ///
    /// Exit codes: 0, success; 1, success, but some conversations were refused; 2, a store cannot be
    /// used; 130, interrupted.
    Copy(CopyArguments),
    /// Delete a conversation, or all conversations of a scope, permanently
    ///
    /// The command does not ask for confirmation. The same command continues a deletion that was
    /// interrupted. With --receipt, a file lists all conversations that were deleted, including
    /// those of earlier attempts.
    ///
    /// Exit codes: 0, success; 2, the store cannot be used, or there is no such conversation; 130,
    /// interrupted.
    Delete(DeleteArguments),
    /// Copy a conversation within a store, in its current state
    ///
    /// The copy contains the messages, the record of tool calls (one row for each call) and the
    /// description. The original and the copy can be continued independently.
    Fork(ForkArguments),
    /// List and total the tool calls of a store
    ///
    /// Tool calls whose rows cannot be read are reported on standard error, and are not counted.
    Tools(ToolsArguments),
    /// Check a whole store, and list its problems
    ///
    /// The command checks that every message can be read and no message is missing; that every call
    /// has a result and every result a call, in the messages and in the record of tool calls (one
    /// row for each call); that the recorded counts of messages, runs and calls are correct; that
    /// the descriptions of conversations can be read; that the messages of open runs can be read;
    /// and that the messages that a model would receive are valid. For a SQLite store, the command
    /// also checks the file, and that every row belongs to a conversation. Encrypted content is
    /// decrypted with the keys. Each problem is printed as a line, and the last line is a summary.
    ///
    /// Exit codes: 0, no problems; 1, there are problems; 2, the store cannot be used.
    Verify(VerifyArguments),
    /// List open runs, or all runs of a conversation
    ///
    /// An open run is a journaled run that was neither committed nor discarded: its messages are
    /// stored (staged), but are not part of the history yet. Prints for each open run the time at
    /// which it was opened, whether a process has a lease on the run (a time limit that the process
    /// renews) and may still write, the number of staged messages, and the numbers of tool calls
    /// that are done, failed, never started, or unknown (started, without a recorded outcome).
    ///
    /// With a scope and an id, all runs of this conversation are listed, the newest first,
    /// including discarded and pruned runs: the time at which the run began, its duration, and its
    /// usage of each model.
    Runs(RunsArguments),
    /// Serve web pages that show the content of a store
    ///
    /// The pages list the conversations, the most recently active first, and show a conversation as
    /// a timeline of its runs, the messages of the next request to the model, tools, usage and open
    /// runs. By default the pages are served to this machine only, and a reader must open the
    /// printed link, which contains a token that is generated when the command starts. To serve
    /// other machines, set --listen to an address, --host to the host name that readers use, and
    /// the environment variable TOWER_CHAT_INSPECTOR_TOKEN to a token. Readers append ?token=TOKEN
    /// to the first address that they open. A reader can read every conversation of the scopes that
    /// the pages show.
    ///
    /// On Ctrl-C, the server accepts no more requests, waits up to 3 seconds for responses that are
    /// being sent, and exits.
    ///
    /// Exit codes: 0, ended by Ctrl-C; 2, the store or the address cannot be used.
    Serve(ServeArguments),
    /// End open runs: commit their messages, or discard them
    ///
    /// To continue a run instead of ending it, send its request again from the program that began
    /// the run.
    ///
    /// Exit codes: 0, success, or no run is open; 1, a run was skipped, because a process may still
    /// be executing the run or the data of the run cannot be read; 2, the store cannot be used.
    Recover(RecoverArguments),
    /// Repair the problems that verify finds
    ///
    /// If the messages contain no result of a call, a result is added: the result from the record of
    /// tool calls (one row for each call), or, if the record has no result either, the text that the
    /// call may or may not have taken effect. A result that answers no call, or whose call already
    /// has another result, is moved into the metadata of its message. Rows of the record whose call
    /// does not exist are deleted. Calls that wait for approval are not changed. If a conversation
    /// contains an unreadable message, the command repairs nothing in it, except that it removes an
    /// unreadable description. Each conversation is changed as a whole or not at all. If a run is in
    /// flight in a changed conversation, the next write of the run is refused.
    ///
    /// Exit codes: 0, no problems remain; 1, problems remain, or with --dry-run problems would be
    /// repaired; 2, the store cannot be used.
    Repair(RepairArguments),
    /// Delete the oldest runs of conversations, permanently
    ///
    /// A run is deleted with all of its messages and with the records of its tool calls. The last
    /// run of a conversation is never deleted. A run with a call that waits for approval or for its
    /// result is not deleted either, and neither are the runs after it. Each conversation is
    /// changed as a whole or not at all. If a run is in flight in a changed conversation, the next
    /// write of the run is refused. A conversation with an open run is skipped.
    ///
    /// Exit codes: 0, success; 1, success, but some conversations were skipped or fewer messages were
    /// deleted than requested; 2, the store cannot be used.
    Prune(PruneArguments),
    /// Copy a store while it is in use
    ///
    /// The copy is a snapshot: it contains the state of all conversations at one point in time.
    /// Programs can write to the store while it is copied. The file is renamed to its final name
    /// when the copy is complete and synced to the disk. A store of an older release is copied
    /// unchanged.
    Backup(BackupArguments),
    /// Check a store, the settings of its server and the environment, and print advice
    ///
    /// Each line contains the name of a check and its result: ok; warning, for a setting that
    /// should be changed; or problem, for a setting that can lose data or prevents the use of the
    /// store. Warnings and problems have advice. The command changes nothing and prints no keys. To
    /// check each message, use verify.
    ///
    /// Exit codes: 0, every check is ok; 1, there are warnings or problems; 2, the store cannot be
    /// checked.
    Doctor(DoctorArguments),
    /// Migrate the file or the tables of an older release
    ///
    /// A program that writes to a store migrates the store when the program opens it. A command
    /// that only reads never migrates a store, and refuses to read a store of an older release.
    /// Tables that are missing on a server are created. An older release cannot read a migrated
    /// store: if you may need the older release again, first copy the file with
    /// `tower-chat backup`.
    ///
    /// Exit codes: 0, the store is up to date; 1, with --dry-run the store would be migrated; 2,
    /// the store cannot be used.
    Migrate(MigrateArguments),
    /// Rewrite a store's file, so that the file contains no remains of deleted data
    ///
    /// A store overwrites deleted and pruned data, but earlier copies of this data may remain in
    /// parts of the file from which SQLite has moved rows. The new file is as small as possible.
    /// The command needs free disk space of twice the size of the file. Writes of other programs
    /// may be refused while the command runs.
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
    /// Also print each call; with --json in the list "calls"
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
    /// Print one JSON object per line: an object for each problem, and a summary
    #[arg(long)]
    pub(crate) json: bool,
}

/// The arguments of `runs`.
#[derive(Debug, Args)]
pub(crate) struct RunsArguments {
    /// The scope of the conversation whose runs are listed, whether or not they are open
    #[arg(value_name = "SCOPE", requires = "id", conflicts_with_all = ["scope", "conversation"])]
    pub(crate) of_scope: Option<String>,
    /// The id of the conversation whose runs are listed
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// The store: sqlite:PATH, postgres://USER@HOST/DATABASE or redis://HOST/DATABASE
    #[arg(long, value_name = "STORE", env = STORE_VARIABLE, hide_env_values = true)]
    pub(crate) store: StoreLocation,
    /// Print one JSON object per line, which contains each call
    #[arg(long)]
    pub(crate) json: bool,
    /// Only runs in conversations of this scope
    #[arg(long)]
    pub(crate) scope: Option<String>,
    /// Only runs in the conversation with this id
    #[arg(long, value_name = "ID")]
    pub(crate) conversation: Option<String>,
}

/// The arguments of `repair`.
#[derive(Debug, Args)]
pub(crate) struct RepairArguments {
    /// The store: sqlite:PATH, postgres://USER@HOST/DATABASE or redis://HOST/DATABASE
    #[arg(long, value_name = "STORE", env = STORE_VARIABLE, hide_env_values = true)]
    pub(crate) store: StoreLocation,
    /// Print the repairs that would be made, and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print one JSON object per line: an object for each repair and each remaining problem, and a
    /// summary
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Persistence {
    /// Store each run at its end, as a whole or not at all
    PerRun,
    /// Store each service call after its answer
    PerServiceCall,
    /// Store each event of the run immediately, and add the messages to the history at the end of
    /// the run
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
    fn the_definition_of_the_command_line_is_valid() {
        super::Arguments::command().debug_assert();
    }

    #[test]
    fn every_store_option_reads_the_environment_and_help_does_not_print_its_value() {
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
