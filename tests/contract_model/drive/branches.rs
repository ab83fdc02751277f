//! Branches of a conversation. The case continues in the branch or in the original.

use std::sync::Arc;

use tower_chat::{
    ChatRequest, ConversationKey, HistoryStore, Message,
    error::BranchError,
    store::{ConversationQuery, Directory, Maintenance, Revision},
};

use super::{Driver, compare::same};
use crate::contract_model::{
    branches::{BranchPlan, How},
    model::{BranchEnd, NotAsked, RunInput},
    observe,
    planted::Process,
};

/// The input of a run that asks a question in a branch.
pub(super) struct Asked {
    pub(super) input: RunInput,
    pub(super) messages: Vec<Message>,
}

impl Driver<'_> {
    /// Creates a branch before a run, and compares it with the model. Returns the input of the run,
    /// if the run asks a question again. `message` is the message of the run.
    pub(super) async fn branch(
        &mut self,
        run: usize,
        plan: BranchPlan,
        message: Message,
    ) -> Result<Option<Asked>, String> {
        let branch = ConversationKey::new("alice", format!("branch {run}"));
        let store = Process::new(self.store.clone(), self.world.fault());
        let count = self.model.messages();
        if count == 0 {
            let forked = store.fork_at(&self.key, None, &branch).await;
            let forked = forked.map_err(|it| it.to_string())?;
            return match forked.revision == Revision::ABSENT {
                true => Ok(None),
                false => Err(format!("an empty conversation has the branch {forked:?}")),
            };
        }
        let target = plan.message % count;
        let end = match plan.how {
            How::Fork | How::ForkAll => {
                let before = (plan.how == How::Fork).then_some(target);
                let sequence = match before {
                    Some(before) => Some(self.message(before).await?.0),
                    None => None,
                };
                let forked = store.fork_at(&self.key, sequence, &branch).await;
                let position = forked.map_err(|it| it.to_string())?.position;
                let end = self.model.branch_end(before);
                same_position(position, self.position(end).await?)?;
                self.compare_branch(&branch, end).await?;
                return Ok(self.continue_in(branch, end, plan, None));
            }
            How::Edit | How::Regenerate => self.model.asked_again(target, plan.how == How::Edit),
        };
        let (_, target_message) = self.message(target).await?;
        let id = target_message.id.ok_or("a message has no id")?;
        let is_last = target + 1 == count;
        let request = match plan.how {
            How::Edit => {
                ChatRequest::edit(&store, &self.key, id, message.clone(), branch.clone()).await
            }
            _ => {
                let answer = (!is_last).then_some(id);
                ChatRequest::regenerate(&store, &self.key, answer, branch.clone()).await
            }
        };
        let found = request.as_ref().map_or_else(cause, |_| "asked again".to_owned());
        let expected = match &end {
            Ok(_) => "asked again".to_owned(),
            Err(NotAsked::NoQuestion) => "NoQuestion".to_owned(),
            Err(NotAsked::UnclearInput) => "UnclearInput".to_owned(),
            Err(NotAsked::JoinedTurns) => "JoinedTurns".to_owned(),
        };
        same("the outcome", &[found], &[expected])?;
        let (Ok(request), Ok((end, question))) = (request, end) else {
            let left = self.store.load(&branch).await.map_err(|it| it.to_string())?;
            return match left.head.revision == Revision::ABSENT {
                true => Ok(None),
                false => Err("the branch remains".to_owned()),
            };
        };
        self.compare_branch(&branch, end).await?;
        let messages: Vec<Message> =
            request.messages().iter().map(|message| Message::clone(message)).collect();
        let (input, expected) = match plan.how {
            How::Edit => (RunInput::Text, vec![message]),
            _ => (RunInput::Again(question.clone()), vec![question.into_message()]),
        };
        let texts = |messages: &[Message]| observe::texts(messages, &self.tokens);
        same("the question", &texts(&messages), &texts(&expected))?;
        Ok(self.continue_in(branch, end, plan, Some(Asked { input, messages })))
    }

    /// Continues in the branch, if the plan says so, and then returns the input.
    fn continue_in(
        &mut self,
        branch: ConversationKey,
        end: BranchEnd,
        plan: BranchPlan,
        asked: Option<Asked>,
    ) -> Option<Asked> {
        if !plan.continues {
            return None;
        }
        self.model = self.model.branch(end);
        self.key = branch;
        asked
    }

    /// Compares the messages, the record, the summaries, the pending approvals and the parent of a
    /// branch.
    async fn compare_branch(
        &mut self,
        branch: &ConversationKey,
        end: BranchEnd,
    ) -> Result<(), String> {
        let in_branch = |it: String| format!("in the branch: {it}");
        self.compare_stored(branch, &self.model.branch(end)).await.map_err(in_branch)?;
        let head = self.store.head(branch).await.map_err(|it| it.to_string())?;
        if !head.pending_approvals.is_empty() {
            return Err(format!("calls wait for approval in the branch: {head:?}"));
        }
        let query = ConversationQuery::in_scope(self.key.scope()).branches_of(self.key.clone());
        let listed = self.store.conversations(&query).await.map_err(|it| it.to_string())?;
        let listed = listed.conversations.into_iter().find(|listed| listed.key == *branch);
        let parent = listed.and_then(|listed| listed.parent);
        let parent = parent.ok_or("the branch is not listed")?;
        same_position(parent.position, self.position(end).await?)
    }

    /// Returns a message with content, and its sequence number.
    async fn message(&self, index: usize) -> Result<(u64, Arc<Message>), String> {
        let history = self.store.load(&self.key).await.map_err(|it| it.to_string())?;
        let mut with_content = history.numbered().filter(|(_, message)| !message.parts.is_empty());
        let found = with_content.nth(index).ok_or("the message is missing")?;
        Ok((found.0, found.1.clone()))
    }

    /// Returns the sequence number of the last message of a branch. Messages without content belong
    /// to the run of the message before them.
    async fn position(&self, end: BranchEnd) -> Result<u64, String> {
        if end.messages == self.model.messages() {
            let history = self.store.load(&self.key).await.map_err(|it| it.to_string())?;
            return Ok(history.messages.len() as u64);
        }
        Ok(self.message(end.messages).await?.0 - 1)
    }
}

fn same_position(found: u64, expected: u64) -> Result<(), String> {
    same("the position", &[found.to_string()], &[expected.to_string()])
}

fn cause(error: &BranchError) -> String {
    match error {
        BranchError::NoQuestion { .. } => "NoQuestion".to_owned(),
        BranchError::UnclearInput { .. } => "UnclearInput".to_owned(),
        BranchError::JoinedTurns { .. } => "JoinedTurns".to_owned(),
        other => format!("{other:?}"),
    }
}
