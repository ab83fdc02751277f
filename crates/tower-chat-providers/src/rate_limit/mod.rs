//! A layer over the transport that keeps to the rate limits of a service.
//!
//! [`RateLimitLayer`] limits how many calls are under way, and reads from the headers of each response
//! what is left of the service's limits. Where nothing is left, calls wait until the limit is reset,
//! instead of being refused.
//!
//! # Where it belongs
//!
//! Beneath the client, where the headers are visible, and beneath a retry (feature `retry`), so that
//! each attempt waits for its turn: `client.with_layer(RateLimitLayer::new(8))`. Above the layers of
//! authentication no token expires while a call waits. Limits belong to a key, and at some services
//! to a model: clones of a layer share what they know, so clients of one key take clones, and
//! clients of different keys take layers of their own.
//!
//! # What it reads
//!
//! - `x-ratelimit-remaining-*` with `x-ratelimit-reset-*` (OpenAI, Azure, Groq, Cerebras and others),
//!   also without the `x-` or without a suffix;
//! - `anthropic-ratelimit-*-remaining` with `anthropic-ratelimit-*-reset`;
//! - `retry-after-ms` and `retry-after` of the statuses 429, 503 and 529, which hold all calls back.
//!
//! A reset is a duration (`1s`, `6m0s`, `20ms`), a number of seconds, or a point in time of RFC 3339.
//! Many services refill a limit little by little and say when it will be full; to wait until then is
//! to wait too long, never too short.
//!
//! A limit of requests is counted down by each call that is sent, until a response reports it again.
//! What a call costs of a limit of tokens is not known before its response, so calls go out as long
//! as some tokens are left.
//!
//! **Without such headers**, or with a remaining amount whose reset is missing, calls wait for no
//! limit but that of concurrent calls. A service that refuses a call then is a matter for a retry.
//!
//! # What waits, and what ends a wait
//!
//! A call waits in its future, not in `poll_ready`: a client that is ready and not called holds no
//! permit. Dropping the future ends the wait and returns the permit. A permit is held until the body
//! of the response has ended, has failed or was dropped, so a streamed answer counts as long as it
//! streams.

mod body;
mod headers;
mod layer;
mod state;

pub use self::{
    body::RateLimitedBody,
    layer::{RateLimit, RateLimitLayer},
    state::RateLimitExceeded,
};
