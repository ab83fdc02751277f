/// Why an answer is no value of the type that was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StructuredError {
    /// The model declined to answer, or a filter of the service stopped the answer.
    #[error("the model refused to answer with a {name}: {text}")]
    #[non_exhaustive]
    Refused {
        /// The name of the schema.
        name: String,
        /// The refusal, or what there is of the answer.
        text: String,
    },
    /// The answer ended at a limit of tokens: raise
    /// [`max_output_tokens`](tower_chat_core::ChatOptions::max_output_tokens).
    #[error(
        "the answer with a {name} was cut off at a limit of tokens, after {} bytes: raise \
         max_output_tokens",
        text.len()
    )]
    #[non_exhaustive]
    CutOff {
        /// The name of the schema.
        name: String,
        /// What there is of the answer.
        text: String,
    },
    /// The answer does not conform to the schema.
    #[error("the answer is no {name}: {problem}")]
    #[non_exhaustive]
    Invalid {
        /// The name of the schema.
        name: String,
        /// The text of the answer, or the arguments of the call that holds it.
        text: String,
        /// What does not conform, and at which position in the answer.
        problem: String,
    },
    /// The schema of the type cannot be used.
    #[error("the schema of {name} cannot be used: {problem}")]
    #[non_exhaustive]
    Schema {
        /// The name of the schema.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
}
