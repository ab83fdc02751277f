//! Changes of the summaries of a conversation between two attempts to send a request.

use std::sync::Arc;

use tower_chat::{
    ConversationKey, HistoryStore, Message,
    store::{AddedSummary, History, HistorySummary, Summaries},
};

use super::{
    Driver,
    compare::{compare_requests, same},
};
use crate::contract_model::{
    case::SummaryChange,
    model::{Changed, Model},
    observe,
    planted::Process,
    summaries,
};

impl Driver<'_> {
    /// Adds or removes summaries.
    pub(super) async fn change_summaries(&mut self, change: SummaryChange) -> Result<(), String> {
        let expected = self.model.change_summaries(change);
        let store = Process::new(self.store.clone(), self.world.fault());
        self.world.begin(None);
        match (change, expected) {
            (SummaryChange::Make(limit), Changed::Made { requests, failed }) => {
                let summarize = summaries::policy(limit, self.world.summarizer());
                let made = summarize.now(&store, &self.key).await;
                self.compare_summarized(&requests)?;
                if made.is_err() != failed {
                    return Err(format!("it ends with {made:?}"));
                }
            }
            (_, Changed::Added { messages, text }) => {
                let added = self.add_summary(&store, messages, &text).await?;
                same("the outcome", &[format!("{added:?}")], &["Stored".to_owned()])?;
            }
            (_, Changed::Superseded { messages }) => {
                let added = self.add_summary(&store, messages, "superseded").await?;
                same("the outcome", &[format!("{added:?}")], &["Superseded".to_owned()])?;
            }
            (_, Changed::Removed) => {
                let head = self.store.head(&self.key).await.map_err(|it| it.to_string())?;
                let id = head.summary.ok_or("there is no summary in force")?.id;
                let removed = store.remove_summary(&self.key, id).await;
                same("the outcome", &[format!("{removed:?}")], &["Ok(true)".to_owned()])?;
            }
            (_, Changed::Made { .. } | Changed::Nothing) => {}
        }
        self.compare_store().await
    }

    /// Adds a summary of the first messages with content to the store.
    async fn add_summary(
        &self,
        store: &Process,
        messages: usize,
        text: &str,
    ) -> Result<AddedSummary, String> {
        let history = self.store.load(&self.key).await.map_err(|it| it.to_string())?;
        let has_content = |message: &&Arc<Message>| !message.parts.is_empty();
        let ends = history.messages.iter().enumerate().filter(|(_, it)| has_content(it));
        // Messages without content belong to the run of the message before them.
        let next = ends.map(|(at, _)| at).nth(messages).unwrap_or(history.messages.len());
        let covers_to = next as u64;
        let last = history.message(covers_to).and_then(|last| last.id).ok_or("no last message")?;
        let summary = HistorySummary::new(covers_to, last, text);
        let added = store.add_summary(&self.key, &summary, history.head.rewrites).await;
        added.map_err(|it| it.to_string())
    }

    /// Compares the requests to the service that writes summaries.
    fn compare_summarized(&self, expected: &[Vec<String>]) -> Result<(), String> {
        let seen = self.world.take_seen().summarized;
        compare_requests("the request for a summary", seen, expected)
    }

    pub(super) async fn compare_summaries(
        &self,
        key: &ConversationKey,
        history: &History,
        model: &Model<'_>,
    ) -> Result<(), String> {
        let rows = self.store.history_summaries(key).await.map_err(|it| it.to_string())?;
        let mut lines = Vec::new();
        for row in &rows {
            if history.message(row.covers_to).and_then(|last| last.id) != Some(row.last) {
                return Err(format!("{row:?} names another message"));
            }
            let covered = history.messages.iter().take(row.covers_to as usize);
            let covered = observe::texts(covered.map(|message| &**message), &self.tokens);
            lines.push(format!("{} covers {covered:?}", row.text));
        }
        same("the summaries", &lines, &model.summaries())?;
        match history.head.summary == rows.last().map(HistorySummary::in_force) {
            true => Ok(()),
            false => Err(format!("the head names {:?}, not {rows:?}", history.head.summary)),
        }
    }
}
