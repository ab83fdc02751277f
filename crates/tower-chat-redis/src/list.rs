//! The list of a scope's conversations.
//!
//! In a cluster, the list of a scope may be on another server than a conversation of the scope, so
//! that one script cannot access both. Therefore a writer adds the id to the list before it creates
//! the conversation. The list may contain ids of conversations that do not exist, and a reader
//! checks them.
//!
//! An id may be removed from the list only if its conversation does not exist, and no process can
//! create the conversation without adding the id again. Therefore a process that will create a
//! conversation stores a token on the server of the list, which prevents the removal, and expires
//! after twice [`WINDOW`]. The process must create the conversation within [`WINDOW`]. The script
//! that creates the conversation checks this deadline by the clock of its own server. The clocks of
//! the servers in a cluster may differ by up to [`WINDOW`].

use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use redis::{Value, cmd};
use tower_chat_core::{ConversationKey, store::StoreError};

use crate::{
    answer::{self, number},
    failure::foreign,
    script::{ADD_TO_LIST, REMOVE_FROM_LIST},
    settings::{Settings, random},
};

/// The time between the addition of an id to the list and the creation of the conversation.
pub(crate) const WINDOW: Duration = Duration::from_secs(60);

/// The maximum number of times that a write adds its conversation to the list, because it could not
/// create the conversation in time.
pub(crate) const ATTEMPTS: usize = 3;

/// The number of conversations that a reader of the list checks concurrently.
const PAGE: usize = 256;

/// An id that a process has added to the list of its scope.
#[derive(Debug)]
pub(crate) struct Listing {
    /// The deadline for creating the conversation, in milliseconds since 1970, by the clock of the
    /// list.
    pub(crate) deadline: u64,
    /// The token of the process that added the id.
    pub(crate) token: String,
}

/// Adds an id to the list of its scope.
pub(crate) async fn add_to_list(
    settings: &Settings,
    key: &ConversationKey,
) -> Result<Listing, StoreError> {
    let token = random();
    let names = &settings.names;
    let call = ADD_TO_LIST
        .on([names.list(key.scope()), names.creation_tokens(key)])
        .with(key.id())
        .with(&token)
        .with(WINDOW.as_millis().to_string());
    let answer = settings.connections.change("list a conversation", true, &call).await?;
    Ok(Listing { deadline: number(&answer::text(answer)?)?, token })
}

/// Returns the error for a conversation that the store could not create in time.
pub(crate) fn late(action: &'static str) -> StoreError {
    let reason =
        "it took more than a minute, or the clocks of the cluster differ by more than a minute";
    StoreError::backend(action, true, reason)
}

/// Removes the id of a deleted conversation from the list, unless a token shows that another
/// process may create the conversation again. `token` is the token with which the deleted
/// conversation was created; empty if it is not known. Errors are ignored, because the next reader
/// of the list removes the id.
pub(crate) async fn remove_from_list(settings: &Settings, key: &ConversationKey, token: &str) {
    let names = &settings.names;
    let call = REMOVE_FROM_LIST
        .on([names.list(key.scope()), names.creation_tokens(key)])
        .with(key.id())
        .with(token);
    drop(settings.connections.read("remove a conversation from its list", &call).await);
}

