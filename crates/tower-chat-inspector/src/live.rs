//! Sends server-sent events to the page of a conversation: one event after each change of the
//! conversation, and the text of an answer while the model generates it.

use std::{
    collections::HashMap,
    convert::Infallible,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Extension,
    extract::{ConnectInfo, Query, State},
    response::{
        IntoResponse as _, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::stream::{self, Stream};
use http::StatusCode;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{self, Instant},
};
use tower_chat_layers::{
    ConversationKey,
    store::{Head, Revision, StoreError},
};

use crate::{
    Inspector,
    live_text::LiveText,
    pages::{Asked, Failure},
};

/// The interval between two reads of the head (number of messages and open run).
const INTERVAL: Duration = Duration::from_millis(500);

/// The maximum number of event streams at the same time.
const MAX_FOLLOWERS: usize = 64;

/// The maximum number of event streams to the same network address at the same time.
const MAX_FOLLOWERS_OF_ADDRESS: usize = 16;

/// The maximum duration of one event stream. The browser reconnects when a stream has ended.
const MAX_STREAM_TIME: Duration = Duration::from_secs(300);

/// Returns a stream of events for a conversation. The first event is `changed`. The stream then
/// contains an event `changed` after each change of the [state](state_of), and an event `text`
/// after each change of the [live text](LiveText). The stream ends after 5 minutes, or earlier if
/// the store fails, the conversation is deleted, or the server shuts down.
pub(crate) async fn changes(
    State(inspector): State<Arc<Inspector>>,
    Query(asked): Query<Asked>,
    from: Option<Extension<ConnectInfo<SocketAddr>>>,
) -> Result<Response, Failure> {
    let key = asked.key(&inspector)?;
    if is_absent(&inspector.store.head(&key).await?) {
        return Err(Failure::missing("There is no such conversation."));
    }
    let address = from.map(|Extension(ConnectInfo(address))| address.ip());
    let permit = inspector.followers.clone().admit(address)?;
    let until = Instant::now() + MAX_STREAM_TIME;
    let live = LiveText::default();
    let follower = Follower { inspector, key, seen: None, live, until, _permit: permit };
    let events = follower.into_events();
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

fn is_absent(head: &Head) -> bool {
    head.revision == Revision::ABSENT && head.open_run.is_none()
}

/// Returns a string that identifies the state of a conversation: its revision, its open run with
/// the number of the attempt, and the number of answers with calls that wait for approval. Writes
/// that only change the record of tool calls (one row for each call) do not change the string.
pub(crate) fn state_of(head: &Head) -> String {
    let Revision { incarnation, sequence, .. } = head.revision;
    let open = head.open_run.as_ref();
    let open = open.map(|open| format!(" {}.{}", open.run, open.lease.attempt)).unwrap_or_default();
    format!("{incarnation}.{sequence}{open} {}", head.pending_approvals.len())
}

/// Limits the number of event streams, in total and for each network address.
pub(crate) struct Followers {
    permits: Arc<Semaphore>,
    of_address: Mutex<HashMap<IpAddr, usize>>,
}

impl Followers {
    pub(crate) fn new() -> Self {
        Self { permits: Arc::new(Semaphore::new(MAX_FOLLOWERS)), of_address: Mutex::default() }
    }

    /// Ends each event stream before its next read of the head. `admit` then always fails.
    pub(crate) fn close(&self) {
        self.permits.close();
    }

    /// Returns a permit for an event stream, or an error page if a limit is reached. If the address
    /// is unknown because the router is served without `ConnectInfo`, only the total is limited.
    fn admit(self: Arc<Self>, address: Option<IpAddr>) -> Result<FollowerPermit, Failure> {
        let Ok(permit) = self.permits.clone().try_acquire_owned() else {
            let what = "Too many pages follow conversations. Close some of them.";
            return Err(Failure::refused(StatusCode::SERVICE_UNAVAILABLE, what));
        };
        let address = address.map(network);
        if let Some(address) = address {
            let mut counts = self.of_address.lock().unwrap_or_else(PoisonError::into_inner);
            let count = counts.entry(address).or_default();
            if *count >= MAX_FOLLOWERS_OF_ADDRESS {
                let what =
                    "Too many pages at your address follow conversations. Close some of them.";
                return Err(Failure::refused(StatusCode::TOO_MANY_REQUESTS, what));
            }
            *count += 1;
        }
        Ok(FollowerPermit { followers: self, address, _permit: permit })
    }
}

/// Returns the address for the limit per address. For IPv6, only the first 64 bits of an address
/// distinguish clients, because one client can usually use every address with the same prefix.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64))
        }
        address => address,
    }
}

/// The permit of an event stream. Dropping it decrements the numbers of streams.
struct FollowerPermit {
    followers: Arc<Followers>,
    address: Option<IpAddr>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for FollowerPermit {
    fn drop(&mut self) {
        let Some(address) = self.address else { return };
        let mut counts = self.followers.of_address.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&address);
            }
        }
    }
}

/// The state of one event stream.
struct Follower {
    inspector: Arc<Inspector>,
    key: ConversationKey,
    /// The state that the last event `changed` contained.
    seen: Option<String>,
    live: LiveText,
    /// The time at which the stream ends at the latest.
    until: Instant,
    _permit: FollowerPermit,
}

impl Follower {
    fn into_events(self) -> impl Stream<Item = Result<Event, Infallible>> {
        stream::unfold(self, |mut follower| async {
            let changed = time::timeout_at(follower.until, follower.changed()).await;
            let event = changed.ok()?.ok().flatten()?;
            Some((Ok(event), follower))
        })
    }

    /// Waits until the state of the conversation or its live text changes, and returns the event.
    /// Returns `None` if the conversation is deleted or the server shuts down.
    async fn changed(&mut self) -> Result<Option<Event>, StoreError> {
        while !self.inspector.followers.permits.is_closed() {
            let head = self.inspector.store.head(&self.key).await?;
            if is_absent(&head) {
                return Ok(None);
            }
            let state = state_of(&head);
            if self.seen.as_ref() != Some(&state) {
                let event = Event::default().event("changed").data(&state);
                self.seen = Some(state);
                if let Some(runs) = &self.inspector.runs {
                    self.live.follow(runs, &self.key, head.open_run.as_ref()).await;
                }
                return Ok(Some(event));
            }
            if let Some(text) = self.live.changed(INTERVAL).await {
                // JSON, because the data of an event cannot contain carriage returns.
                let text = serde_json::Value::from(text).to_string();
                return Ok(Some(Event::default().event("text").data(text)));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_address_is_reduced_to_its_network() {
        for (address, expected) in [
            ("127.0.0.1", "127.0.0.1"),
            ("::ffff:127.0.0.1", "127.0.0.1"),
            ("::1", "::1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ] {
            assert_eq!(network(address.parse().unwrap()), expected.parse::<IpAddr>().unwrap());
        }
    }
}
