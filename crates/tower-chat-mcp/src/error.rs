//! The errors of the connection to an MCP server.

use std::{error::Error, fmt, time::Duration};

use rmcp::{ServiceError, transport::DynamicTransportError};
use tower_chat_layers::{Classified, Retryability, is_retryable, tool::DuplicateTool};

use crate::without_secrets;

/// The tools of a server could not be listed, or a tool did not answer.
///
/// [`McpTool`](crate::McpTool) returns this error boxed. The tool loop, which is the layer that
/// runs the tools, wraps this error in a
/// [`ToolFailure`](tower_chat_layers::tool_loop::ToolFailure).
#[derive(Debug)]
#[non_exhaustive]
pub enum McpError {
    /// The server did not list its tools.
    NotListed {
        /// The [`ServiceError`] of the connection, wrapped in a [`Classified`] that reports whether a
        /// retry may succeed.
        source: Classified,
    },
    /// The pages of the list of tools form a cycle.
    EndlessList {
        /// The cursor that the server sent twice.
        cursor: String,
    },
    /// The server sent more than a limit allows.
    OverLimit(OverLimit),
    /// The complete list of tools did not arrive within the time limit.
    ListTimedOut {
        /// The limit.
        limit: Duration,
    },
    /// Two tools have the same name.
    Duplicate(DuplicateTool),
    /// The server refused the call, or failed while it ran the tool.
    Refused {
        /// The name of the tool at the server.
        tool: String,
        /// The JSON-RPC error, an [`ErrorData`](rmcp::ErrorData), wrapped in a [`Classified`] that
        /// reports whether a retry may succeed.
        source: Classified,
    },
    /// The connection ended before the answer arrived, or the call could not be sent.
    Closed {
        /// The name of the tool at the server.
        tool: String,
        /// The [`ServiceError`] with which the connection ended, wrapped in a [`Classified`] that
        /// reports whether a retry may succeed.
        source: Classified,
    },
    /// The answer did not arrive within the time limit. The call was cancelled at the server.
    TimedOut {
        /// The name of the tool at the server.
        tool: String,
        /// The limit.
        limit: Duration,
    },
    /// The server answered with a valid message that is not a result, such as a question to the
    /// user.
    Unsupported {
        /// The name of the tool at the server.
        tool: String,
        /// The kind of the answer.
        what: &'static str,
    },
    /// The call failed for another reason, for example because the answer was not a valid answer to
    /// a call.
    NotCalled {
        /// The name of the tool at the server.
        tool: String,
        /// The [`ServiceError`] of the connection, wrapped in a [`Classified`] that reports whether a
        /// retry may succeed.
        source: Classified,
    },
}

impl fmt::Display for McpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotListed { .. } => f.write_str(
                "listing the tools of the MCP server failed: check that it is connected and has tools",
            ),
            Self::EndlessList { cursor } => write!(
                f,
                "listing the tools of the MCP server failed: it refers to page {cursor:?} a second \
                 time, so the list would never end"
            ),
            Self::OverLimit(over_limit) => over_limit.fmt(f),
            Self::ListTimedOut { limit } => write!(
                f,
                "listing the tools of the MCP server failed: it took longer than {limit:?}: raise \
                 McpLimits::with_max_list_time"
            ),
            Self::Duplicate(duplicate) => write!(
                f,
                "the tools of the MCP server were not added: {duplicate}, or set a prefix for the \
                 tools of one of the servers"
            ),
            Self::Refused { tool, .. } => {
                write!(f, "the MCP server refused the call of tool {tool:?}")
            }
            Self::Closed { tool, .. } => write!(
                f,
                "the connection to the MCP server ended before tool {tool:?} answered; the tool may \
                 have run: connect again and list the tools again"
            ),
            Self::TimedOut { tool, limit } => write!(
                f,
                "tool {tool:?} of the MCP server did not answer within {limit:?}: \
                 raise McpTools::with_max_call_time"
            ),
            Self::Unsupported { tool, what } => write!(
                f,
                "tool {tool:?} of the MCP server answered with {what}, which is not supported"
            ),
            Self::NotCalled { tool, .. } => {
                write!(f, "calling tool {tool:?} of the MCP server failed")
            }
        }
    }
}

impl Error for McpError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::NotListed { source }
            | Self::Refused { source, .. }
            | Self::Closed { source, .. }
            | Self::NotCalled { source, .. } => Some(source),
            Self::ListTimedOut { .. } | Self::TimedOut { .. } => {
                Some(Retryability::Retryable.as_source())
            }
            // These errors have no cause: the returned source only reports that a retry cannot
            // succeed.
            Self::OverLimit(_)
            | Self::Duplicate(_)
            | Self::EndlessList { .. }
            | Self::Unsupported { .. } => Some(Retryability::Permanent.as_source()),
        }
    }
}

