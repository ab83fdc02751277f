//! What can go wrong between the loop and a server.

use std::time::Duration;

use rmcp::{ErrorData, ServiceError, transport::DynamicTransportError};
use tower_chat_layers::tool::DuplicateTool;

use crate::without_secrets;

/// A server's tools could not be listed, or one of them gave no answer.
///
/// A tool returns it as a boxed error; in a
/// [`ToolFailure`](tower_chat_layers::tool_loop::ToolFailure) it is the source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum McpError {
    /// The server did not say which tools it has.
    #[error("the tools of the MCP server could not be listed: is it connected, and has it tools?")]
    NotListed {
        /// Why.
        source: ServiceError,
    },
    /// The list of tools goes round in a circle.
    #[error(
        "the MCP server names page {cursor:?} of its tools again after it was read: \
         its list would never end"
    )]
    EndlessList {
        /// The cursor that came twice.
        cursor: String,
    },
    /// The server sent more than it may.
    #[error(transparent)]
    OverLimit(#[from] OverLimit),
    /// The list of tools did not end in time.
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
    /// The server did not take the call, or broke while it worked on it.
    #[error("the MCP server refused the call of tool {tool:?}")]
    Refused {
        /// The tool, by the server's name.
        tool: String,
        /// The JSON-RPC error.
        source: ErrorData,
    },
    /// The connection ended before the answer came.
    #[error(
        "the connection to the MCP server ended before tool {tool:?} answered, which may or may \
         not have run: connect again and list the tools anew"
    )]
    Closed {
        /// The tool, by the server's name.
        tool: String,
        /// How.
        source: ServiceError,
    },
    /// No answer came in time. The server was told to stop.
    #[error(
        "tool {tool:?} of the MCP server did not answer within {limit:?}: \
         McpTools::with_max_call_time allows more"
    )]
    TimedOut {
        /// The tool, by the server's name.
        tool: String,
        /// The limit.
        limit: Duration,
    },
    /// The server answered with something other than a result.
    #[error(
        "tool {tool:?} of the MCP server answered with {what}, which this adapter does not support"
    )]
    Unsupported {
        /// The tool, by the server's name.
        tool: String,
        /// What it was.
        what: &'static str,
    },
    /// Something else went wrong below.
    #[error("tool {tool:?} of the MCP server could not be called")]
    NotCalled {
        /// The tool, by the server's name.
        tool: String,
        /// What.
        source: ServiceError,
    },
}

/// The server sent more than one of the [limits](crate::McpLimits) allows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the MCP server sent more than {limit} {what}: McpLimits::{setting} allows more")]
#[non_exhaustive]
pub struct OverLimit {
    /// What there was too much of.
    pub what: &'static str,
    /// How much is allowed.
    pub limit: usize,
    /// The setting of [`McpLimits`](crate::McpLimits) that says so.
    pub setting: &'static str,
}

impl McpError {
    /// Whether the same call may succeed if it is made again, over the same connection. It does
    /// not say that this is safe: the tool may have run.
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

/// The error without what may be secret in the address of the server: a tool's error is shown to the model,
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

/// The texts of an error and its causes.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // Many errors repeat their cause.
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}

/// What a transport reports.
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
