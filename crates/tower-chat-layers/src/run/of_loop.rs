//! The run of a tool loop above which no layer has begun one.

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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
    /// One service call at a time begins the run, where a layer makes two at once.
    begin: BeginMutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    run: Option<Run>,
    /// The run was complete before this request.
    is_answered: bool,
    tools: Tools,
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
        let mut state = self.state();
        state.tools = tools.clone();
        if let Some(run) = &state.run {
            run.use_tools(tools);
        }
    }

    /// The run, once a persister has begun it.
    pub(crate) fn run(&self) -> Option<Run> {
        self.state().run.clone()
    }

    /// Whether the run was complete before this request, so that its stored answer is the last.
    pub(crate) fn is_answered(&self) -> bool {
        self.state().is_answered
    }

    /// The run, if it is the one of this conversation: a layer may send other requests with the
    /// extensions of this one.
    pub(crate) fn run_of(&self, conversation: &Conversation) -> Option<Run> {
        self.run().filter(|run| run.0.conversation == *conversation)
    }

    /// The run, or the one that `begin` makes. Nothing is kept of one that could not be begun.
    pub(crate) async fn run_or(
        &self,
        begin: impl Future<Output = Result<Begun, PersistenceError>>,
    ) -> Result<Begun, PersistenceError> {
        let _one_at_a_time = self.0.begin.lock().await;
        if let Some(run) = self.run() {
            return Ok(Begun::Run(run));
        }
        let begun = begin.await?;
        let mut state = self.state();
        match &begun {
            Begun::Run(run) => {
                run.use_tools(&state.tools);
                state.run = Some(run.clone());
            }
            Begun::Answered(_) => state.is_answered = true,
        }
        Ok(begun)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
