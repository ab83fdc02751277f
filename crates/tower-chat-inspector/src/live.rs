//! Following a conversation: an event whenever something was stored in it.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::{Query, State},
    response::{
        IntoResponse as _, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::stream::{self, Stream};
use http::StatusCode;
use tokio::{sync::OwnedSemaphorePermit, time};
use tower_chat_layers::{
    ConversationKey,
    store::{Head, Revision, StoreError},
};

use crate::{
    Inspector,
    pages::{Asked, Failure},
};

/// How often the store is asked. Every store answers this from the head alone.
const INTERVAL: Duration = Duration::from_millis(500);

/// Events `changed`, the first of them at once. The stream ends if the store fails, and when the pages
/// are no longer served: a browser comes again by itself.
pub(crate) async fn changes(
    State(inspector): State<Arc<Inspector>>,
    Query(asked): Query<Asked>,
) -> Result<Response, Failure> {
    let key = asked.key(&inspector)?;
    let Ok(permit) = inspector.followers.clone().try_acquire_owned() else {
        let what = "Too many pages follow conversations.";
        return Err(Failure::refused(StatusCode::SERVICE_UNAVAILABLE, what));
    };
    let events = Follower { inspector, key, seen: None, _permit: permit }.into_events();
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

/// A text that is another one whenever something was stored.
pub(crate) fn state_of(head: &Head) -> String {
    let Revision { incarnation, sequence, .. } = head.revision;
    let open = head.open_run.as_ref();
    let open = open.map(|open| format!(" {}.{}", open.run, open.lease.attempt)).unwrap_or_default();
    format!("{incarnation}.{sequence}{open} {}", head.pending_approvals.len())
}

struct Follower {
    inspector: Arc<Inspector>,
    key: ConversationKey,
    seen: Option<String>,
    _permit: OwnedSemaphorePermit,
}

impl Follower {
    fn into_events(self) -> impl Stream<Item = Result<Event, Infallible>> {
        stream::unfold(self, |mut follower| async {
            let state = follower.changed().await.ok().flatten()?;
            let event = Event::default().event("changed").data(&state);
            follower.seen = Some(state);
            Some((Ok(event), follower))
        })
    }

    /// Waits until the conversation is another than it was, and says what it is; `None` at the end.
    async fn changed(&self) -> Result<Option<String>, StoreError> {
        while !self.inspector.followers.is_closed() {
            let head = self.inspector.store.head(&self.key).await?;
            let state = state_of(&head);
            if self.seen.as_ref() != Some(&state) {
                return Ok(Some(state));
            }
            time::sleep(INTERVAL).await;
        }
        Ok(None)
    }
}