impl From<OverLimit> for McpError {
    fn from(over_limit: OverLimit) -> Self {
        Self::OverLimit(over_limit)
    }
}

impl From<DuplicateTool> for McpError {
    fn from(duplicate: DuplicateTool) -> Self {
        Self::Duplicate(duplicate)
    }
}

/// The error of a server that exceeded one of the [limits](crate::McpLimits).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the MCP server sent more than {limit} {what}: raise McpLimits::{setting}")]
#[non_exhaustive]
pub struct OverLimit {
    /// The counted items that exceed the limit, such as `tools`.
    pub what: &'static str,
    /// The limit.
    pub limit: usize,
    /// The setting of [`McpLimits`](crate::McpLimits) for this limit.
    pub setting: &'static str,
}

impl McpError {
    /// Returns whether the same call may succeed if it is repeated over the same connection. The
    /// tool may already have run, and a repetition would then run the tool twice.
    pub fn is_retryable(&self) -> bool {
        is_retryable(self) == Some(true)
    }

    pub(crate) fn of_list(error: ServiceError) -> Self {
        let error = with_safe_addresses(error);
        let retryability = Retryability::from_retryable(!is_closed(&error));
        Self::NotListed { source: Classified::new(retryability, error) }
    }

    pub(crate) fn of_call(tool: String, error: ServiceError) -> Self {
        match with_safe_addresses(error) {
            ServiceError::McpError(error) => {
                let is_retryable = error.code == rmcp::model::ErrorCode::INTERNAL_ERROR;
                let retryability = Retryability::from_retryable(is_retryable);
                Self::Refused { tool, source: Classified::new(retryability, error) }
            }
            error if is_closed(&error) => {
                Self::Closed { tool, source: Classified::permanent(error) }
            }
            error => Self::NotCalled { tool, source: Classified::permanent(error) },
        }
    }
}

/// Removes the secrets of addresses from the texts of the error, because the error of a tool is sent to
/// the model, stored and logged.
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

/// Joins the texts of an error and its sources. Omits a text that is contained in an earlier text.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // Many errors contain the text of their source.
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}

/// The text of a transport's error, without the secrets of addresses.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct TransportFailure(String);

/// Returns whether the connection can no longer be used.
fn is_closed(error: &ServiceError) -> bool {
    matches!(
        error,
        ServiceError::TransportClosed
            | ServiceError::TransportSend(_)
            | ServiceError::Cancelled { .. }
    )
}

#[cfg(test)]
mod tests {
    use rmcp::{ErrorData, model::ErrorCode};
    use tower_chat_layers::{
        BoxError, ToolDefinition,
        tool::{Tools, tool_fn},
    };

    use super::*;

    fn refused(code: ErrorCode) -> ServiceError {
        ServiceError::McpError(ErrorData::new(code, "refused", None))
    }

    fn duplicate() -> DuplicateTool {
        let tool = || {
            let definition = ToolDefinition::new("pay", "Pays.", serde_json::json!({}));
            tool_fn(definition, |_| async { Ok::<_, BoxError>("") })
        };
        Tools::new().with(tool()).try_with(tool()).unwrap_err()
    }

    #[test]
    fn every_error_reports_in_its_source_chain_whether_it_is_retryable() {
        let (limit, tool) = (Duration::from_secs(1), || "pay".to_owned());
        let over = OverLimit { what: "tools", limit: 1, setting: "with_max_tools" };
        let errors = [
            (McpError::of_list(refused(ErrorCode::INTERNAL_ERROR)), true),
            (McpError::of_list(ServiceError::TransportClosed), false),
            (McpError::EndlessList { cursor: "1".to_owned() }, false),
            (McpError::OverLimit(over), false),
            (McpError::ListTimedOut { limit }, true),
            (McpError::Duplicate(duplicate()), false),
            (McpError::of_call(tool(), refused(ErrorCode::INTERNAL_ERROR)), true),
            (McpError::of_call(tool(), refused(ErrorCode::INVALID_PARAMS)), false),
            (McpError::of_call(tool(), ServiceError::TransportClosed), false),
            (McpError::of_call(tool(), ServiceError::UnexpectedResponse), false),
            (McpError::TimedOut { tool: tool(), limit }, true),
            (McpError::Unsupported { tool: tool(), what: "a task" }, false),
        ];
        for (error, retryable) in errors {
            assert_eq!(error.is_retryable(), retryable, "{error:?}");
            assert_eq!(is_retryable(&error), Some(retryable), "{error:?}");
        }
    }
}
