//! Adapters for existing tower clients with their own request and response types.
//!
//! A codec converts between the types of the existing client and the types of this crate.
//! [`AdaptLayer`] converts a service with the client's types into a model client. [`ExposeLayer`]
//! converts a whole stack into a service with the client's types. With both layers, an existing
//! stack can contain the layers of this crate between its own layers:
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
//! The adapted client receives the history and the tools in its own request type. The layers of
//! this crate add data about the run to [`ChatRequest::extensions`](crate::ChatRequest). If the
//! request type of the client also has extensions, the codec should copy this data, so that the
//! layers of the client can read it.

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
