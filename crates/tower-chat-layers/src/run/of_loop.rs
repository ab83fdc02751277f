//! The run that a tool loop or a persister creates if no layer above the loop has begun a run.

use std::{
    future::Future,
    sync::{Arc, Mutex},
};

use tokio::sync::OnceCell;
use tower_chat_core::{Answer, ChatRequest, Conversation, Message};

use super::{BegunBy, Run, Shared, log::RunLog};
use crate::PersistenceError;

/// Returns a run without a store, whose events have no effect until `PerServiceCallPersistence`
/// below the tool loop begins it with the first service call.
pub(crate) fn run_without_store(conversation: Conversation, begun_by: BegunBy) -> Run {
    let log = Mutex::new(RunLog::without_store(conversation.run));
    Run::from(Arc::new(Shared { conversation, begun_by, log, stored: OnceCell::new() }))
}

/// Numbers the messages of the tool loop after those of its request.
pub(crate) fn number_after(run: &Run, request: &ChatRequest) {
    run.log().conversation.added.number_after(request);
}

/// Sets the id and the time of a message of the tool loop, if it has none.
pub(crate) fn number_message(run: &Run, message: Arc<Message>) -> Arc<Message> {
    let now = run.clock().whole_milliseconds();
    run.log().conversation.added.number_of_loop(message, now)
}

/// Begins a run that has no store yet: moves the state and the store of the run that `begin`
/// returns into `run`. Returns the stored answer if the run was already complete. A concurrent
/// second call waits for the first. If `begin` fails, the next service call begins the run again.
pub(crate) async fn store_run(
    run: &Run,
    begin: impl Future<Output = Result<(Run, Option<Answer>), PersistenceError>>,
) -> Result<Option<Answer>, PersistenceError> {
    let begin = async {
        let begun = take_over(run, begin).await?;
        let missing =
            || PersistenceError::RunMissing { key: begun.key().clone(), mode: "per-service-call" };
        begun.shared.stored.get().cloned().ok_or_else(missing)
    };
    run.shared.stored.get_or_try_init(|| begin).await?;
    Ok(run.log().answer.clone())
}

/// Begins a run again after its first service call has failed, with the state of the run that
/// `begin` returns.
pub(crate) async fn restart_run(
    run: &Run,
    begin: impl Future<Output = Result<(Run, Option<Answer>), PersistenceError>>,
) -> Result<Option<Answer>, PersistenceError> {
    take_over(run, begin).await?;
    Ok(run.log().answer.clone())
}

/// Moves the run log of the run that `begin` returns into `run`, and returns that run with an empty
/// log.
async fn take_over(
    run: &Run,
    begin: impl Future<Output = Result<(Run, Option<Answer>), PersistenceError>>,
) -> Result<Run, PersistenceError> {
    let (begun, answer) = begin.await?;
    let mut log = std::mem::replace(&mut *begun.log(), RunLog::without_store(begun.id()));
    let mut of_loop = run.log();
    log.conversation.added.continue_numbers_of(&of_loop.conversation.added);
    let tools = of_loop.call_records.hooks.newest_tools();
    let loop_policy = of_loop.loop_policy.take();
    *of_loop = RunLog { answer, loop_policy, ..log };
    // The hooks of the loop's tools decide which parts of the first answer are stored.
    tools.iter().for_each(|tools| of_loop.call_records.hooks.use_tools(tools));
    drop(of_loop);
    Ok(begun)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tower_chat_core::{ChatRequest, ConversationKey, MemoryStore, Message, RunId};

    use super::*;
    use crate::run::{Event, Settings, begin_lone_run};

    fn conversation() -> Conversation {
        Conversation { key: ConversationKey::new("alice", "chat"), run: RunId::new() }
    }

    fn begun() -> Event {
        Event::Begun { input: vec![Arc::new(Message::user("hi"))] }
    }

    #[tokio::test]
    async fn events_of_a_run_without_a_store_have_no_effect() {
        let run = run_without_store(conversation(), BegunBy::ToolLoop);
        run.write(begun()).await.unwrap();
        run.note(begun());
        run.check_persister().unwrap();
        assert!(run.store().is_none());
        assert_eq!(run.log().assigned_ids(), 0);
    }

    #[tokio::test]
    async fn concurrent_service_calls_begin_the_run_once_and_a_failure_is_not_stored() {
        let (conversation, settings) = (conversation(), Settings::new(MemoryStore::new()));
        let run = run_without_store(conversation.clone(), BegunBy::ToolLoop);
        let failed = async { Err(PersistenceError::NoConversation { layer: "a test" }) };
        store_run(&run, failed).await.unwrap_err();
        assert!(run.store().is_none());
        let begins = AtomicUsize::new(0);
        let begin = async || {
            begins.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            let mut request = ChatRequest::user("hi");
            Ok((begin_lone_run(&settings, conversation.clone(), &mut request, false).await?, None))
        };
        let (one, other) = tokio::join!(store_run(&run, begin()), store_run(&run, begin()));
        assert!(one.unwrap().is_none() && other.unwrap().is_none());
        assert_eq!(begins.into_inner(), 1);
        assert!(run.store().is_some());
        assert_eq!(*run.conversation(), conversation);
    }
}
