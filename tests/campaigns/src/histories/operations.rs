//! Operations on a store, each of which is recorded.

use std::future::Future;

use futures_util::future::{Either, select};
use tokio::task::JoinSet;
use tower_chat_core::{
    ConversationKey,
    store::{
        Head, History, HistorySummary, Journal, Keep, Maintenance, StoreError, Summaries,
        author::{OpenRunContent, Write},
    },
};

use super::{
    event::{Event, HeadSeen, MessageSeen, Request, Response, SummaryOutcome, SummaryRequest},
    recorder::{Begun, Recorder},
    stores::DynStore,
};

/// How a client handles the acknowledgement of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Acknowledgement {
    /// The client waits for the acknowledgement.
    Received,
    /// The client continues. The operation continues in a task, and its end is recorded.
    Late,
    /// The client drops the future after some polls. The outcome is unknown.
    Lost { polls: usize },
}

#[derive(Debug)]
pub(super) struct Operations {
    store: DynStore,
    recorder: Recorder,
    scope: String,
    client: u64,
    late: JoinSet<()>,
}

impl Operations {
    pub(super) fn new(store: DynStore, recorder: Recorder, scope: &str, client: u64) -> Self {
        Self { store, recorder, scope: scope.to_owned(), client, late: JoinSet::new() }
    }

    pub(super) async fn head(&self, key: &str) -> Option<Head> {
        let begun = self.invoke(Request::Head { key: key.to_owned() });
        match self.store.head(&self.key(key)).await {
            Ok(head) => {
                begun.end(Response::Head(HeadSeen::from(&head)));
                Some(head)
            }
            Err(error) => failed(begun, &error),
        }
    }

    pub(super) async fn load(&self, key: &str) -> Option<History> {
        let begun = self.invoke(Request::Load { key: key.to_owned() });
        match self.store.load(&self.key(key)).await {
            Ok(history) => {
                let messages = history.messages.iter().map(|it| MessageSeen::from(&**it));
                let (head, messages) = (HeadSeen::from(&history.head), messages.collect());
                begun.end(Response::Loaded { head, messages });
                Some(history)
            }
            Err(error) => failed(begun, &error),
        }
    }

    pub(super) async fn open_run(&self, key: &str) -> Option<OpenRunContent> {
        let begun = self.invoke(Request::OpenRun { key: key.to_owned() });
        match self.store.open_run(&self.key(key)).await {
            Ok(content) => {
                begun.end(Response::OpenRun(content.as_ref().map(Into::into)));
                content
            }
            Err(error) => failed(begun, &error),
        }
    }

    pub(super) async fn append(
        &mut self,
        write: &Write,
        acknowledgement: Acknowledgement,
    ) -> Option<Response> {
        let begun = self.invoke(Request::Append(write.into()));
        let slot = match self.store.reserve().await {
            Ok(slot) => slot,
            Err(error) => return Some(ended(begun, Response::of_error(&error))),
        };
        let ticket = self.store.append(slot, vec![write.clone()]);
        let outcome = async move {
            match ticket.await {
                Ok(revision) => Response::Stored(revision.into()),
                Err(error) => Response::of_error(&error.source),
            }
        };
        self.finish(begun, outcome, acknowledgement).await
    }

    pub(super) async fn fork(
        &mut self,
        from: &str,
        before: Option<u64>,
        to: &str,
        acknowledgement: Acknowledgement,
    ) -> Option<Response> {
        let request = Request::Fork { from: from.to_owned(), before, to: to.to_owned() };
        let (store, from, to) = (self.store.clone(), self.key(from), self.key(to));
        let forked = async move {
            match store.fork_at(&from, before, &to).await {
                Ok(fork) => {
                    Response::Forked { revision: fork.revision.into(), position: fork.position }
                }
                Err(error) => Response::of_error(&error),
            }
        };
        self.finish(self.invoke(request), forked, acknowledgement).await
    }

    pub(super) async fn prune(
        &mut self,
        key: &str,
        keep: u64,
        acknowledgement: Acknowledgement,
    ) -> Option<Response> {
        let request = Request::Prune { key: key.to_owned(), keep };
        let (store, key) = (self.store.clone(), self.key(key));
        let pruned = async move {
            match store.prune(&key, Keep::Messages(keep)).await {
                Ok(pruned) => Response::Pruned { runs: pruned.runs, messages: pruned.messages },
                Err(error) => Response::of_error(&error),
            }
        };
        self.finish(self.invoke(request), pruned, acknowledgement).await
    }

    pub(super) async fn delete(
        &mut self,
        key: &str,
        acknowledgement: Acknowledgement,
    ) -> Option<Response> {
        let request = Request::Delete { key: key.to_owned() };
        let (store, key) = (self.store.clone(), self.key(key));
        let deleted = async move {
            match store.delete(&key).await {
                Ok(was_there) => Response::Deleted(was_there),
                Err(error) => Response::of_error(&error),
            }
        };
        self.finish(self.invoke(request), deleted, acknowledgement).await
    }

