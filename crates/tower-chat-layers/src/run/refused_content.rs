//! Content of messages that services have refused for good: what may be at fault, the service call that
//! is made without it, and the marks that are stored.

use std::{future::poll_fn, sync::Arc};

use tower_chat_core::{
    BoxError, ChatRequest, ChatResponse, ContentKind, ContentRefused, ConversationKey, Message,
    RefusalMark, RefusalMarks, Role, content_refused,
    store::{HistoryStore, Rewrite, StoreError},
};
use tower_service::Service;

use super::Run;
use crate::{PersistenceError, RefusedContent, error::for_good};

/// The marks of a conversation, as the run knows them.
#[derive(Debug, Default)]
pub(super) struct RefusedSoFar {
    all: Vec<RefusalMark>,
    /// How many of the marks, the first ones, are stored or on the way into the store.
    stored: usize,
}

impl RefusedSoFar {
    /// Marks that were loaded with the history.
    pub(super) fn stored(marks: &[RefusalMark]) -> Self {
        Self { all: marks.to_vec(), stored: marks.len() }
    }

    /// Adds the marks that are not stored yet to a message that is about to be stored.
    pub(super) fn store_in(&mut self, message: &mut Arc<Message>) {
        let new = self.all.get(self.stored..).unwrap_or_default();
        if !new.is_empty() {
            RefusalMark::store_in(Arc::make_mut(message), new.iter().cloned());
            self.stored = self.all.len();
        }
    }

    /// A message without parts that has the marks that are not stored yet, for a write that has no other
    /// message. Replays leave it out.
    pub(super) fn as_message(&mut self) -> Option<Message> {
        let mut message = Arc::new(Message::new(Role::Tool, Vec::new()));
        self.store_in(&mut message);
        RefusalMark::is_stored_in(&message).then(|| Arc::unwrap_or_clone(message))
    }

    /// Adds the marks to a request.
    pub(super) fn mark(&self, request: &mut ChatRequest) {
        if !self.all.is_empty() {
            request.extensions.insert(RefusalMarks::new(self.all.iter().cloned()));
        }
    }

    fn add(&mut self, marks: &[RefusalMark]) {
        let new = marks.iter().filter(|mark| !self.all.contains(mark));
        let new: Vec<_> = new.cloned().collect();
        self.all.extend(new);
    }
}

impl Run {
    /// Takes note of marks, which the next write of the run stores.
    fn note_refused(&self, marks: &[RefusalMark]) {
        self.log().refused.add(marks);
        for RefusalMark { issuer, message, content, .. } in marks {
            tracing::warn!(
                conversation = %self.key(),
                "{issuer} refuses the {} in message {message}: requests to it have a sentence instead",
                content.name()
            );
        }
    }
}

impl Run {
    /// Takes note of what no answer follows in a service call that has failed, as far as the error names it:
    /// a service may refuse content when its answer has begun. `inputs` are new in the call; what a
    /// journaled run has staged before is none of them.
    pub(super) fn note_refused_inputs(&self, inputs: &[Arc<Message>], error: &BoxError) {
        let refusal = content_refused(&**error).filter(|refusal| refusal.named.is_some());
        let Some(refusal) = refusal else { return };
        if self.policy().refused_content == RefusedContent::Fail {
            return;
        }
        let marks: Vec<_> = {
            let log = self.log();
            let added = &log.conversation.added;
            let answered = added.iter().rposition(|message| message.role == Role::Assistant);
            let unanswered = added.iter().skip(answered.map_or(0, |last| last + 1));
            let known = &log.refused.all;
            unanswered.chain(inputs).flat_map(|it| marks_of(it, refusal, known)).collect()
        };
        self.note_refused(&marks);
    }
}

/// Service calls of a run that are made once more without what the service has refused.
pub(crate) struct AskedAgain<'s, S> {
    pub(crate) service: &'s mut S,
    pub(crate) run: &'s Run,
}

impl<S> AskedAgain<'_, S>
where
    S: Service<ChatRequest, Response = ChatResponse>,
    S::Error: Into<BoxError>,
{
    /// Calls the service. If it refuses the request for good, and content that is stored may be why, marks
    /// the content and asks once more without it, by the policy.
    ///
    /// # Errors
    ///
    /// Those of the service; [`PersistenceError::ContentRefused`], if the error names content of the
    /// messages.
    pub(crate) async fn call(self, mut request: ChatRequest) -> Result<ChatResponse, BoxError> {
        let Self { service, run } = self;
        let policy = run.policy().refused_content;
        run.log().refused.mark(&mut request);
        let again = (policy != RefusedContent::Fail).then(|| request.clone());
        let error = match service.call(request).await {
            Ok(response) => return Ok(response),
            Err(error) => error.into(),
        };
        match (again, content_refused(&*error).cloned()) {
            // Boxed, since every other service call would carry the room for it.
            (Some(again), Some(refusal)) => {
                Box::pin(after_refusal(service, run, again, (error, refusal))).await
            }
            _ => Err(error),
        }
    }
}

