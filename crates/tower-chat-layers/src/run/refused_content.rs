//! Handles content that a service refuses permanently: finds the content that may be the reason for
//! the refusal, repeats the service call without this content, and stores refusal marks.

use std::{future::poll_fn, sync::Arc};

use tower_chat_core::{
    BoxError, ChatRequest, ChatResponse, ContentKind, ContentRefused, ConversationKey, Message,
    RefusalMark, RefusalMarks, Role, content_refused,
    store::{HistoryStore, Maintenance, Rewrite, StoreError},
};

use super::{Run, last_answer::after_last_answer};
use crate::{PersistenceError, RefusedContent, chat_service::ChatService, error::as_permanent};

/// The refusal marks of a conversation: the loaded ones, then those that this run has added.
#[derive(Debug, Default)]
pub(super) struct RefusedSoFar {
    pub(super) marks: Vec<RefusalMark>,
    /// The number of marks at the beginning of `marks` that are stored or submitted.
    stored: usize,
}

impl RefusedSoFar {
    pub(super) fn stored(marks: &[RefusalMark]) -> Self {
        Self { marks: marks.to_vec(), stored: marks.len() }
    }

    /// Adds the unstored marks to a message that is about to be stored.
    pub(super) fn store_in(&mut self, message: &mut Arc<Message>) {
        let new = self.marks.get(self.stored..).unwrap_or_default();
        if !new.is_empty() {
            RefusalMark::store_in(Arc::make_mut(message), new.iter().cloned());
            self.stored = self.marks.len();
        }
    }

    /// Returns a message without parts with the unstored marks, for a write that has no other
    /// message. Replays omit it.
    pub(super) fn as_message(&mut self) -> Option<Message> {
        let mut message = Arc::new(Message::new(Role::Tool, Vec::new()));
        self.store_in(&mut message);
        RefusalMark::is_stored_in(&message).then(|| Arc::unwrap_or_clone(message))
    }

    pub(super) fn mark(&self, request: &mut ChatRequest) {
        if !self.marks.is_empty() {
            request.extensions.insert(RefusalMarks::new(self.marks.iter().cloned()));
        }
    }

    pub(super) fn add_marks(&mut self, marks: &[RefusalMark]) {
        let new = marks.iter().filter(|mark| !self.marks.contains(mark));
        let new: Vec<_> = new.cloned().collect();
        self.marks.extend(new);
    }
}

fn note_refused(run: &Run, marks: &[RefusalMark]) {
    run.log().refused.add_marks(marks);
    for RefusalMark { issuer, message, content, .. } in marks {
        tracing::warn!(
            conversation = %run.key(),
            "{issuer} refused the {} in message {message}: later requests to it contain a sentence in its place",
            content.name()
        );
    }
}

/// Marks refused content in the unanswered messages of a failed service call, if the error names
/// the kind of content. `inputs` are the new messages of the call that are not staged.
///
/// This function is needed because a service may refuse content after its answer has begun.
/// [`call_again_if_refused`] marks refused content only before that.
pub(super) fn note_refused_inputs(run: &Run, inputs: &[Arc<Message>], error: &BoxError) {
    let refusal = content_refused(&**error).filter(|refusal| refusal.named.is_some());
    let Some(refusal) = refusal else { return };
    if run.policy().refused_content == RefusedContent::Fail {
        return;
    }
    let marks: Vec<_> = {
        let log = run.log();
        let unanswered = after_last_answer(log.conversation.added.as_slice()).iter();
        let known = &log.refused.marks;
        unanswered.chain(inputs).flat_map(|it| marks_of(it, refusal, known)).collect()
    };
    note_refused(run, &marks);
}

/// Calls the service. If it refuses the request permanently and stored content may be the
/// reason, the policy decides whether the call is repeated without this content. The content is
/// marked if the error names its kind, or if the second call succeeds.
pub(super) async fn call_again_if_refused<S: ChatService>(
    service: &mut S,
    run: &Run,
    mut request: ChatRequest,
) -> Result<ChatResponse, BoxError> {
    let policy = run.policy().refused_content;
    run.log().refused.mark(&mut request);
    let again = (policy != RefusedContent::Fail).then(|| request.clone());
    let error = match service.call(request).await {
        Ok(response) => return Ok(response),
        Err(error) => error.into(),
    };
    match (again, content_refused(&*error).cloned()) {
        // Boxed, because the future of every service call would otherwise contain this rarely
        // used future.
        (Some(again), Some(refusal)) => {
            Box::pin(after_refusal(service, run, again, (error, refusal))).await
        }
        _ => Err(error),
    }
}

/// Handles a permanent refusal of a service call. `request` is a copy of the refused request.
async fn after_refusal<S: ChatService>(
    service: &mut S,
    run: &Run,
    mut request: ChatRequest,
    (error, refusal): (BoxError, ContentRefused),
) -> Result<ChatResponse, BoxError> {
    let known = run.log().refused.marks.clone();
    let Suspects { stored, new, is_named } = Suspects::of(&request, &refusal, &known);
    let at_fault = stored.iter().chain(&new).next().cloned();
    if is_named {
        let named: Vec<_> = stored.iter().chain(&new).cloned().collect();
        note_refused(run, &named);
    }
    let failed = |error| match &at_fault {
        Some(mark) => Err(PersistenceError::ContentRefused {
            key: run.key().clone(),
            mark: mark.clone(),
            is_marked: is_named,
            source: as_permanent(error),
        }
        .into()),
        None => Err(error),
    };
    // A request without the user's new content would be a different question.
    let asks_again = run.policy().refused_content == RefusedContent::AskAgain
        && !stored.is_empty()
        && new.is_empty();
    if !asks_again {
        return failed(error);
    }
    request.extensions.insert(RefusalMarks::new(known.into_iter().chain(stored.iter().cloned())));
    poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
    match service.call(request).await {
        Ok(response) => {
            note_refused(run, &stored);
            Ok(response)
        }
        Err(second) => {
            let second = second.into();
            match content_refused(&*second) {
                // The removed content was not the only reason.
                Some(_) if is_named => failed(error),
                Some(_) => Err(error),
                None => Err(second),
            }
        }
    }
}

