//! Tower clients that exist already, with request and response types of their own.
//!
//! A codec says how their types and ours become each other. [`AdaptLayer`] turns a service of
//! their types into a model client; [`ExposeLayer`] turns a whole stack back into a service of
//! their types. With both, these layers go into the middle of an existing stack of other types:
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
//! The adapted client sees history, tools and all in their request type. What layers say to each
//! other travels in [`ChatRequest::extensions`](crate::ChatRequest): a codec whose request
//! type has extensions too carries them over, so that their layers below can see the run.

mod codec;
mod expose;
mod layer;
mod one_message;
mod service;

pub use self::{
    codec::{ClientCodec, ServerCodec},
    expose::{ExposeLayer, ExposeService},
    layer::AdaptLayer,
    one_message::as_one_message,
    service::AdaptService,
};
