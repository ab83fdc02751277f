//! The run of a tool loop above which no layer has begun one.

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::OnceCell;
use tower_chat_core::{Answer, Conversation};

use super::Run;
use crate::{PersistenceError, Tools};

/// A request extension of a tool loop that has no run: the persister below begins one with the first
/// service call, and the loop and its later service calls find it here.
///
/// The loop names its tools here first, so that their hooks decide about the very first answer.
#[derive(Clone, Default)]
pub(crate) struct RunOfLoop(Arc<Slot>);

#[derive(Default)]
struct Slot {
    begun: OnceCell<Begun>,
    tools: Mutex<Tools>,
}

/// What the persister does with a service call of a run that it had to begin.
#[derive(Clone)]
pub(crate) enum Begun {
    Run(Run),
    /// The run was sent again, and is stored whole.
    Answered(Answer),
}

impl RunOfLoop {
    /// Names the tools of the next service call.
    pub(crate) fn use_tools(&self, tools: &Tools) {
        *self.tools() = tools.clone();
        if let Some(run) = self.run() {
            run.log().use_tools(tools);
        }
    }

    /// The run, once a persister has begun it.
    pub(crate) fn run(&self) -> Option<Run> {
        match self.0.begun.get()? {
            Begun::Run(run) => Some(run.clone()),
            Begun::Answered(_) => None,
        }
    }

    /// Whether the run was complete before this request, so that its stored answer is the last.
    pub(crate) fn is_answered(&self) -> bool {
        matches!(self.0.begun.get(), Some(Begun::Answered(_)))
    }

    /// The run, if it is the one of this conversation: a layer may send other requests with the
    /// extensions of this one.
    pub(crate) fn run_of(&self, conversation: &Conversation) -> Option<Run> {
        self.run().filter(|run| run.0.conversation == *conversation)
    }

    /// What was begun, or what `begin` begins: one service call at a time, where a layer makes two at
    /// once. Nothing is kept of a run that could not be begun.
    pub(crate) async fn begun_or(
        &self,
        begin: impl Future<Output = Result<Begun, PersistenceError>>,
    ) -> Result<Begun, PersistenceError> {
        let begin = async {
            let begun = begin.await?;
            if let Begun::Run(run) = &begun {
                run.log().use_tools(&self.tools());
            }
            Ok(begun)
        };
        self.0.begun.get_or_try_init(|| begin).await.cloned()
    }

    fn tools(&self) -> MutexGuard<'_, Tools> {
        self.0.tools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
