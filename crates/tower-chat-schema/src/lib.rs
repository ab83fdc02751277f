//! For those who describe arguments of tools or answers of models by Rust types: JSON Schemas in the
//! form that every provider takes.
//!
//! ```
//! use serde_json::json;
//! use tower_chat_schema::TypeSchema;
//!
//! #[derive(Debug, PartialEq, serde::Deserialize, schemars::JsonSchema)]
//! struct Booking {
//!     /// The number of guests.
//!     guests: u8,
//!     #[serde(default)]
//!     note: String,
//! }
//!
//! let schema = TypeSchema::of::<Booking>();
//! assert_eq!(schema.portable()["required"], json!(["guests", "note"]));
//! let booking: Booking = schema.parse(r#"{"guests": 4, "note": null}"#)?;
//! assert_eq!(booking, Booking { guests: 4, note: String::new() });
//!
//! let error = schema.parse::<Booking>(r#"{"guests": "four"}"#).unwrap_err();
//! assert!(error.to_string().contains("guests"), "{error}");
//! # Ok::<(), tower_chat_schema::ParseError>(())
//! ```
//!
//! Providers take parts of JSON Schema, and not the same ones. The portable form is one that all of
//! them take: objects are closed, every property is required (one that may be missing in the type may
//! be `null`), alternatives are `anyOf`, and limits of numbers, texts and lists are not constraints
//! but words in descriptions. A type whose schema is no object, such as an enum or a list, is the
//! field `value` of one; `()` is an object without properties. A map is itself an object, with any keys.
//!
//! Reading is stricter than serde: a key that is there twice in one object, a list where the schema has an
//! object, and a number that an `f32` cannot hold are errors.
//!
//! For `tower-chat-layers` (arguments of tools) and `tower-chat-providers` (answers of a type).

mod leniency;
mod nulls;
mod portable;
mod type_schema;

pub use self::type_schema::{ParseError, TypeSchema};
