//! `tower-chat import`.

mod own;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use clap::{Args, ValueEnum};
use serde::Serialize;
use tower_chat::{ConversationKey, HistoryStore, MemoryStore, store::StoreError};
use tower_chat_import::{Effect, Format, ImportError, ImportOutcome, ImportedConversation, Loss};

use crate::{
    arguments::STORE_VARIABLE,
    error::CliError,
    figures::json_line,
    output::{Lines, count_of, counted},
    store::{OpenedStore, StoreLocation},
    transfer::{ReportOptions, SelectionOptions},
};

/// The default scope of conversations from another system.
const SCOPE: &str = "imported";

#[derive(Debug, Args)]
pub(crate) struct ImportArguments {
    /// The files
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The store; a missing file is created
    #[arg(long, value_name = "STORE", env = STORE_VARIABLE, hide_env_values = true)]
    store: StoreLocation,
    /// The system that has written the files
    #[arg(long, value_enum, default_value_t = Source::TowerChat)]
    from: Source,
    /// For another system: the scope of the imported conversations, by default `imported`. For an
    /// export: import only conversations of this scope
    #[arg(long)]
    scope: Option<String>,
    /// For an export: import only the conversations with this id, in any scope
    #[arg(long, value_name = "ID")]
    conversation: Option<String>,
    /// For another system: the id of the imported conversation, if the files contain only one
    #[arg(long)]
    id: Option<String>,
    /// For another system: print what would be imported, and write nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    report: ReportOptions,
}

/// The system that has written a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Source {
    /// tower-chat export --format tower-chat
    TowerChat,
    /// Messages of OpenAI Chat Completions, as JSON or JSON Lines: a list of messages, or {"id",
    /// "messages"}
    OpenaiChat,
    /// Items of OpenAI Responses, in the same forms
    OpenaiResponses,
    /// Messages of Anthropic, in the same forms
    Anthropic,
    /// Contents of Gemini, in the same forms
    Gemini,
    /// The SQLite file of a SQLiteSession of the OpenAI Agents SDK for Python
    OpenaiAgents,
    /// The SQLite file of a SqliteSaver of LangGraph
    Langgraph,
    /// JSON Lines of a FileHistoryProvider of Microsoft Agent Framework
    AgentFramework,
    /// JSON of ModelMessagesTypeAdapter of Pydantic AI
    PydanticAi,
    /// JSON of UIMessages of Vercel's AI SDK
    VercelUi,
}

impl Source {
    /// Returns the format of the other system's files.
    fn foreign(self) -> Option<Format> {
        Some(match self {
            Self::TowerChat => return None,
            Self::OpenaiChat => Format::OpenAiChat,
            Self::OpenaiResponses => Format::OpenAiResponses,
            Self::Anthropic => Format::Anthropic,
            Self::Gemini => Format::Gemini,
            Self::OpenaiAgents => Format::OpenAiAgents,
            Self::Langgraph => Format::LangGraph,
            Self::AgentFramework => Format::AgentFramework,
            Self::PydanticAi => Format::PydanticAi,
            Self::VercelUi => Format::VercelUi,
        })
    }
}

pub(crate) async fn import(arguments: ImportArguments) -> Result<ExitCode, CliError> {
    let Some(format) = arguments.from.foreign() else { return import_own(arguments).await };
    if arguments.report.receipt.is_some() || arguments.conversation.is_some() {
        let options = "there is no --receipt and no --conversation";
        return Err(CliError::ImportOptions { options, from: "another system" });
    }
    import_foreign(arguments, format).await
}

/// Imports the conversations of a file that `export` has written.
async fn import_own(arguments: ImportArguments) -> Result<ExitCode, CliError> {
    let ImportArguments { files, store, scope, conversation, id, dry_run, report, .. } = arguments;
    let mut files = files.into_iter();
    match (files.next(), files.next()) {
        (Some(file), None) if id.is_none() && !dry_run => {
            let selection = SelectionOptions { scope, conversation };
            own::import(file, store, selection, report).await
        }
        _ => {
            let options = "there is one file, no --id and no --dry-run";
            Err(CliError::ImportOptions { options, from: "tower-chat (the default)" })
        }
    }
}

