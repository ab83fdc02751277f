//! A layer around the transport that keeps calls within the rate limits of a service.
//!
//! [`RateLimitLayer`] limits the number of concurrent calls. The layer also reads the remaining
//! amounts of the service's rate limits from the headers of each response. While a limit is
//! exhausted, the layer delays calls until the limit is reset, so that the service does not refuse
//! them.
//!
//! # Where it belongs
//!
//! Add the layer below the client, where the layer can read the headers:
//! `client.with_layer(RateLimitLayer::new(8))`. The layer is then also below a retry layer (feature
//! `retry`), so each attempt waits separately. The layer must be above the layers of
//! authentication, so that no token expires while a call waits.
//!
//! Services apply a rate limit to each key, and some services to each key and model. Clones of a
//! layer share their state. Clients with the same key must therefore use clones of one layer, and
//! clients with different keys must use separate layers.
//!
//! # What it reads
//!
//! - `x-ratelimit-remaining-*` with `x-ratelimit-reset-*` (OpenAI, Azure, Groq, Cerebras and
//!   others), and the same headers without the `x-`, or without a suffix;
//! - `anthropic-ratelimit-*-remaining` with `anthropic-ratelimit-*-reset`;
//! - `retry-after-ms` and `retry-after` of responses with the status 429, 503 or 529, after which
//!   all calls are delayed.
//!
//! The value of a reset header is a duration (`1s`, `6m0s`, `20ms`), a number of seconds, a Unix
//! time in seconds or milliseconds, or a time in the format of RFC 3339. Many services refill a
//! limit continuously, and report the time at which the limit will be full. A call may therefore
//! wait longer than necessary.
//!
//! For each call that is sent, the layer reduces the remaining number of requests by 1, until a
//! response reports the number again. The number of tokens of a call is unknown before its
//! response, so the layer sends calls as long as any tokens remain.
//!
//! **If a service sends none of these headers**, or no reset time, calls wait only for one of the
//! permits, whose number is the number of concurrent calls. If the service refuses a call, the
//! retry layer handles the error.
//!
//! # What waits, and what ends a wait
//!
//! A call waits in its future, and not in `poll_ready`. A client that is ready but is not called
//! holds no permit. Dropping the future ends the wait and releases the permit. A call holds its
//! permit until the body of the response ends, fails or is dropped. The call of a streamed answer
//! is therefore one of the concurrent calls until the answer ends.

mod body;
mod headers;
mod layer;
mod state;

pub use self::{
    body::RateLimitedBody,
    layer::{RateLimit, RateLimitLayer},
    state::RateLimitExceeded,
};
