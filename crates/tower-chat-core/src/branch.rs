//! The requests that ask an edited question, or the same question again, in a branch of a
//! conversation. A branch is a new conversation with a copy (fork) of the turns before the
//! question. A turn consists of the messages of a run, and of the later runs that answer calls of
//! this run with a result or an approval.

use std::sync::Arc;

use crate::{
    ChatRequest, ConversationKey, Message, MessageId, Part, Role,
    pairing::asked_call,
    store::{Capability, History, HistoryStore, Revision, StoreError},
};

/// The error of [`ChatRequest::edit`] and [`ChatRequest::regenerate`]. After an error, the branch
/// does not exist: it was either not created, or deleted again. The exception is
/// [`Store`](Self::Store): the branch may exist, for example because the
/// store failed to delete it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum BranchError {
    /// The conversation has no visible message, or none with this id.
    #[error(
        "conversation {key} was not branched, because it has no such message: load the conversation \
         again"
    )]
    NoMessage {
        /// The conversation.
        key: ConversationKey,
    },
    /// The message to edit is not part of the question of its turn, or the turn has no question.
    /// The question is the input of the turn. If the input contains messages of the assistant, such
    /// as examples, the question begins after the last message of the assistant.
    #[error(
        "conversation {key} was not branched, because message {sequence} does not belong to the \
         question of its turn: name the last message of a user before the answer, or fork the \
         conversation"
    )]
    NoQuestion {
        /// The conversation.
        key: ConversationKey,
        /// The sequence number of the message.
        sequence: u64,
    },
    /// The input of the turn cannot be determined, because a message follows calls or their
    /// results. This message may belong to the input, or may have been added while the question was
    /// answered.
    #[error(
        "conversation {key} was not branched, because message {sequence} after a tool call may or may \
         not belong to the question: fork the conversation, and send the question in the branch"
    )]
    UnclearInput {
        /// The conversation.
        key: ConversationKey,
        /// The sequence number of the message after the calls.
        sequence: u64,
    },
    /// A fork cannot end right before the turn of the message, because a result in this turn
    /// answers a call of an earlier turn.
    #[error(
        "conversation {key} was not branched before message {sequence}, because a call of an earlier \
         turn has its result in or after this turn: name a message of the turn after message {position}"
    )]
    JoinedTurns {
        /// The conversation.
        key: ConversationKey,
        /// The sequence number of the message.
        sequence: u64,
        /// The last position before the message at which a fork can end.
        position: u64,
    },
    /// While the conversation was branched, its oldest runs were deleted (pruned), its messages
    /// were rewritten, or the whole conversation was deleted. This error also occurs if an attempt
    /// (an execution of a run) was begun or ended at the same time. The request can be repeated
    /// ([`is_retryable`](crate::is_retryable)).
    #[error(
        "conversation {key} was not branched, because it was changed at the same time: try again"
    )]
    Changed {
        /// The conversation.
        key: ConversationKey,
    },
    /// The store could not be read or written. The branch may exist.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ChatRequest {
    /// Forks a conversation before the turn of a question, and returns the request that asks
    /// another question in the branch. If the input of the turn has further messages, such as a
    /// document or examples, the request has them too. The request's messages have neither an id
    /// nor a time.
    ///
    /// The branch has the turns before the question
    /// ([`Maintenance::fork_at`](crate::store::Maintenance::fork_at)). The original does not
    /// change.
    ///
    /// ```
    /// # futures_util::FutureExt::now_or_never(async {
    /// # use tower_chat_core::{MemoryStore, MessageId, RunId, store::{HistoryStore, Revision, author::Write}};
    /// use tower_chat_core::{ChatRequest, ConversationKey, Message};
    /// # let (store, key) = (MemoryStore::new(), ConversationKey::new("alice", "wardrobe"));
    /// # let question = MessageId { run: RunId::new(), index: 0 };
    /// # let turn = [Message::user("And in winter?").into(), Message::assistant("A coat.").into()];
    /// # let write = Write::new(key.clone(), question, Revision::ABSENT, turn);
    /// # store.append(store.reserve().await?, vec![write]).await?;
    /// // `question` is the id of a stored message.
    /// let branch = ConversationKey::new("alice", "wardrobe, in summer");
    /// let edited = Message::user("And in summer?");
    /// let request = ChatRequest::edit(&store, &key, question, edited, branch).await?;
    /// assert_eq!(request.messages().last().map(|it| it.text()), Some("And in summer?".to_owned()));
    /// # Ok::<(), tower_chat_core::BoxError>(())
    /// # }).unwrap().unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// Returns a [`BranchError`]. The error contains [`StoreError::Exists`] if the branch exists,
    /// and [`StoreError::MissingCapability`] if the store lacks
    /// [`Maintenance`](crate::store::Maintenance).
    ///
    /// # Cancellation
    ///
    /// If the future is dropped, the branch may have been created.
    pub async fn edit<S: HistoryStore + ?Sized>(
        store: &S,
        key: &ConversationKey,
        question: MessageId,
        edited: Message,
        branch: ConversationKey,
    ) -> Result<Self, BranchError> {
        in_branch(store, key, Some(question), Some(edited), branch).await
    }

    /// Forks a conversation before the turn of an answer, and returns the request that asks the
    /// question of this turn again in the branch. `answer` may be the id of any message of the
    /// turn. `None` selects the last turn of the conversation. The input of the turn ends with the
    /// run's last message of a user or of the system. Earlier messages of the assistant in the run,
    /// such as examples, are part of the input.
    ///
    /// The original keeps its answer. This function also works for a turn that waits for an
    /// approval.
    ///
    /// ```
    /// # futures_util::FutureExt::now_or_never(async {
    /// # use tower_chat_core::{MemoryStore, MessageId, RunId, store::{HistoryStore, Revision, author::Write}};
    /// use tower_chat_core::{ChatRequest, ConversationKey, Message};
    /// # let (store, key) = (MemoryStore::new(), ConversationKey::new("alice", "wardrobe"));
    /// # let question = MessageId { run: RunId::new(), index: 0 };
    /// # let turn = [Message::user("And in winter?").into(), Message::assistant("A coat.").into()];
    /// # let write = Write::new(key.clone(), question, Revision::ABSENT, turn);
    /// # store.append(store.reserve().await?, vec![write]).await?;
    /// let branch = ConversationKey::new("alice", "wardrobe, again");
    /// let request = ChatRequest::regenerate(&store, &key, None, branch).await?;
    /// assert_eq!(request.messages().last().map(|it| it.text()), Some("And in winter?".to_owned()));
    /// # Ok::<(), tower_chat_core::BoxError>(())
    /// # }).unwrap().unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`edit`](Self::edit).
    ///
    /// # Cancellation
    ///
    /// As for [`edit`](Self::edit).
    pub async fn regenerate<S: HistoryStore + ?Sized>(
        store: &S,
        key: &ConversationKey,
        answer: Option<MessageId>,
        branch: ConversationKey,
    ) -> Result<Self, BranchError> {
        in_branch(store, key, answer, None, branch).await
    }
}

