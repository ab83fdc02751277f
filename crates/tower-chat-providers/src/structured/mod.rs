//! Structured output: answers that are values of a Rust type.
//!
//! [`StructuredOutput`] adds the schema of a type to a request, in the field in which the provider
//! expects the schema, and deserializes the answer. If the answer is not a value of the type,
//! deserializing returns a [`StructuredError`] with the text of the answer.
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
//! Providers support different subsets of JSON Schema, so the request contains a schema that all of
//! them accept. In this schema, objects allow no additional properties, and every property is
//! required. A property that is optional in the type may be `null`. Alternatives are written as
//! `anyOf`. Limits of numbers, strings and lists are written into the descriptions, because
//! providers do not accept them as constraints. The answer is validated against the original schema
//! of the type, including its limits, and is then deserialized.
//!
//! If the values of a type are not JSON objects, such as those of an enum or a list, the schema in
//! the request describes an object whose field `value` contains the value. If a type contains a
//! map, its schema cannot list the keys of the map. For such a type, requests to OpenAI and Mistral
//! have `strict` set to `false`. Other providers may refuse the schema.

mod error;
mod format;
mod output;

pub use self::{error::StructuredError, format::StructuredFormat, output::StructuredOutput};
