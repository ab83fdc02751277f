//! The errors of commands.

use std::{error::Error, io, path::PathBuf};

use tower_chat::{
    ConversationKey,
    error::is_verdict,
    store::{StoreError, UnreadableInvocation},
};
use tower_chat_delivery::UpdateLogError;
use tower_chat_import::{ImportError, ReadError};
use tower_chat_inspector::ServeError;
use tower_chat_repair::RepairError;
use tower_chat_sqlite::{BackupError, OpenError};
use tower_chat_transfer::{ReceiptLogError, TransferError};

use crate::{
    chat::ChatError,
    store::{KEYS_VARIABLE, KeysError},
};

/// An error that ends a command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error("the pages cannot be served: choose another address with --listen")]
    Serve(#[source] io::Error),
    #[error(
        "the pages are not served: other machines can reach {address}: set a token in the \
         environment variable TOWER_CHAT_INSPECTOR_TOKEN, or listen on 127.0.0.1"
    )]
    TokenNeeded { address: std::net::SocketAddr },
    #[error(
        "--no-token serves the pages without a token, but the environment variable \
         TOWER_CHAT_INSPECTOR_TOKEN contains a token: leave out one of them"
    )]
    TokenAndNone,
    #[error(
        "creating a token failed, because the system has no random numbers: set the environment \
         variable TOWER_CHAT_INSPECTOR_TOKEN"
    )]
    NoRandomNumbers,
    #[error("serving the pages failed")]
    Served(#[source] ServeError),
    #[error("the runtime could not be started")]
    Runtime(#[source] io::Error),
    #[error("{option} `{}` is {what}: name another file; nothing was written", path.display())]
    WritesOver { option: &'static str, path: PathBuf, what: String },
    #[error("`{}` cannot be read", file.display())]
    Read { file: PathBuf, source: io::Error },
    #[error("the store cannot be used")]
    Open(#[source] OpenError),
    #[error(
        "the tables in schema `{schema}` have version {version} of an older release, and this \
         release needs version {supported}: migrate them with `tower-chat migrate`; nothing was \
         changed"
    )]
    OlderTables { schema: String, version: i64, supported: i64 },
    #[error(
        "there are no tables of conversations in schema `{schema}`: check the address and its \
         `schema`, or create them with `tower-chat migrate`; nothing was changed"
    )]
    NoTables { schema: String },
    #[error("the store cannot be used")]
    OpenPostgres(#[source] tower_chat_postgres::OpenError),
    #[error("the store cannot be used")]
    OpenRedis(#[source] tower_chat_redis::OpenError),
    #[error("the keys in the environment variable {variable} cannot be used")]
    Keys { variable: &'static str, source: KeysError },
    #[error(
        "only a store in a file can do this: to {action} a store on a server, use the server's own tools"
    )]
    NoFile { action: &'static str },
    #[error("there is no update log at {location}: give the log of the application with --updates")]
    NoUpdateLog { location: String },
    #[error("the update log cannot be used")]
    OpenUpdateLog(#[source] UpdateLogError),
    #[error(
        "the conversations were deleted, but the updates of their runs could not be erased: run the same \
         command again"
    )]
    EraseUpdates(#[source] UpdateLogError),
    #[error("there is no conversation store at `{}`: check the path of --store", path.display())]
    NoStore { path: PathBuf },
    #[error(
        "`{}` has the schema version {version} of an older release, and this release needs version \
         {supported}: migrate the file with `tower-chat migrate`; copy the file with `tower-chat \
         backup` first if you may need the older release again",
        path.display()
    )]
    OlderStore { path: PathBuf, version: i64, supported: i64 },
    #[error(
        "`{}` or its folder cannot be written: change the permissions, or choose another store \
         with --store; commands that only read can use it (export, tools, runs, verify, backup)",
        path.display()
    )]
    NotWritable { path: PathBuf },
    #[error("a store in memory has nothing to {action}: give --store sqlite:PATH")]
    Memory { action: &'static str },
    #[error("the conversations of scope {scope:?} cannot be listed")]
    List { scope: String, source: StoreError },
    #[error("the entries of conversations cannot be read")]
    Directory(#[source] StoreError),
    #[error("the entry of conversation {key} cannot be read")]
    DirectoryOf { key: ConversationKey, source: StoreError },
    #[error(
        "the messages of conversation {key} cannot be read: read the messages before a damaged \
         one with --before"
    )]
    Show { key: ConversationKey, source: StoreError },
    #[error(
        "conversation {key} cannot be loaded, and the messages that a model would receive are \
         therefore unknown: find the problem with `tower-chat verify`"
    )]
    Explain { key: ConversationKey, source: StoreError },
    #[error(transparent)]
    UnreadableCall(UnreadableInvocation),
    #[error("there is no conversation {key}: see `tower-chat list`")]
    NoConversation { key: ConversationKey },
    #[error("the scopes of the store cannot be listed")]
    Scopes(#[source] StoreError),
    #[error("conversation {key} cannot be exported")]
    Export { key: ConversationKey, source: StoreError },
    #[error("nothing was imported")]
    ReadImport(#[source] ReadError),
    #[error("the task that reads `{}` has failed", file.display())]
    ReadTask { file: PathBuf, source: tokio::task::JoinError },
    #[error(
        "a store in memory is lost when the command ends: give --store sqlite:PATH or the address \
         of a server"
    )]
    MemoryImport,
    #[error(
        "the files have {count} conversations, but --id sets the id of a single one: leave out \
         --id, or give a file with one conversation; nothing was imported"
    )]
    OneId { count: usize },
    #[error("the import stopped; the conversations before this one are stored")]
    Import(#[source] ImportError),
    #[error(
        "the transfer stopped; earlier conversations are complete, and the same command continues the transfer"
    )]
    Transfer(#[source] TransferError),
    #[error("`{}` cannot be imported", file.display())]
    ImportFile { file: PathBuf, source: TransferError },
    #[error("`{}` cannot be continued", file.display())]
    Resume { file: PathBuf, source: TransferError },
    #[error("`{}` cannot be written", file.display())]
    Write { file: PathBuf, source: io::Error },
    #[error(
        "the file `{}` exists: continue it with --resume, or give another path with --to; nothing \
         was written",
        path.display()
    )]
    ExportExists { path: PathBuf },
    #[error(
        "`{}` is a complete export and cannot be continued: give another path with --to for a new export",
        path.display()
    )]
    ExportComplete { path: PathBuf },
    #[error(
        "--record is for --format openai-chat: an export with --format tower-chat always contains all data"
    )]
    RecordOfOtherFormat,
    #[error("{options} cannot be used with --from {from}: see `tower-chat import --help`")]
    ImportOptions { options: &'static str, from: &'static str },
    #[error(
        "--resume, --receipt and --json are for --format tower-chat: leave them out, or choose this format"
    )]
    NoReceipt,
    #[error("the receipt `{}` cannot be used", file.display())]
    Receipt { file: PathBuf, source: ReceiptLogError },
    #[error("the copy {to} cannot be created; nothing was changed")]
    Fork { to: ConversationKey, source: StoreError },
    #[error("the tool calls of conversation {key} cannot be read")]
    Tools { key: ConversationKey, source: StoreError },
    #[error(transparent)]
    Repair(RepairError),
    #[error("conversation {key} cannot be checked")]
    CheckConversation { key: ConversationKey, source: StoreError },
    #[error(
        "conversation {key} of the store is encrypted: set the environment variable \
         {KEYS_VARIABLE} to the keys, NAME:KEY,NAME:KEY,... with a KEY of 64 hexadecimal digits"
    )]
    Sealed { key: ConversationKey },
    #[error(
        "conversation {key} is encrypted with a key that is not in the environment variable \
         {KEYS_VARIABLE}: add the key to the variable, as NAME:KEY"
    )]
    NoKey { key: ConversationKey, source: StoreError },
    #[error("conversation {key} cannot be pruned; earlier conversations were pruned")]
    Prune { key: ConversationKey, source: StoreError },
    #[error("the open run of conversation {key} cannot be read or ended")]
    OpenRun { key: ConversationKey, source: StoreError },
    #[error("the store cannot be copied; nothing was changed")]
    Backup(#[source] BackupError),
    #[error(
        "the file `{}` exists: replace it with --replace, or give another path with --to; nothing \
         was changed",
        path.display()
    )]
    CopyExists { path: PathBuf },
    #[error(
        "the store cannot be vacuumed; nothing is lost, and remains of deleted data may still exist"
    )]
    Vacuum(#[source] StoreError),
    #[error("the store cannot be closed")]
    Close(#[source] StoreError),
    #[error(transparent)]
    Chat(#[from] ChatError),
    #[error("the output cannot be written")]
    Output(#[source] io::Error),
}

/// Replaces the advice for programmers in errors of the library by options of the command.
impl From<OpenError> for CliError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Missing { path } => Self::NoStore { path },
            OpenError::Older { path, version, supported } => {
                Self::OlderStore { path, version, supported }
            }
            OpenError::ReadOnly { path } => Self::NotWritable { path },
            other => Self::Open(other),
        }
    }
}

