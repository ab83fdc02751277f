//! A layer over the transport that keeps calls within the rate limits of a service.
//!
//! [`RateLimitLayer`] limits the number of concurrent calls. The layer reads the remaining amounts of the
//! service's limits from the headers of each response. While a limit is exhausted, calls wait until its
//! reset, instead of being refused by the service.
//!
//! # Where it belongs
//!
//! The layer belongs beneath the client, where the headers are visible:
//! `client.with_layer(RateLimitLayer::new(8))`. The layer is then also beneath a retry (feature `retry`),
//! so each attempt waits separately. Put the layer above the layers of authentication, so that no token
//! expires while a call waits. Limits belong to a key, and at some services to a model. Clones of a layer
//! share their state: clients with the same key use clones of one layer, and clients with different keys
//! use separate layers.
//!
//! # What it reads
//!
//! - `x-ratelimit-remaining-*` with `x-ratelimit-reset-*` (OpenAI, Azure, Groq, Cerebras and others),
//!   also without the `x-` or without a suffix;
//! - `anthropic-ratelimit-*-remaining` with `anthropic-ratelimit-*-reset`;
//! - `retry-after-ms` and `retry-after` of responses with the status 429, 503 or 529, which delay all
//!   calls.
//!
//! A reset is a duration (`1s`, `6m0s`, `20ms`), a number of seconds, a Unix time in seconds or
//! milliseconds, or a time in the format of RFC 3339. Many services refill a limit continuously and
//! report the time at which it will be full, so a call may wait longer than necessary.
//!
//! The layer reduces a limit of requests by 1 for each call, until a response reports the limit again.
//! The number of tokens of a call is unknown before its response, so calls are sent while any tokens
//! remain.
//!
//! **Without these headers**, or if a reset time is missing, calls wait only for a permit. If the
//! service refuses a call, the retry layer handles it.
//!
//! # What waits, and what ends a wait
//!
//! A call waits in its future, not in `poll_ready`: a client that is ready and is not called holds no
//! permit. Dropping the future ends the wait and returns the permit. A call holds its permit until the
//! body of the response ends, fails or is dropped, so a streamed answer counts as a concurrent call
//! until its end.

mod body;
mod headers;
mod layer;
mod state;

pub use self::{
    body::RateLimitedBody,
    layer::{RateLimit, RateLimitLayer},
    state::RateLimitExceeded,
};
