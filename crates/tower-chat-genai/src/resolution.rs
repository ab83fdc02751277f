//! What genai says where it cannot tell where, or as who, a provider is asked.

use crate::GenAiError;

/// The error of ours that one of genai stands for.
pub(crate) fn error(error: genai::Error) -> GenAiError {
    use genai::Error;
    match error {
        Error::Resolver { resolver_error, .. } => {
            GenAiError::configuration("the key", resolver_error)
        }
        Error::RequiresApiKey { .. } | Error::NoAuthData { .. } | Error::NoAuthResolver { .. } => {
            GenAiError::configuration("the key", error)
        }
        other => GenAiError::configuration("genai's settings", other),
    }
}
