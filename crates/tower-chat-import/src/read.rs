//! [`read`], which reads a file of any format.

use std::{fs, path::Path};

use crate::{
    Format, ImportedConversation, ReadError, agent_framework, detect, document::documents,
    langgraph, openai_agents, provider, pydantic_ai, vercel_ui,
};

/// Reads the conversations of a file.
///
/// Content that cannot be imported is listed in [`ImportedConversation::losses`]. An invalid file
/// is an error, and never read in part.
///
/// # Errors
///
/// Fails with [`ReadError`], which contains the position and the reason, if the file cannot be read
/// or does not have the format.
pub fn read(format: Format, path: &Path) -> Result<Vec<ImportedConversation>, ReadError> {
    let conversations = match format {
        Format::OpenAiAgents => openai_agents::read(path)?,
        Format::LangGraph => langgraph::read(path)?,
        Format::OpenAiChat
        | Format::OpenAiResponses
        | Format::Anthropic
        | Format::Gemini
        | Format::AgentFramework
        | Format::PydanticAi
        | Format::VercelUi => read_json(format, path)?,
    };
    Ok(conversations.into_iter().map(ImportedConversation::checked).collect())
}

fn read_json(format: Format, path: &Path) -> Result<Vec<ImportedConversation>, ReadError> {
    let text = text_of(format, path)?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let found =
        documents(&text, provider::lists(format)).map_err(|error| error.in_file(path, format))?;
    detect::check(format, &found).map_err(|reason| ReadError::OtherFormat {
        path: path.to_owned(),
        format,
        reason,
    })?;
    let read = |document| match format {
        Format::AgentFramework => agent_framework::read(document, &stem),
        Format::PydanticAi => pydantic_ai::read(document, &stem),
        Format::VercelUi => vercel_ui::read(document, &stem),
        _ => provider::read(format, document, &stem),
    };
    found.iter().map(read).collect::<Result<_, _>>().map_err(|error| error.in_file(path, format))
}

fn text_of(format: Format, path: &Path) -> Result<String, ReadError> {
    let bytes =
        fs::read(path).map_err(|source| ReadError::File { path: path.to_owned(), source })?;
    String::from_utf8(bytes).map_err(|_| ReadError::OtherFormat {
        path: path.to_owned(),
        format,
        reason: "it is not text in UTF-8".to_owned(),
    })
}