/// What follows a service call that was refused.
async fn after_refusal<S>(
    service: &mut S,
    run: &Run,
    mut request: ChatRequest,
    (error, refusal): (BoxError, ContentRefused),
) -> Result<ChatResponse, BoxError>
where
    S: Service<ChatRequest, Response = ChatResponse>,
    S::Error: Into<BoxError>,
{
    let known = run.log().refused.all.clone();
    let Suspects { stored, new, is_named } = Suspects::of(&request, &refusal, &known);
    let at_fault = stored.iter().chain(&new).next().cloned();
    if is_named {
        let named: Vec<_> = stored.iter().chain(&new).cloned().collect();
        run.note_refused(&named);
    }
    let failed = |error| match &at_fault {
        Some(mark) => Err(PersistenceError::ContentRefused {
            key: run.key().clone(),
            mark: mark.clone(),
            is_marked: is_named,
            source: for_good(error),
        }
        .into()),
        None => Err(error),
    };
    // A request without what the user says in it would be another question.
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
            run.note_refused(&stored);
            Ok(response)
        }
        Err(second) => {
            let second = second.into();
            match content_refused(&*second) {
                // It was not the content that was left out, or not that alone.
                Some(_) if is_named => failed(error),
                Some(_) => Err(error),
                None => Err(second),
            }
        }
    }
}

/// Content of a request that may be why the service has refused the request.
#[derive(Debug, Default, PartialEq)]
struct Suspects {
    /// Results of tools, and what earlier requests have added.
    stored: Vec<RefusalMark>,
    /// What the user adds with this request. Only an error that names it makes it one.
    new: Vec<RefusalMark>,
    /// The error names it.
    is_named: bool,
}

impl Suspects {
    /// The suspects of a request whose own messages begin at `new_from`. Where the request has nothing of
    /// the kind that the error names, the error counts as one that names nothing.
    fn of(request: &ChatRequest, refusal: &ContentRefused, known: &[RefusalMark]) -> Self {
        let named = refusal.named.map(|_| Self::named_or_any(request, refusal, known));
        named.filter(|named| !named.is_empty()).unwrap_or_else(|| {
            let refusal = ContentRefused::by(refusal.issuer.clone());
            Self::named_or_any(request, &refusal, known)
        })
    }

    /// The service has accepted everything before the last answer, as a rule. So the messages behind that
    /// answer come first; where nothing in them can be at fault, as after a change of the service, all
    /// others follow.
    fn named_or_any(
        request: &ChatRequest,
        refusal: &ContentRefused,
        known: &[RefusalMark],
    ) -> Self {
        let is_named = refusal.named.is_some();
        let messages = &request.messages;
        let unanswered = messages.iter().rposition(|message| message.role == Role::Assistant);
        let unanswered = unanswered.map_or(0, |last| last + 1);
        let mut found = Self { is_named, ..Self::default() };
        for (position, message) in (unanswered..).zip(messages.iter_from(unanswered)) {
            let is_of_user = message.role == Role::User && position >= request.new_from;
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

/// The marks that a message would have if it were at fault.
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

/// Removes the marks of content that a service has refused, or those of every service, so that the next
/// requests have the content again. Returns how many marks were removed.
///
/// ```
/// # futures_util::FutureExt::now_or_never(async {
/// use tower_chat::{ConversationKey, MemoryStore, lift_refusals};
/// let (store, key) = (MemoryStore::new(), ConversationKey::new("alice", "support"));
/// assert_eq!(lift_refusals(&store, &key, Some("openai")).await?, 0);
/// # Ok::<(), tower_chat::BoxError>(())
/// # }).unwrap().unwrap();
/// ```
///
/// # Errors
///
/// [`StoreError::Conflict`], if somebody writes to the conversation meanwhile, or has an open run in it;
/// [`StoreError::Unsupported`], if the store cannot change messages; otherwise, if it cannot be read or
/// written. Nothing is removed then.
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