/// The content of a request that may be the reason for a refusal.
#[derive(Debug, Default, PartialEq)]
struct Suspects {
    /// Marks for content in results and in messages of earlier requests.
    stored: Vec<RefusalMark>,
    /// Marks for content in the user's messages of this request, if the error names the kind of
    /// content.
    new: Vec<RefusalMark>,
    is_named: bool,
}

impl Suspects {
    /// Returns the suspects of a request. If the error names a kind of content that the request
    /// does not contain, the name is ignored.
    fn of(request: &ChatRequest, refusal: &ContentRefused, known: &[RefusalMark]) -> Self {
        let named = refusal.named.map(|_| Self::named_or_any(request, refusal, known));
        named.filter(|named| !named.is_empty()).unwrap_or_else(|| {
            let refusal = ContentRefused::by(refusal.issuer.clone());
            Self::named_or_any(request, &refusal, known)
        })
    }

    /// Returns the suspects after the last answer, because services have usually accepted all
    /// earlier messages. If there are none, returns the earlier suspects.
    fn named_or_any(
        request: &ChatRequest,
        refusal: &ContentRefused,
        known: &[RefusalMark],
    ) -> Self {
        let is_named = refusal.named.is_some();
        let messages = request.messages();
        let unanswered = messages.iter().rposition(|message| message.role == Role::Assistant);
        let unanswered = unanswered.map_or(0, |last| last + 1);
        let mut found = Self { is_named, ..Self::default() };
        for (position, message) in (unanswered..).zip(messages.iter_from(unanswered)) {
            let is_of_user = message.role == Role::User && position >= request.history_len();
            let marks = marks_of(message, refusal, known);
            match (is_of_user, is_named) {
                (false, _) => found.stored.extend(marks),
                (true, true) => found.new.extend(marks),
                (true, false) => {}
            }
        }
        if found.is_empty() {
            for message in &messages.take(unanswered) {
                let marks = marks_of(message, refusal, known);
                let may_be = |mark: &RefusalMark| is_named || mark.content != ContentKind::Text;
                found.stored.extend(marks.into_iter().filter(may_be));
            }
        }
        found
    }

    fn is_empty(&self) -> bool {
        self.stored.is_empty() && self.new.is_empty()
    }
}

/// Returns marks for the content of a message that may be the reason, except those in `known`.
fn marks_of(
    message: &Message,
    refusal: &ContentRefused,
    known: &[RefusalMark],
) -> Vec<RefusalMark> {
    let Some(id) = message.id else { return Vec::new() };
    let kinds = ContentKind::all_in(message).into_iter();
    let kinds = kinds.filter(|kind| refusal.named.is_none_or(|named| named == *kind));
    let marks = kinds.map(|kind| RefusalMark::new(refusal.issuer.clone(), id, kind));
    marks.filter(|mark| !known.contains(mark)).collect()
}

/// Removes the refusal marks of one service, or of every service. The next requests then contain the
/// content again. Returns the number of removed marks.
///
/// ```
/// # futures_util::FutureExt::now_or_never(async {
/// use tower_chat::{ConversationKey, MemoryStore, message::lift_refusals};
/// let (store, key) = (MemoryStore::new(), ConversationKey::new("alice", "support"));
/// assert_eq!(lift_refusals(&store, &key, Some("openai")).await?, 0);
/// # Ok::<(), tower_chat::BoxError>(())
/// # }).unwrap().unwrap();
/// ```
///
/// # Errors
///
/// [`StoreError::Conflict`], if another writer changes the conversation at the same time, or if the
/// conversation has an open run; [`StoreError::MissingCapability`], if the store cannot change
/// messages; another error if the conversation cannot be read or written. In these cases, no mark
/// is removed.
pub async fn lift_refusals(
    store: &dyn HistoryStore,
    key: &ConversationKey,
    issuer: Option<&str>,
) -> Result<usize, StoreError> {
    let Some(rows) = store.rows(key).await? else { return Ok(0) };
    let mut rewrite = Rewrite::new(key.clone(), rows.head.revision);
    let mut removed = 0;
    for (number, message) in rows.messages {
        let Ok(message) = message else { continue };
        if !RefusalMark::is_stored_in(&message) {
            continue;
        }
        let mut other = Message::clone(&message);
        let (lifted, left): (Vec<_>, Vec<_>) = RefusalMark::remove_from(&mut other)
            .into_iter()
            .partition(|mark| issuer.is_none_or(|issuer| &*mark.issuer == issuer));
        if lifted.is_empty() {
            continue;
        }
        removed += lifted.len();
        RefusalMark::store_in(&mut other, left);
        rewrite.messages.push((number, other));
    }
    if !rewrite.is_empty() {
        store.rewrite(rewrite).await?;
    }
    Ok(removed)
}