/// Lists visible conversations of a scope in the byte order of their ids.
pub(crate) async fn conversations(
    settings: &Settings,
    scope: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<ConversationKey>, StoreError> {
    let mut found = Vec::new();
    let mut listed = Listed::new(settings, scope, after);
    while found.len() < limit {
        let Some(keys) = listed.next(limit - found.len()).await? else { break };
        let states = try_join_all(keys.iter().map(|key| state(settings, key))).await?;
        let mut gone = Vec::new();
        for (key, state) in keys.into_iter().zip(states) {
            match state {
                State::Visible => found.push(key),
                State::AllStaged => {}
                State::Gone => gone.push(key),
            }
        }
        join_all(gone.iter().map(|key| remove_from_list(settings, key, ""))).await;
    }
    Ok(found)
}

/// Returns whether a scope contains a conversation, even one whose messages are all staged.
pub(crate) async fn has_conversation(settings: &Settings, scope: &str) -> Result<bool, StoreError> {
    let mut listed = Listed::new(settings, scope, None);
    let mut page_size = 1;
    while let Some(keys) = listed.next(page_size).await? {
        let states = try_join_all(keys.iter().map(|key| state(settings, key))).await?;
        if states.iter().any(|state| !matches!(state, State::Gone)) {
            return Ok(true);
        }
        join_all(keys.iter().map(|key| remove_from_list(settings, key, ""))).await;
        page_size = PAGE;
    }
    Ok(false)
}

/// Lists the conversations of a scope that have an open run (one that is not committed yet), in the
/// byte order of their ids.
pub(crate) async fn open_runs(
    settings: &Settings,
    scope: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<ConversationKey>, StoreError> {
    let mut found = Vec::new();
    let mut listed = Listed::new(settings, scope, after);
    while found.len() < limit {
        let Some(keys) = listed.next(PAGE).await? else { break };
        let are_open = try_join_all(keys.iter().map(|key| has_open_run(settings, key))).await?;
        let open =
            keys.into_iter().zip(are_open).filter_map(|(key, is_open)| is_open.then_some(key));
        found.extend(open.take(limit - found.len()));
    }
    Ok(found)
}

/// The ids on the list of a scope, in pages.
#[derive(Debug)]
pub(crate) struct Listed<'a> {
    settings: &'a Settings,
    scope: std::sync::Arc<str>,
    /// The lower bound of the next page, in the syntax of `ZRANGEBYLEX`.
    from: Vec<u8>,
    is_at_end: bool,
}

impl<'a> Listed<'a> {
    pub(crate) fn new(settings: &'a Settings, scope: &str, after: Option<&str>) -> Self {
        let from = after.map_or_else(|| b"-".to_vec(), lower_bound_after);
        Self { settings, scope: scope.into(), from, is_at_end: false }
    }

    /// Returns the next conversations, at most `page_size` and [`PAGE`]; `None` at the end of the
    /// list.
    pub(crate) async fn next(
        &mut self,
        page_size: usize,
    ) -> Result<Option<Vec<ConversationKey>>, StoreError> {
        if self.is_at_end {
            return Ok(None);
        }
        let page_size = page_size.clamp(1, PAGE);
        let mut command = cmd("ZRANGEBYLEX");
        command.arg(self.settings.names.list(&self.scope)).arg(&self.from).arg("+");
        command.arg("LIMIT").arg(0).arg(page_size);
        let answer = self.settings.connections.ask("list conversations", &command).await?;
        let ids = answer::list(answer)?.into_iter().map(answer::text);
        let ids = ids.collect::<Result<Vec<_>, _>>()?;
        self.is_at_end = ids.len() < page_size;
        let Some(last) = ids.last() else { return Ok(None) };
        self.from = lower_bound_after(last);
        let scope = &self.scope;
        Ok(Some(ids.into_iter().map(|id| ConversationKey::new(scope.clone(), id)).collect()))
    }
}

/// Returns the lower bound of the range that begins after an id, in the syntax of `ZRANGEBYLEX`.
fn lower_bound_after(id: &str) -> Vec<u8> {
    [b"(", id.as_bytes()].concat()
}

/// The state of a conversation whose id is on the list.
enum State {
    Visible,
    /// All messages of the conversation are staged.
    AllStaged,
    Gone,
}

async fn state(settings: &Settings, key: &ConversationKey) -> Result<State, StoreError> {
    let mut command = cmd("HMGET");
    command.arg(settings.names.conversation(key).head());
    command.arg(&["format", "visible", "sequence"]);
    let action = "list conversations";
    let answer = settings.connections.ask(action, &command).await?;
    let mut fields = answer::list(answer)?.into_iter().map(answer::bytes);
    let mut field = || fields.next().transpose().map(Option::flatten);
    let (format, visible, sequence) = (field()?, field()?, field()?);
    if format.is_none() {
        return if sequence.is_none() { Ok(State::Gone) } else { Err(foreign("no format")) };
    }
    if visible.or(sequence).is_some_and(|seen| seen != b"0") {
        return Ok(State::Visible);
    }
    // A conversation without messages is visible if it has a service id (the id under which the
    // model's service has the history).
    let mut exists = cmd("HEXISTS");
    exists.arg(settings.names.conversation(key).head()).arg("service_id");
    match settings.connections.ask(action, &exists).await? {
        Value::Int(0) => Ok(State::AllStaged),
        _ => Ok(State::Visible),
    }
}

async fn has_open_run(settings: &Settings, key: &ConversationKey) -> Result<bool, StoreError> {
    let mut command = cmd("HEXISTS");
    command.arg(settings.names.conversation(key).head()).arg("run");
    Ok(settings.connections.ask("list open runs", &command).await? == Value::Int(1))
}