/// Forks a conversation before the turn of a message, and returns the request with the input of
/// this turn, in which `edited` replaces the message.
async fn in_branch<S: HistoryStore + ?Sized>(
    store: &S,
    key: &ConversationKey,
    message: Option<MessageId>,
    edited: Option<Message>,
    branch: ConversationKey,
) -> Result<ChatRequest, BranchError> {
    let maintenance = store.maintenance().ok_or(StoreError::from(Capability::Maintenance))?;
    let history = store.load(key).await?;
    let found = match message {
        Some(id) => history.numbered().find(|(_, message)| message.id == Some(id)),
        None => history.numbered().last(),
    };
    let Some((sequence, _)) = found else {
        return Err(BranchError::NoMessage { key: key.clone() });
    };
    let fork = maintenance.fork_at(key, Some(sequence), &branch).await?;
    if fork.revision == Revision::ABSENT {
        return Err(BranchError::NoMessage { key: key.clone() });
    }
    let checked = match is_current(store, key, &history).await {
        Ok(true) if fork.position < sequence => {
            input(key, &history, sequence, fork.position, edited)
        }
        Ok(_) => Err(BranchError::Changed { key: key.clone() }),
        Err(error) => Err(error.into()),
    };
    match checked {
        Ok(input) => Ok(ChatRequest::new(input).in_conversation(branch)),
        Err(error) => {
            // This call has created the branch, and has not returned a request for the branch yet.
            store.delete(&branch).await?;
            Err(error)
        }
    }
}

/// Returns whether the messages of a loaded history are still those of the conversation. Further
/// messages may have been appended.
async fn is_current<S: HistoryStore + ?Sized>(
    store: &S,
    key: &ConversationKey,
    history: &History,
) -> Result<bool, StoreError> {
    let now = store.head(key).await?;
    Ok(now.revision.incarnation == history.head.revision.incarnation)
}

/// Returns the input of the turn that begins after a position and contains the message `sequence`.
fn input(
    key: &ConversationKey,
    history: &History,
    sequence: u64,
    position: u64,
    edited: Option<Message>,
) -> Result<Vec<Arc<Message>>, BranchError> {
    let after: Vec<_> = history.numbered().skip_while(|(number, _)| *number <= position).collect();
    let run = after.first().and_then(|(_, message)| message.id).map(|id| id.run);
    let is_of_run = |message: &Message| message.id.map(|id| id.run) == run;
    let of_run = after.iter().take_while(|(_, message)| is_of_run(message));
    let (mut question, mut end, mut after_answer) = (0, 0, false);
    for (index, (number, message)) in of_run.enumerate() {
        if is_input(message) {
            // The previous message is an answer without calls. A run ends with its answer, but this
            // run has more input. The previous message is therefore an example in the input.
            if after_answer {
                question = index;
            } else if index != end {
                return Err(BranchError::UnclearInput { key: key.clone(), sequence: *number });
            }
            end = index + 1;
        }
        after_answer = is_answer(message);
    }
    let (input, rest) = after.split_at(end);
    let mut rest = rest.iter().take_while(|(number, _)| *number <= sequence);
    if rest.any(|(_, message)| !is_of_run(message) && is_input(message)) {
        return Err(BranchError::JoinedTurns { key: key.clone(), sequence, position });
    }
    let is_question = input.iter().skip(question).any(|(number, _)| *number == sequence);
    if input.is_empty() || (edited.is_some() && !is_question) {
        return Err(BranchError::NoQuestion { key: key.clone(), sequence });
    }
    let again = input.iter().map(|(number, message)| {
        let mut again = match &edited {
            Some(edited) if *number == sequence => edited.clone(),
            Some(_) | None => Message::clone(message),
        };
        (again.id, again.added_at) = (None, None);
        Arc::new(again)
    });
    Ok(again.collect())
}

/// Returns whether a message is an answer of the model without calls.
fn is_answer(message: &Message) -> bool {
    message.role == Role::Assistant && !message.parts.iter().any(|part| asked_call(part).is_some())
}

/// Returns whether a message can be the input of a turn. A message with results or decisions about
/// approval requests only continues an earlier turn.
fn is_input(message: &Message) -> bool {
    let continues = |part: &Part| matches!(part, Part::ToolResult(_) | Part::ApprovalResponse(_));
    match message.role {
        Role::System | Role::Developer | Role::User => !message.parts.iter().any(continues),
        Role::Assistant | Role::Tool => false,
    }
}
