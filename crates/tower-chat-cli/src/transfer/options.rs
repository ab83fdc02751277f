//! Options that several commands share.

use std::path::PathBuf;

use clap::Args;
use tower_chat_transfer::Selection;

/// The options that select conversations.
#[derive(Debug, Args)]
pub(crate) struct SelectionOptions {
    /// Only conversations of this scope
    #[arg(long)]
    pub(crate) scope: Option<String>,
    /// Only conversations with this id, in any scope
    #[arg(long, value_name = "ID")]
    pub(crate) conversation: Option<String>,
}

impl SelectionOptions {
    pub(crate) fn selection(&self) -> Selection {
        let selection = self.scope.as_deref().map_or_else(Selection::everything, Selection::scope);
        match &self.conversation {
            Some(id) => selection.with_id(id),
            None => selection,
        }
    }
}

/// The options for the output of a transfer.
#[derive(Debug, Clone, Args)]
pub(crate) struct ReportOptions {
    /// Write a receipt to this file, with a line for each conversation; if the command is repeated,
    /// it continues the receipt
    #[arg(long, value_name = "FILE")]
    pub(crate) receipt: Option<PathBuf>,
    /// Print one JSON object per line: {"done": ...} for each conversation, and {"receipt": ...} at
    /// the end
    #[arg(long)]
    pub(crate) json: bool,
}