/// Imports the conversations of files that another system has written.
async fn import_foreign(arguments: ImportArguments, format: Format) -> Result<ExitCode, CliError> {
    let mut found = Vec::new();
    for file in &arguments.files {
        let read = read(format, file).await?;
        found.extend(read.into_iter().map(|conversation| (file, conversation)));
    }
    if arguments.id.is_some() && found.len() != 1 {
        return Err(CliError::OneId { count: found.len() });
    }
    let (history, opened) = open(&arguments).await?;
    let mut report = Report::new(arguments.report.json, arguments.dry_run);
    let mut failed = None;
    for (file, conversation) in &found {
        let id = arguments.id.as_deref().unwrap_or(&conversation.id);
        let scope = arguments.scope.as_deref().unwrap_or(SCOPE);
        let key = ConversationKey::new(scope, id);
        let done = match arguments.dry_run {
            true => tower_chat_import::compare(&*history, &key, conversation).await,
            false => tower_chat_import::store(&*history, &key, conversation).await,
        };
        match done {
            Err(ImportError::Differs { message, .. }) => {
                report.add(file, &key, conversation, Done::Differs { first_different: message });
            }
            Err(ImportError::Store { source, .. }) if is_of_conversation(&source) => {
                let done = Done::Refused { reason: crate::error::chain(&source) };
                report.add(file, &key, conversation, done);
            }
            Err(error) => {
                failed = Some(CliError::Import(error));
                break;
            }
            Ok(outcome) => report.add(file, &key, conversation, outcome.into()),
        }
    }
    if let Some(opened) = opened {
        opened.close().await?;
    }
    let code = report.finish()?;
    failed.map_or(Ok(code), Err)
}

async fn read(format: Format, file: &Path) -> Result<Vec<ImportedConversation>, CliError> {
    let path = file.to_owned();
    let reading = tokio::task::spawn_blocking(move || tower_chat_import::read(format, &path));
    let read =
        reading.await.map_err(|source| CliError::ReadTask { file: file.to_owned(), source })?;
    read.map_err(CliError::ReadImport)
}

/// Opens the store. A dry run without a file uses an empty store in memory.
async fn open(
    arguments: &ImportArguments,
) -> Result<(Arc<dyn HistoryStore>, Option<OpenedStore>), CliError> {
    let store = &arguments.store;
    let opened = match (store, arguments.dry_run) {
        (StoreLocation::Memory, _) => return Err(CliError::MemoryImport),
        (_, false) => store.open().await?,
        (_, true) => match store.open_to_read("import").await {
            Err(CliError::NoStore { .. } | CliError::NoTables { .. }) => {
                return Ok((Arc::new(MemoryStore::new()), None));
            }
            opened => opened?,
        },
    };
    Ok((opened.history().clone(), Some(opened)))
}

/// Returns whether the import can continue with the next conversation after an error.
fn is_of_conversation(error: &StoreError) -> bool {
    match error {
        StoreError::Backend { retryable, .. } => !retryable,
        StoreError::Corrupt { .. }
        | StoreError::Undecodable { .. }
        | StoreError::UnderWay { .. }
        | StoreError::Conflict(_)
        | StoreError::DescriptionTooLarge(_) => true,
        _ => false,
    }
}

#[derive(Debug, Clone, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum Done {
    Written,
    Extended { first_new: u64 },
    Unchanged,
    Differs { first_different: u64 },
    Refused { reason: String },
}

impl From<ImportOutcome> for Done {
    fn from(outcome: ImportOutcome) -> Self {
        match outcome {
            ImportOutcome::Written => Self::Written,
            ImportOutcome::Extended { from } => {
                Self::Extended { first_new: from.saturating_add(1) }
            }
            _ => Self::Unchanged,
        }
    }
}

