//! The errors of an MCP server.

use std::time::Duration;

use rmcp::{ErrorData, ServiceError, transport::DynamicTransportError};
use tower_chat_layers::tool::DuplicateTool;

use crate::without_secrets;

/// The tools of a server could not be listed, or a tool did not answer.
///
/// A tool returns it as a boxed error. It is the source of a
/// [`ToolFailure`](tower_chat_layers::tool_loop::ToolFailure).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum McpError {
    /// The server did not list its tools.
    #[error("the tools of the MCP server could not be listed: is it connected, and has it tools?")]
    NotListed {
        /// The error of the connection.
        source: ServiceError,
    },
    /// The pages of the list of tools form a cycle.
    #[error(
        "the MCP server names page {cursor:?} of its tools again after it was read: \
         its list would never end"
    )]
    EndlessList {
        /// The cursor that the server sent twice.
        cursor: String,
    },
    /// The server sent more than a limit allows.
    #[error(transparent)]
    OverLimit(#[from] OverLimit),
    /// The whole list of tools did not arrive in time.
    #[error(
        "the MCP server did not list its tools within {limit:?}: \
         McpLimits::with_max_list_time allows more"
    )]
    ListTimedOut {
        /// The limit.
        limit: Duration,
    },
    /// Two tools have the same name.
    #[error(
        "the tools of the MCP server do not fit into the set, which has another tool of the same name: \
         give the tools of one of the servers a prefix"
    )]
    Duplicate(#[from] DuplicateTool),
    /// The server refused the call, or failed while it ran the tool.
    #[error("the MCP server refused the call of tool {tool:?}")]
    Refused {
        /// The server's name of the tool.
        tool: String,
        /// The JSON-RPC error.
        source: ErrorData,
    },
    /// The connection ended before the answer arrived.
    #[error(
        "the connection to the MCP server ended before tool {tool:?} answered, which may or may \
         not have run: connect again and list the tools anew"
    )]
    Closed {
        /// The server's name of the tool.
        tool: String,
        /// How the connection ended.
        source: ServiceError,
    },
    /// No answer arrived in time. The call was cancelled.
    #[error(
        "tool {tool:?} of the MCP server did not answer within {limit:?}: \
         McpTools::with_max_call_time allows more"
    )]
    TimedOut {
        /// The server's name of the tool.
        tool: String,
        /// The limit.
        limit: Duration,
    },
    /// The answer of the server is not a result.
    #[error(
        "tool {tool:?} of the MCP server answered with {what}, which this adapter does not support"
    )]
    Unsupported {
        /// The server's name of the tool.
        tool: String,
        /// The kind of the answer.
        what: &'static str,
    },
    /// Sending the call failed.
    #[error("tool {tool:?} of the MCP server could not be called")]
    NotCalled {
        /// The server's name of the tool.
        tool: String,
        /// The error of the connection.
        source: ServiceError,
    },
}

/// The server sent more than one of the [limits](crate::McpLimits) allows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the MCP server sent more than {limit} {what}: McpLimits::{setting} allows more")]
#[non_exhaustive]
pub struct OverLimit {
    /// What exceeds the limit, such as `tools`.
    pub what: &'static str,
    /// The limit.
    pub limit: usize,
    /// The setting of [`McpLimits`](crate::McpLimits) for this limit.
    pub setting: &'static str,
}

impl McpError {
    /// Whether the same call may succeed if it is repeated over the same connection. The tool may
    /// already have run, so a repetition is not necessarily safe.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::NotListed { source } => !is_closed(source),
            Self::Refused { source, .. } => source.code == rmcp::model::ErrorCode::INTERNAL_ERROR,
            Self::TimedOut { .. } | Self::ListTimedOut { .. } => true,
            Self::EndlessList { .. }
            | Self::OverLimit(_)
            | Self::Duplicate(_)
            | Self::Closed { .. }
            | Self::Unsupported { .. }
            | Self::NotCalled { .. } => false,
        }
    }

    pub(crate) fn of_list(error: ServiceError) -> Self {
        Self::NotListed { source: with_safe_addresses(error) }
    }

    pub(crate) fn of_call(tool: String, error: ServiceError) -> Self {
        match with_safe_addresses(error) {
            ServiceError::McpError(source) => Self::Refused { tool, source },
            source if is_closed(&source) => Self::Closed { tool, source },
            source => Self::NotCalled { tool, source },
        }
    }
}

/// Removes secrets in the server's address from the error, because a tool's error is sent to the model,
/// stored and logged.
fn with_safe_addresses(error: ServiceError) -> ServiceError {
    match error {
        ServiceError::TransportSend(DynamicTransportError {
            transport_name,
            transport_type_id,
            error,
            ..
        }) => {
            let cause = Box::new(TransportFailure(without_secrets(&chain(&*error))));
            let error = DynamicTransportError::from_parts(transport_name, transport_type_id, cause);
            ServiceError::TransportSend(error)
        }
        ServiceError::Cancelled { reason } => {
            ServiceError::Cancelled { reason: reason.as_deref().map(without_secrets) }
        }
        ServiceError::McpError(mut error) => {
            error.message = without_secrets(&error.message).into();
            ServiceError::McpError(error)
        }
        other => other,
    }
}

/// Joins the texts of an error and its sources.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // Many errors repeat the text of their source.
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}

/// The text of a transport's error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct TransportFailure(String);

fn is_closed(error: &ServiceError) -> bool {
    matches!(
        error,
        ServiceError::TransportClosed
            | ServiceError::TransportSend(_)
            | ServiceError::Cancelled { .. }
    )
}
