//! The run of a tool loop above which no layer has begun one.

use std::{
    future::Future,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::Mutex as BeginMutex;
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
    run: OnceLock<Run>,
    is_answered: AtomicBool,
    /// One service call at a time begins the run, where a layer makes two at once.
    begin: BeginMutex<()>,
    tools: Mutex<Tools>,
}

/// What the persister does with a service call of a run that it had to begin.
pub(crate) enum Begun {
    Run(Run),
    /// The run was sent again, and is stored whole.
    Answered(Answer),
}

impl RunOfLoop {
    /// Names the tools of the next service call.
    pub(crate) fn use_tools(&self, tools: &Tools) {
        *self.0.tools.lock().unwrap_or_else(PoisonError::into_inner) = tools.clone();
        if let Some(run) = self.0.run.get() {
            run.use_tools(tools);
        }
    }

    /// The run, once a persister has begun it.
    pub(crate) fn run(&self) -> Option<&Run> {
        self.0.run.get()
    }

    /// Whether the run was complete before this request, so that its stored answer is the last.
    pub(crate) fn is_answered(&self) -> bool {
        self.0.is_answered.load(Ordering::Acquire)
    }

    /// The run, if it is the one of this conversation: a layer may send other requests with the
    /// extensions of this one.
    pub(crate) fn run_of(&self, conversation: &Conversation) -> Option<Run> {
        let run = self.run()?;
        (run.0.conversation == *conversation).then(|| run.clone())
    }

    /// The run, or the one that `begin` makes. Nothing is kept of one that could not be begun.
    pub(crate) async fn run_or(
        &self,
        begin: impl Future<Output = Result<Begun, PersistenceError>>,
    ) -> Result<Begun, PersistenceError> {
        let _one_at_a_time = self.0.begin.lock().await;
        if let Some(run) = self.run() {
            return Ok(Begun::Run(run.clone()));
        }
        let begun = begin.await?;
        match &begun {
            Begun::Run(run) => {
                run.use_tools(&self.0.tools.lock().unwrap_or_else(PoisonError::into_inner));
                let _is_the_only_one = self.0.run.set(run.clone());
            }
            Begun::Answered(_) => self.0.is_answered.store(true, Ordering::Release),
        }
        Ok(begun)
    }
}