impl From<tower_chat_postgres::OpenError> for CliError {
    fn from(error: tower_chat_postgres::OpenError) -> Self {
        use tower_chat_postgres::OpenError as Postgres;
        match error {
            Postgres::Older { schema, version, supported } => {
                Self::OlderTables { schema, version, supported }
            }
            Postgres::NoTables { schema } => Self::NoTables { schema },
            other => Self::OpenPostgres(other),
        }
    }
}

impl From<BackupError> for CliError {
    fn from(error: BackupError) -> Self {
        match error {
            BackupError::Exists { path } => Self::CopyExists { path },
            BackupError::Open(error) => error.into(),
            other => Self::Backup(other),
        }
    }
}

impl From<RepairError> for CliError {
    fn from(error: RepairError) -> Self {
        match error {
            RepairError::Sealed { key } => Self::Sealed { key },
            RepairError::NoKey { key, source } => Self::NoKey { key, source },
            other => Self::Repair(other),
        }
    }
}

impl From<ServeError> for CliError {
    fn from(error: ServeError) -> Self {
        match error {
            ServeError::TokenNeeded { address } => Self::TokenNeeded { address },
            other => Self::Served(other),
        }
    }
}

/// Formats an error and its sources in one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // The text of a transparent error ends with the text of its source, which must not be
        // repeated.
        if !is_verdict(cause) && !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text.replace('\n', " ")
}
