//! The fields of a conversation and of its open run, which is not committed yet.

use std::{collections::HashMap, sync::Arc, time::SystemTime};

use tower_chat_core::{
    ConversationKey, RunId,
    store::{
        Head, Lease, LeaseEnd, OpenRun, Revision, ServiceIdChange, StoreError, SummaryInForce,
        author::{LAST_SEQUENCE, LoadFrom, milliseconds},
    },
};

use crate::{
    answer::{Pairs, corrupt},
    failure::foreign,
};

/// The stored fields of a conversation's head, which do not include messages and rows.
#[derive(Debug, Default)]
pub(crate) struct Fields(HashMap<String, Vec<u8>>);

impl Fields {
    pub(crate) fn new(pairs: Pairs) -> Self {
        Self(pairs.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
    }

    /// Returns the head of the conversation. Without fields, the conversation does not exist.
    pub(crate) fn head(&self, key: &ConversationKey) -> Result<Head, StoreError> {
        let head = self.unchecked_head(key)?;
        head.check_range(key, LAST_SEQUENCE)?;
        Ok(head)
    }

    /// Returns the head without checking that its numbers are in range.
    pub(crate) fn unchecked_head(&self, key: &ConversationKey) -> Result<Head, StoreError> {
        if self.0.is_empty() {
            return Ok(Head::new(Revision::ABSENT));
        }
        match self.format() {
            Some("1") => {}
            Some(format) => return Err(newer(key, format)),
            None => return Err(foreign("there is no format")),
        }
        self.read().map_err(|reason| corrupt(&format!("conversation {key}: {reason}")))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn format(&self) -> Option<&str> {
        self.text("format")
    }

    /// Returns the token of the conversation: a random text that distinguishes the conversation
    /// from earlier and later conversations with the same key. Unlike the [life](Self::life), the
    /// token does not change when messages are pruned or rewritten.
    pub(crate) fn token(&self) -> &str {
        self.text("token").unwrap_or_default()
    }

    /// Returns the id of the open run.
    pub(crate) fn run(&self) -> Option<RunId> {
        let run = <[u8; 16]>::try_from(&**self.0.get("run")?).ok()?;
        Some(RunId::from_bytes(run))
    }

    /// Returns the life of the conversation: a random text that changes when the conversation is
    /// created again, pruned or rewritten.
    pub(crate) fn life(&self) -> &str {
        self.text("life").unwrap_or_default()
    }

    fn read(&self) -> Result<Head, String> {
        let revision = Revision {
            incarnation: self.number("incarnation")?,
            sequence: self.number("sequence")?,
        };
        let open = if self.0.contains_key("run") { Some(self.open_run()?) } else { None };
        let pruned = if self.0.contains_key("pruned") { self.number("pruned")? } else { 0 };
        let rewrites = if self.0.contains_key("rewrites") { self.number("rewrites")? } else { 0 };
        let summary = match self.0.contains_key("summary") {
            true => Some(SummaryInForce::new(self.number("summary")?, self.number("summary_to")?)),
            false => None,
        };
        Ok(Head::new(revision)
            .with_summary(summary)
            .with_rewrites(rewrites)
            .with_load_from(self.text("load_from").and_then(LoadFrom::from_json).map(Arc::new))
            .with_pruned(pruned)
            .with_service_id(self.optional("service_id")?)
            .with_open_run(open))
    }

    fn open_run(&self) -> Result<OpenRun, String> {
        let run = self.run().ok_or("a run id is not 16 bytes")?;
        let lease = Lease {
            attempt: self.number("attempt")?,
            holder: self.number("holder")?,
            renewed_at: self.time("renewed")?.ok_or("it has no time of renewal")?,
            until: LeaseEnd::from_stored(self.time("until")?),
        };
        let mut open = OpenRun::new(run, lease, self.number("visible")?);
        open.opened_at = self.time("opened")?.ok_or("it has no time of opening")?;
        open.service_id = match self.optional("staged_service_id")?.as_deref() {
            None => None,
            Some("!") => Some(ServiceIdChange::Clear),
            Some(id) => Some(ServiceIdChange::Set(id.get(1..).unwrap_or_default().into())),
        };
        open.partial_text = self.optional("partial_text")?;
        Ok(open)
    }

    fn text(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.0.get(name)?).ok()
    }

    fn optional(&self, name: &str) -> Result<Option<Arc<str>>, String> {
        let Some(bytes) = self.0.get(name) else { return Ok(None) };
        let text = std::str::from_utf8(bytes).map_err(|error| format!("its {name}: {error}"))?;
        Ok(Some(text.into()))
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<T, String> {
        let number = self.text(name).and_then(|text| text.parse().ok());
        number.ok_or_else(|| format!("its {name} is no number"))
    }

    fn time(&self, name: &str) -> Result<Option<SystemTime>, String> {
        if self.text(name).is_some_and(str::is_empty) {
            return Ok(None);
        }
        let stored: i64 = self.number(name)?;
        milliseconds::time(stored).map(Some).ok_or_else(|| format!("there is no time {stored}"))
    }
}

/// Returns the error for a conversation in a newer format.
pub(crate) fn newer(key: &ConversationKey, format: &str) -> StoreError {
    let reason = format!(
        "conversation {key} was written in format {format}, and this release reads format 1: use the newer release \
         that wrote it"
    );
    StoreError::Corrupt { reason }
}

/// Returns the number of visible messages.
pub(crate) fn visible(head: &Head) -> u64 {
    head.open_run.as_ref().map_or(head.revision.sequence, |open| open.visible)
}
