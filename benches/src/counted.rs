//! What is done once to have its instructions counted, by `benches/instructions.py`.
//!
//! Counts do not depend on what else the machine does, but on the compiler and on the machine's
//! memcpy. So each is compared with that of a [`DeepClone`] in the same session.

use std::{fmt, hint::black_box, sync::Arc};

use tokio::runtime::Runtime;
use tower_chat::{
    BoxError, ChatPipeline, ChatRequest, ConversationKey, MemoryStore, Message, Messages,
    PersistenceMode,
    replay::{FinishTimes, ReplayPolicy},
    store::HistoryStore,
};

use crate::{
    replay,
    workload::{self, Model},
};

/// Messages in a long conversation.
pub const LONG: usize = 10_000;
/// Service calls of a run with tools: 20 rounds and the final answer.
pub const CALLS: usize = workload::CALLS;

/// A run over the store in memory that is about to be made, in a conversation that this process
/// has run in before.
pub struct Run {
    runtime: Runtime,
    pipeline: ChatPipeline,
    model: Model,
    request: ChatRequest,
    calls: usize,
}

impl Run {
    /// A run of so many service calls after so many stored messages.
    ///
    /// # Errors
    ///
    /// If the conversation could not be stored.
    pub fn prepare(mode: PersistenceMode, stored: usize, calls: usize) -> Result<Self, BoxError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let (store, model) = (MemoryStore::new(), Model::default());
        let key = ConversationKey::new("benches", "counted");
        let history: Arc<dyn HistoryStore> = Arc::new(store.clone());
        let mut pipeline = workload::pipeline(&model, Some((history, mode)))?;
        runtime.block_on(async {
            let write = workload::first_write(&key, workload::stored_messages(stored));
            store.append(store.reserve().await?, vec![write]).await?;
            // Whatever is made once in a process is made here.
            model.prepare(CALLS - 1);
            let elsewhere = ConversationKey::new("benches", "elsewhere");
            let request = workload::input().in_conversation(elsewhere);
            workload::run(&mut pipeline, &model, request, CALLS).await?;
            model.prepare(0);
            let request = workload::input().in_conversation(key.clone());
            workload::run(&mut pipeline, &model, request, 1).await
        })?;
        model.prepare(calls - 1);
        let request = workload::input().in_conversation(key);
        Ok(Self { runtime, pipeline, model, request, calls })
    }

    /// Makes the run.
    ///
    /// # Errors
    ///
    /// If it does not come to its final answer.
    pub fn make(&mut self) -> Result<(), BoxError> {
        let request = std::mem::take(&mut self.request);
        self.runtime.block_on(workload::run(&mut self.pipeline, &self.model, request, self.calls))
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("calls", &self.calls).finish_non_exhaustive()
    }
}

/// A long stored conversation that is about to go through the fold and all steps of replay, each of
/// which has something to do.
#[derive(Debug)]
pub struct AllSteps {
    stored: Messages,
    policy: ReplayPolicy,
    times: FinishTimes,
}

impl AllSteps {
    /// The conversation.
    pub fn prepare() -> Self {
        let stored = replay::conversation(LONG);
        let times = replay::finish_times(&stored);
        Self { stored, policy: replay::all_steps(), times }
    }

    /// What is shown of it.
    pub fn show(&self) -> Messages {
        replay::replayed(&self.stored, &self.policy, &self.times)
    }
}

/// The messages of [`AllSteps`], about to be copied: what everything else is compared with.
#[derive(Debug)]
pub struct DeepClone(Vec<Message>);

impl DeepClone {
    /// The messages.
    pub fn prepare() -> Self {
        Self(replay::conversation(LONG).iter().map(|message| (**message).clone()).collect())
    }

    /// The copy.
    pub fn make(&self) -> Vec<Message> {
        black_box(&self.0).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_that_is_counted_comes_to_its_answer() -> Result<(), BoxError> {
        for mode in
            [PersistenceMode::PerRun, PersistenceMode::PerServiceCall, PersistenceMode::Journaled]
        {
            for calls in [1, CALLS] {
                Run::prepare(mode, 10, calls)?.make()?;
            }
        }
        Ok(())
    }
}
