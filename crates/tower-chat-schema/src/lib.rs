//! JSON Schemas of Rust types, in a form that every provider accepts. Use this crate to describe
//! the arguments of tools, or the answers of models, by types.
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
//! Providers support different parts of JSON Schema. All of them accept the portable form of a
//! schema. In this form, an object accepts only the listed properties and requires all of them; a
//! property that is optional in the type may be `null`. Alternatives are written as `anyOf`. Limits
//! of numbers, strings and arrays are written into the descriptions, and not as separate keywords.
//!
//! The portable form always describes a JSON object. For a type with other values, such as an enum
//! or a list, the object contains the value in the field `value`. For `()`, the object has no
//! properties, and for a map, the object has any keys.
//!
//! Deserialization is stricter than that of serde. Deserialization returns an error for an object
//! that has the same key twice, for an array where the schema has an object, and for a number that
//! an `f32` cannot represent.
//!
//! `tower-chat-layers` uses this crate for arguments of tools, and `tower-chat-providers` for
//! structured output.

mod leniency;
mod nulls;
mod portable;
mod type_schema;

pub use self::type_schema::{ParseError, TypeSchema};
