//! Limits and accumulators with which a model client reads answers.
//!
//! This module does not use a network. A model client passes decompressed data to it: the bytes of
//! a whole body when they arrive, or the events of a stream. Time and memory are linear in the
//! number of bytes.
//!
//! ```
//! use tower_chat_wire::{body::BodyWire, stream::Frame};
//! let mut accumulator = BodyWire::OpenAiChat.accumulator();
//! let data = r#"{"choices":[{"index":0,"delta":{"content":"It is."},"finish_reason":"stop"}]}"#;
//! accumulator.push(&Frame { event: None, data: data.to_owned() })?;
//! assert_eq!(accumulator.finish()?.text(), "It is.");
//! # Ok::<(), tower_chat_wire::AnswerError>(())
//! ```

mod accumulator;
mod body;
mod depth;
mod frame;
mod indexed;
mod limits;
mod response_accumulator;
mod surrogates;
mod updates;

pub use self::{
    accumulator::{Accumulator, Object},
    body::BodyReader,
    depth::check_depth,
    frame::Frame,
    indexed::Indexed,
    limits::{Limit, LimitExceeded, Limits},
    response_accumulator::ResponseAccumulator,
    updates::{Updates, updates},
};
pub(crate) use self::{frame::DONE, surrogates::SurrogateJoiner};
