//! Answers that are values of a type.
//!
//! [`StructuredOutput`] asks a provider for JSON that conforms to the schema of a type, by the field
//! that the provider has for it, and reads the answer as a value of the type. An answer that is no
//! such value, whatever the reason, is a [`StructuredError`] with the text of the answer.
//!
//! ```
//! use tower_chat_core::ChatRequest;
//! use tower_chat_providers::structured::{StructuredFormat, StructuredOutput};
//!
//! #[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
//! struct Booking {
//!     /// The number of guests.
//!     #[schemars(range(min = 1, max = 12))]
//!     guests: u8,
//!     note: Option<String>,
//! }
//!
//! let booking = StructuredOutput::<Booking>::for_provider(StructuredFormat::OpenAiChat);
//! let request = booking.apply(ChatRequest::user("A table for four, please."));
//! assert_eq!(request.options.extra["response_format"]["type"], "json_schema");
//! # let answer = tower_chat_core::Answer::new(
//! #     vec![tower_chat_core::Message::assistant(r#"{"guests":4,"note":null}"#).into()],
//! #     tower_chat_core::Finish::default(),
//! # );
//! // let answer = client.call(request).await?.collect().await?;
//! assert_eq!(booking.parse(&answer)?.guests, 4);
//! # Ok::<(), tower_chat_providers::structured::StructuredError>(())
//! ```
//!
//! # The schema
//!
//! Providers take parts of JSON Schema, and not the same ones. What is sent is a schema that all of
//! them take: objects are closed, every property is required (one that may be missing in the type may
//! be `null`), alternatives are `anyOf`, and limits of numbers, texts and lists are not constraints
//! but words in descriptions. The answer is checked against the schema of the type itself, with its
//! limits, and then deserialized.
//!
//! A type whose schema is no object, such as an enum or a list, is sent as the field `value` of one.
//! A map has keys that no schema names. With one in the type, OpenAI and Mistral are asked without
//! `strict`, and other providers may refuse the schema.

mod error;
mod format;
mod output;

pub use self::{error::StructuredError, format::StructuredFormat, output::StructuredOutput};