/// A line of the JSON output.
#[derive(Serialize)]
struct Line<'a> {
    file: String,
    scope: &'a str,
    id: &'a str,
    #[serde(flatten)]
    done: Done,
    messages: usize,
    losses: Vec<LossLine<'a>>,
}

#[derive(Serialize)]
struct LossLine<'a> {
    position: &'a str,
    what: &'a str,
    reason: &'a str,
    stored: bool,
}

impl<'a> From<&'a Loss> for LossLine<'a> {
    fn from(loss: &'a Loss) -> Self {
        let Loss { position, what, reason, effect, .. } = loss;
        Self { position, what, reason, stored: *effect != Effect::NotStored }
    }
}

/// Writes the output, and counts the conversations with each outcome.
struct Report {
    lines: Lines,
    is_json: bool,
    is_dry: bool,
    /// The numbers of written, extended, unchanged, different and refused conversations.
    counts: [usize; 5],
    /// Whether all content of all conversations can be stored.
    is_whole: bool,
}

impl Report {
    fn new(is_json: bool, is_dry: bool) -> Self {
        Self { lines: Lines::default(), is_json, is_dry, counts: [0; 5], is_whole: true }
    }

    fn add(
        &mut self,
        file: &Path,
        key: &ConversationKey,
        conversation: &ImportedConversation,
        done: Done,
    ) {
        let [written, extended, unchanged, different, refused] = &mut self.counts;
        let count = match &done {
            Done::Written => written,
            Done::Extended { .. } => extended,
            Done::Unchanged => unchanged,
            Done::Differs { .. } => different,
            Done::Refused { .. } => refused,
        };
        *count = count.saturating_add(1);
        self.is_whole &= conversation.is_whole();
        if self.is_json {
            self.add_json(file, key, conversation, done);
            return;
        }
        let messages = conversation.messages.len();
        let counted = counted(count_of(messages), "message");
        let would = if self.is_dry { "would be " } else { "" };
        self.lines.write(&match done {
            Done::Written => format!("{key}: {would}written, {counted}"),
            Done::Extended { first_new } => {
                format!("{key}: {would}extended, messages {first_new} to {messages}")
            }
            Done::Unchanged => format!("{key}: unchanged, {counted}"),
            Done::Differs { first_different } => format!(
                "{key}: skipped, because the stored conversation differs from message \
                 {first_different} on: import this one into another --scope, or with another --id"
            ),
            Done::Refused { reason } => format!(
                "{key}: refused by the store: {reason}; the messages before are stored, and the \
                 other conversations are imported"
            ),
        });
        for loss in &conversation.losses {
            self.lines.write(&format!("  {loss}"));
        }
    }

    fn add_json(
        &mut self,
        file: &Path,
        key: &ConversationKey,
        conversation: &ImportedConversation,
        done: Done,
    ) {
        let line = Line {
            file: file.display().to_string(),
            scope: key.scope(),
            id: key.id(),
            done,
            messages: conversation.messages.len(),
            losses: conversation.losses.iter().map(LossLine::from).collect(),
        };
        self.lines.write_json(&json_line(&line));
    }

    fn finish(mut self) -> Result<ExitCode, CliError> {
        let [written, extended, unchanged, different, refused] = self.counts;
        if !self.is_json {
            let would = if self.is_dry { "would be " } else { "" };
            self.lines.write(&format!(
                "{would}imported: {written} written, {extended} extended, {unchanged} unchanged, \
                 {different} skipped{}",
                if refused > 0 {
                    format!(", {refused} refused by the store")
                } else {
                    String::new()
                }
            ));
        }
        self.lines.finish().map_err(CliError::Output)?;
        Ok(if self.is_whole && different == 0 && refused == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(1)
        })
    }
}
