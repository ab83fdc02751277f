//! Fills a store with conversations of all kinds: with tool calls, descriptions, usage and an open
//! run (a journaled run that was neither committed nor discarded). Every text is unique.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use serde_json::json;
use tower::{Service, ServiceExt};
use tower_chat::{
    BoxError, ChatRequest, ConversationKey, HistoryStore, Message, Part, PersistenceMode, ToolCall,
    store::{Description, Directory, Journal},
};
use tower_chat_testkit::{Rng, Step};

use crate::power_cuts::stack;

#[derive(Clone)]
pub(crate) struct Shared(pub(crate) Arc<dyn HistoryStore>);

#[async_trait]
impl tower_chat::store::author::StoreWrapper for Shared {
    type Inner = dyn HistoryStore;

    fn inner(&self) -> &Self::Inner {
        &*self.0
    }

    async fn load_from(
        &self,
        key: &ConversationKey,
        from: &tower_chat::store::author::LoadFrom,
    ) -> Result<tower_chat::store::History, tower_chat::store::StoreError> {
        self.inner().load_from(key, from).await
    }

    fn journal(&self) -> Option<&dyn tower_chat::store::Journal> {
        self.inner().journal()
    }

    fn directory(&self) -> Option<&dyn tower_chat::store::Directory> {
        self.inner().directory()
    }

    fn tool_calls(&self) -> Option<&dyn tower_chat::store::ToolCallQueries> {
        self.inner().tool_calls()
    }

    fn maintenance(&self) -> Option<&dyn tower_chat::store::Maintenance> {
        self.inner().maintenance()
    }

    fn summaries(&self) -> Option<&dyn tower_chat::store::Summaries> {
        self.inner().summaries()
    }
}

const MODES: [PersistenceMode; 3] =
    [PersistenceMode::PerRun, PersistenceMode::PerServiceCall, PersistenceMode::Journaled];

pub(crate) fn keys() -> Vec<ConversationKey> {
    (0..7).map(|number| ConversationKey::new("alice", format!("conversation {number}"))).collect()
}

pub(crate) async fn fill(store: &Shared, rng: &mut Rng) -> Result<(), BoxError> {
    let mut texts = Texts::default();
    for (number, key) in keys().into_iter().enumerate() {
        for run in 0..4 {
            let mode = rng.one_of(&MODES).copied().unwrap_or_default();
            let mut steps = Vec::new();
            for round in 0..rng.below(3) {
                let mut message = Message::assistant(texts.next("works", rng));
                for call in 0..1 + rng.below(2) {
                    let tool = if rng.one_in(4) { "fail" } else { "look" };
                    let id = format!("call {number} {run} {round} {call}");
                    let arguments = json!({ "what": texts.next("looks", rng) }).to_string();
                    message.parts.push(Part::ToolCall(ToolCall::new(id, tool, arguments)));
                }
                steps.push(Step::message(message));
            }
            steps.push(Step::text(texts.next("answers", rng)));
            let request = ChatRequest::user(texts.next("asks", rng)).in_conversation(key.clone());
            let mut client = stack(steps, store.clone(), mode)?;
            client.ready().await?.call(request).await?.collect().await?;
        }
        let description = Description::new().with_title(format!("the title of {key}"))?;
        store.0.set_description(&key, &description, 0).await?;
    }
    let Some(open) = keys().pop() else { return Ok(()) };
    let request = ChatRequest::user(texts.next("asks", rng)).in_conversation(open.clone());
    let call = ToolCall::new("call of the open run", "look", "{}");
    let mut message = Message::assistant(texts.next("works", rng));
    message.parts.push(Part::ToolCall(call));
    let steps = vec![Step::message(message), Step::hang()];
    let mut client = stack(steps, store.clone(), PersistenceMode::Journaled)?;
    let waiting = async { client.ready().await?.call(request).await?.collect().await };
    tokio::select! {
        answer = waiting => return Err(format!("the model does not answer, but the run ended with {answer:?}").into()),
        staged = answer_is_staged(store, &open) => staged?,
    }
    HistoryStore::flush(store).await?;
    Ok(())
}

async fn answer_is_staged(store: &Shared, key: &ConversationKey) -> Result<(), BoxError> {
    while store.0.open_run(key).await?.is_none_or(|run| run.messages.len() < 2) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

#[derive(Default)]
struct Texts(u64);

impl Texts {
    fn next(&mut self, what: &str, rng: &mut Rng) -> String {
        self.0 += 1;
        let words = [
            "rain", "and", "wind", "over", "the", "hills", "coat", "hat", "train", "at", "noon",
            "river", "north", "seven", "lamp", "green",
        ];
        let mut text = format!("{what} {}:", self.0);
        let length = if rng.one_in(15) { 5_000 } else { 40 + rng.below(500) };
        while text.len() < length {
            text.push(' ');
            text.push_str(rng.one_of(&words).copied().unwrap_or_default());
        }
        text
    }
}
