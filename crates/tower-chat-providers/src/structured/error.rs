/// The reason why an answer is not a value of the requested type.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StructuredError {
    /// The model declined to answer, or a filter of the service stopped the answer.
    #[error("the model refused to answer with a {name}: {text}")]
    #[non_exhaustive]
    Refused {
        /// The name of the schema.
        name: String,
        /// The text of the refusal, or the part of the answer that was received.
        text: String,
    },
    /// The answer reached the token limit. A higher
    /// [`max_output_tokens`](tower_chat_core::ChatOptions::max_output_tokens) allows a longer
    /// answer.
    #[error(
        "the answer with a {name} was cut off at a limit of tokens, after {} bytes: raise \
         max_output_tokens",
        text.len()
    )]
    #[non_exhaustive]
    CutOff {
        /// The name of the schema.
        name: String,
        /// The part of the answer that was received.
        text: String,
    },
    /// The answer does not conform to the schema.
    #[error("the answer is not a {name}: {problem}")]
    #[non_exhaustive]
    Invalid {
        /// The name of the schema.
        name: String,
        /// The text of the answer, or the arguments of the call that contains it.
        text: String,
        /// What does not conform to the schema, and its position in the answer.
        problem: String,
    },
    /// The schema of the type is not valid.
    #[error("the schema of {name} is not valid: {problem}")]
    #[non_exhaustive]
    Schema {
        /// The name of the schema.
        name: String,
        /// What is wrong with the schema.
        problem: String,
    },
}
