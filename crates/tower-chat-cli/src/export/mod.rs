//! `tower-chat export`.

mod file;
mod record;
mod wires;

use std::{
    fs::File,
    io::{BufWriter, ErrorKind, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, ValueEnum};
use tower_chat::HistoryStore;

use self::wires::{Line, Wire};
use crate::{
    arguments::STORE_VARIABLE,
    error::CliError,
    figures::json_line,
    files::{FileMode, NamedFile, check_written},
    output::Lines,
    store::{self, StoreLocation},
    transfer::{ReportOptions, SelectionOptions},
};

#[derive(Debug, Args)]
pub(crate) struct ExportArguments {
    /// The store: sqlite:PATH, postgres://USER@HOST/DATABASE or redis://HOST/DATABASE
    #[arg(long, value_name = "STORE", env = STORE_VARIABLE, hide_env_values = true)]
    store: StoreLocation,
    /// The format of the output
    #[arg(long, value_enum, default_value_t = Format::OpenaiChat)]
    format: Format,
    /// Print all stored data, including calls without a result and calls that wait for approval
    ///
    /// The field x_parts contains the data that the OpenAI chat format cannot express.
    #[arg(long)]
    record: bool,
    #[command(flatten)]
    selection: SelectionOptions,
    /// Write to this file, which must not exist
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Continue an interrupted export to the file; only with --format tower-chat
    #[arg(long, requires = "to")]
    resume: bool,
    #[command(flatten)]
    report: ReportOptions,
}

/// The format of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// All stored data, for import
    TowerChat,
    /// {"scope", "id", "messages"} for OpenAI Chat Completions
    OpenaiChat,
    /// {"scope", "id", "input"} for OpenAI Responses
    OpenaiResponses,
    /// {"scope", "id", "system", "messages"} for Anthropic
    Anthropic,
    /// {"scope", "id", "systemInstruction", "contents"} for Gemini
    Gemini,
}

/// Prints the conversations of a store.
pub(crate) async fn export(arguments: ExportArguments) -> Result<ExitCode, CliError> {
    let wire = match (arguments.format, arguments.record) {
        (Format::TowerChat, false) => return file::export(arguments).await,
        (Format::OpenaiChat, false) => Wire::OpenAiChat,
        (Format::OpenaiChat, true) => Wire::OpenAiChatRecord,
        (Format::OpenaiResponses, false) => Wire::OpenAiResponses,
        (Format::Anthropic, false) => Wire::Anthropic,
        (Format::Gemini, false) => Wire::Gemini,
        (_, true) => return Err(CliError::RecordOfOtherFormat),
    };
    let ReportOptions { receipt, json } = &arguments.report;
    if arguments.resume || receipt.is_some() || *json {
        return Err(CliError::NoReceipt);
    }
    let to = arguments.to.as_deref().map(|path| NamedFile::new("--to", path));
    check_written(to.as_slice(), &[], &[&arguments.store])?;
    let mode = FileMode::of(&arguments.store);
    let opened = arguments.store.open_to_read("export").await?;
    let SelectionOptions { scope, conversation } = arguments.selection;
    let mut output = Output::new(arguments.to, mode)?;
    for key in store::keys(&opened, scope, conversation.as_deref()).await? {
        let history = opened.history().load(&key).await;
        let history = history.map_err(|source| CliError::Export { key: key.clone(), source })?;
        output.write(&json_line(&Line::new(&key, &history.messages, wire)))?;
        if !output.is_open() {
            break;
        }
    }
    output.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// The output of an export: standard output or a file.
enum Output {
    Printed(Lines),
    File { path: PathBuf, writer: BufWriter<File> },
}

impl Output {
    fn new(path: Option<PathBuf>, mode: FileMode) -> Result<Self, CliError> {
        let Some(path) = path else { return Ok(Self::Printed(Lines::default())) };
        let writer = BufWriter::new(create(&path, mode)?);
        Ok(Self::File { path, writer })
    }

    fn write(&mut self, line: &str) -> Result<(), CliError> {
        match self {
            Self::Printed(lines) => lines.write_json(line),
            Self::File { path, writer } => writeln!(writer, "{line}")
                .map_err(|source| CliError::Write { file: path.clone(), source })?,
        }
        Ok(())
    }

    fn is_open(&self) -> bool {
        match self {
            Self::Printed(lines) => lines.are_open(),
            Self::File { .. } => true,
        }
    }

    fn finish(self) -> Result<(), CliError> {
        match self {
            Self::Printed(lines) => lines.finish().map_err(CliError::Output),
            Self::File { path, mut writer } => writer
                .flush()
                .and_then(|()| writer.get_ref().sync_all())
                .map_err(|source| CliError::Write { file: path, source }),
        }
    }
}

/// Creates a file. Fails if the file exists.
fn create(path: &Path, mode: FileMode) -> Result<File, CliError> {
    mode.create_new(path).map_err(|source| match source.kind() {
        ErrorKind::AlreadyExists => CliError::ExportExists { path: path.to_owned() },
        _ => CliError::Write { file: path.to_owned(), source },
    })
}
