//! The run of a tool loop, if no layer above the loop has begun a run.

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::OnceCell;
use tower_chat_core::{Answer, Conversation};

use super::Run;
use crate::{PersistenceError, Tools};

/// A request extension of a tool loop without a run. The persister below begins a run with the first
/// service call and stores it in this extension. The loop and its later service calls read the run from
/// here.
///
/// The loop first stores its tools in this extension, because their hooks must decide about the first
/// answer.
#[derive(Clone, Default)]
pub(crate) struct RunOfLoop(Arc<Slot>);

#[derive(Default)]
struct Slot {
    begun: OnceCell<Begun>,
    tools: Mutex<Tools>,
}

/// The result of beginning the run of a service call.
#[derive(Clone)]
pub(crate) enum Begun {
    Run(Run),
    /// The run was sent again, and is already stored completely.
    Answered(Answer),
}

impl RunOfLoop {
    /// Sets the tools of the next service call.
    pub(crate) fn use_tools(&self, tools: &Tools) {
        *self.tools() = tools.clone();
        if let Some(run) = self.run() {
            run.log().use_tools(tools);
        }
    }

    /// Returns the run, if a persister has begun it.
    pub(crate) fn run(&self) -> Option<Run> {
        match self.0.begun.get()? {
            Begun::Run(run) => Some(run.clone()),
            Begun::Answered(_) => None,
        }
    }

    /// Returns whether the run was complete before this request. The stored answer is then the last
    /// one.
    pub(crate) fn is_answered(&self) -> bool {
        matches!(self.0.begun.get(), Some(Begun::Answered(_)))
    }

    /// Returns the run if it belongs to this conversation. A layer may send other requests with the
    /// extensions of this one.
    pub(crate) fn run_of(&self, conversation: &Conversation) -> Option<Run> {
        self.run().filter(|run| run.0.conversation == *conversation)
    }

    /// Returns the run that was begun, or begins it with `begin`. If two service calls begin it
    /// concurrently, the second one waits for the first. A failure is not stored.
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
