//! Adapters for existing tower clients with their own request and response types.
//!
//! A codec converts between the types of the existing client and the types of this crate. [`AdaptLayer`]
//! converts a service with the client's types into a model client. [`ExposeLayer`] converts a whole stack
//! into a service with the client's types. With both, the layers of this crate can be in the middle of an
//! existing stack with other types:
//!
//! ```text
//! their layers
//!   ExposeLayer                     Service<TheirRequest>
//!     PerRunPersistence
//!       ToolLoop
//!         PerServiceCallPersistence
//!           AdaptLayer              Service<ChatRequest>
//!             their client          Service<TheirRequest>
//! ```
//!
//! The adapted client receives the history and the tools in its own request type. Layers exchange data
//! in [`ChatRequest::extensions`](crate::ChatRequest). A codec whose request type also has extensions
//! copies them, so that the client's layers below have access to the run.

mod codec;
mod expose;
mod layer;
mod one_message;
mod service;

pub use self::{
    codec::{ClientCodec, ServerCodec},
    expose::{Expose, ExposeLayer},
    layer::AdaptLayer,
    one_message::as_one_message,
    service::Adapt,
};