    pub(super) async fn summarize(
        &mut self,
        key: &str,
        summary: &HistorySummary,
        acknowledgement: Acknowledgement,
    ) -> Option<Response> {
        let request = Request::Summarize(SummaryRequest::new(key, summary));
        let (store, key, summary) = (self.store.clone(), self.key(key), summary.clone());
        let added = async move {
            match store.add_summary(&key, &summary, 0).await {
                Ok(added) => added.into(),
                Err(error) => Response::of_error(&error),
            }
        };
        self.finish(self.invoke(request), added, acknowledgement).await
    }

    pub(super) async fn undo(
        &mut self,
        key: &str,
        summary: u64,
        acknowledgement: Acknowledgement,
    ) -> Option<Response> {
        let request = Request::Undo { key: key.to_owned(), summary };
        let (store, key) = (self.store.clone(), self.key(key));
        let removed = async move {
            match store.remove_summary(&key, summary).await {
                Ok(is_removed) => Response::Undone(is_removed),
                Err(error) => Response::of_error(&error),
            }
        };
        self.finish(self.invoke(request), removed, acknowledgement).await
    }

    pub(super) async fn wait_for_late(mut self) {
        while self.late.join_next().await.is_some() {}
    }

    pub(super) fn key(&self, id: &str) -> ConversationKey {
        ConversationKey::new(self.scope.as_str(), id)
    }

    fn invoke(&self, request: Request) -> Begun {
        self.recorder.invoke(self.client, request)
    }

    async fn finish(
        &mut self,
        begun: Begun,
        outcome: impl Future<Output = Response> + Send + 'static,
        acknowledgement: Acknowledgement,
    ) -> Option<Response> {
        match acknowledgement {
            Acknowledgement::Received => Some(ended(begun, outcome.await)),
            Acknowledgement::Late => {
                self.late.spawn(async move { begun.end(outcome.await) });
                None
            }
            Acknowledgement::Lost { polls } => {
                let patience = std::pin::pin!(async {
                    for _ in 0..polls {
                        tokio::task::yield_now().await;
                    }
                });
                match select(patience, std::pin::pin!(outcome)).await {
                    Either::Left(_) => None,
                    Either::Right((response, _)) => Some(ended(begun, response)),
                }
            }
        }
    }
}

fn ended(begun: Begun, response: Response) -> Response {
    begun.end(response.clone());
    response
}

fn failed<T>(begun: Begun, error: &StoreError) -> Option<T> {
    begun.end(Response::of_error(error));
    None
}

#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counts {
    pub(super) operations: u64,
    pub(super) unknown: u64,
    pub(super) failed: u64,
    pub(super) conflicts: u64,
    pub(super) takeovers: u64,
    pub(super) forks: u64,
    /// The forks that copied the turns before a message.
    pub(super) forks_before_message: u64,
    pub(super) prunes: u64,
    pub(super) discards: u64,
    pub(super) summaries: u64,
    pub(super) undone_summaries: u64,
}

impl Counts {
    pub(super) fn add(&mut self, events: &[Event]) {
        let mut invoked = std::collections::HashMap::new();
        for event in events {
            match event {
                Event::Invoke { operation, request, .. } => {
                    self.operations += 1;
                    self.unknown += 1;
                    invoked.insert(*operation, request);
                }
                Event::Return { operation, response, .. } => {
                    self.unknown -= 1;
                    if let Some(request) = invoked.get(operation) {
                        self.count(request, response);
                    }
                }
            }
        }
    }

    fn count(&mut self, request: &Request, response: &Response) {
        match (request, response) {
            (_, Response::Failed(_)) => self.failed += 1,
            (_, Response::Conflict { .. }) => self.conflicts += 1,
            (Request::Append(write), Response::Stored(_)) => {
                let Some(staged) = &write.staged else { return };
                self.takeovers += u64::from(staged.begins_attempt && staged.lease.attempt > 1);
                let is_discard =
                    matches!(staged.close, Some(super::event::CloseSeen::Discard { .. }));
                self.discards += u64::from(is_discard);
            }
            (Request::Fork { before, .. }, Response::Forked { revision, .. }) => {
                self.forks += u64::from(revision.sequence > 0);
                let is_in_middle = before.is_some() && revision.sequence > 0;
                self.forks_before_message += u64::from(is_in_middle);
            }
            (_, Response::Summarized(outcome)) => {
                self.summaries += u64::from(*outcome == SummaryOutcome::Stored);
            }
            (_, Response::Undone(is_undone)) => self.undone_summaries += u64::from(*is_undone),
            (_, Response::Pruned { messages, .. }) => self.prunes += u64::from(*messages > 0),
            _ => {}
        }
    }
}
