//! What every leaf needs to read answers: limits, framing, and the accumulation of pieces.
//!
//! Nothing here reads from a network. A leaf gives the bytes as they come, after decompression, and
//! gets events, whole bodies, or a [`LimitExceeded`]. The work and the memory are in proportion to
//! the bytes.
//!
//! ```
//! use tower_chat_wire::stream::{Framing, Limits, Sse};
//! let mut events = Sse::new(Limits::default());
//! let found = events.push(b"event: delta\ndata: {\"x\":1}\n\n")?;
//! assert_eq!(found[0].data, r#"{"x":1}"#);
//! let mut small = Sse::new(Limits::default().with_max_line_bytes(4));
//! let error = small.push(b"data: 1\n\n").unwrap_err();
//! assert!(error.to_string().contains("max_line_bytes"));
//! # Ok::<(), tower_chat_wire::stream::LimitExceeded>(())
//! ```

mod accumulator;
mod body;
mod depth;
mod event_stream;
mod frame;
mod indexed;
mod limits;
mod lines;
mod response_accumulator;
mod sse;
mod updates;

pub use self::{
    accumulator::{Accumulator, Object},
    body::BodyReader,
    depth::check_depth,
    event_stream::{DamagedStream, EventStream},
    frame::{Frame, Framing},
    indexed::Indexed,
    limits::{Limit, LimitExceeded, Limits},
    lines::Lines,
    response_accumulator::ResponseAccumulator,
    sse::Sse,
    updates::{Updates, updates},
};
