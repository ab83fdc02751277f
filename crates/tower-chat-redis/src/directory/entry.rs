//! The directory entry of one conversation: a hash with its description, times, counts and usage.

use std::{collections::HashMap, time::SystemTime};

use tower_chat_core::{
    ConversationKey, PersistenceMode, Usage,
    store::{ConversationSummary, Description, Head, Parent, StoreError, UsageSum},
};

use super::{run_row::RunRow, time, unreadable};
use crate::{answer::BytePairs, conversation::Fields};

/// The number of bytes of a run id. The names of fields for runs begin with the id of the run, and
/// all other names are shorter.
const RUN: usize = 16;

/// The fields of an entry, including the fields of runs if these were requested.
#[derive(Debug, Default)]
pub(super) struct EntryFields {
    fields: HashMap<Vec<u8>, Vec<u8>>,
}

/// The directory entry of a conversation, without its runs.
#[derive(Debug)]
pub(crate) struct Entry {
    created_at: SystemTime,
    last_active_at: SystemTime,
    pub(crate) last_mode: Option<PersistenceMode>,
    runs: u64,
    last_run: Vec<u8>,
    /// The number of runs, and the last run, not including the open run (the run that is not
    /// committed yet).
    without_open_run: Option<(u64, Vec<u8>)>,
    usage: UsageSum,
    pub(crate) description: Description,
    pub(crate) description_version: u64,
    /// The parent, if the conversation is a branch.
    parent: Option<Parent>,
}

impl EntryFields {
    pub(super) fn new(fields: BytePairs) -> Self {
        Self { fields: fields.into_iter().collect() }
    }

    /// Returns whether the entry belongs to the conversation with this head. Otherwise it belongs
    /// to a deleted conversation with the same key.
    pub(super) fn is_of(&self, head: &Fields) -> bool {
        self.fields.get(&b"of"[..]).is_some_and(|of| of == head.token().as_bytes())
    }

    pub(super) fn read(&self, key: &ConversationKey) -> Result<Entry, StoreError> {
        self.entry().map_err(|reason| unreadable(key, &reason))
    }

    /// Returns the rows of all runs, ordered by run and model.
    pub(super) fn runs(&self, key: &ConversationKey) -> Result<Vec<RunRow>, StoreError> {
        let rows = self.fields.iter().filter(|(name, _)| name.len() >= RUN);
        let rows = rows.map(|(name, row)| RunRow::read(name, row));
        let mut rows: Vec<_> =
            rows.collect::<Result<_, _>>().map_err(|reason| unreadable(key, &reason))?;
        rows.sort_unstable_by(|left, right| left.order().cmp(&right.order()));
        Ok(rows)
    }

    fn entry(&self) -> Result<Entry, String> {
        let without_open_run = match self.fields.get(&b"runs_before"[..]) {
            Some(_) => Some((self.number("runs_before")?, self.bytes("last_before"))),
            None => None,
        };
        let description = match self.fields.get(&b"description"[..]) {
            Some(json) if !json.is_empty() => {
                serde_json::from_slice(json).map_err(|error| format!("its description: {error}"))?
            }
            Some(_) | None => Description::new(),
        };
        let parent = match self.fields.get(&b"parent"[..]) {
            Some(json) if !json.is_empty() => {
                serde_json::from_slice(json).map_err(|error| format!("its parent: {error}"))?
            }
            Some(_) | None => None,
        };
        let has_version = self.fields.contains_key(&b"version"[..]);
        Ok(Entry {
            created_at: time(self.number("created")?)?,
            last_active_at: time(self.number("active")?)?,
            last_mode: mode(self.text("mode").unwrap_or_default())?,
            runs: self.number("runs")?,
            last_run: self.bytes("last"),
            without_open_run,
            usage: read_counts(self.text("usage").unwrap_or_default())?,
            description,
            description_version: if has_version { self.number("version")? } else { 0 },
            parent,
        })
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        self.fields.get(name.as_bytes()).cloned().unwrap_or_default()
    }

    fn text(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.fields.get(name.as_bytes())?).ok()
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<T, String> {
        let number = self.text(name).and_then(|text| text.parse().ok());
        number.ok_or_else(|| format!("its {name} is no number"))
    }
}

impl Entry {
    pub(super) fn summary(&self, key: &ConversationKey, head: &Head) -> ConversationSummary {
        let mut summary = ConversationSummary::new(key.clone(), head, self.created_at);
        summary.last_active_at = self.last_active_at;
        summary.description = self.description.clone();
        summary.description_version = self.description_version;
        summary.runs = self.runs;
        summary.usage = self.usage;
        summary.last_mode = self.last_mode;
        summary.parent = self.parent.clone();
        summary
    }

    /// Returns the number of runs and the id of the last run, without the open run if `is_open`.
    pub(crate) fn visible_runs(&self, is_open: bool) -> (u64, &[u8]) {
        match &self.without_open_run {
            Some((runs, last)) if is_open => (*runs, last),
            // If no run is open, `without_open_run` is ignored: an older release does not remove it
            // when a run ends.
            Some(_) | None => (self.runs, &self.last_run),
        }
    }
}

/// Reads the mode of a run; `None` if the mode is not known.
pub(super) fn mode(text: &str) -> Result<Option<PersistenceMode>, String> {
    match text {
        "" | "-" => Ok(None),
        text => text.parse().map(Some).map_err(|error| format!("{error}")),
    }
}

/// Returns the stored form of the parent of a branch.
pub(crate) fn write_parent(parent: &Parent) -> String {
    // Texts and a number can always be written as JSON.
    serde_json::to_string(parent).unwrap_or_default()
}

/// Converts counts to the texts with which the scripts compute sums.
pub(crate) fn write_counts(sum: &UsageSum) -> [String; 7] {
    let Usage { input_tokens, cached_input_tokens, output_tokens, reasoning_tokens, .. } =
        sum.tokens;
    let counts = [sum.service_calls, sum.tool_calls, input_tokens, cached_input_tokens];
    let [calls, tools, input, cached] = counts.map(|count| count.to_string());
    let [output, reasoning] = [output_tokens, reasoning_tokens].map(|count| count.to_string());
    let cost = sum.cost_nanos.map_or_else(|| "-".to_owned(), |cost| cost.to_string());
    [calls, tools, input, cached, output, reasoning, cost]
}

/// Parses counts from the text that the scripts store.
pub(super) fn read_counts(text: &str) -> Result<UsageSum, String> {
    let damaged = || format!("its usage {text:?} cannot be parsed");
    let mut words = text.split(' ');
    let mut count = || words.next()?.parse::<u64>().ok();
    let counts = [count(), count(), count(), count(), count(), count()];
    let [Some(calls), Some(tools), Some(input), Some(cached), Some(output), Some(reasoning)] =
        counts
    else {
        return Err(damaged());
    };
    let cost = match words.next() {
        Some("-") => None,
        cost => Some(cost.and_then(|cost| cost.parse().ok()).ok_or_else(damaged)?),
    };
    if words.next().is_some() {
        return Err(damaged());
    }
    let mut tokens = Usage::new(input, output);
    tokens.cached_input_tokens = cached;
    tokens.reasoning_tokens = reasoning;
    Ok(UsageSum::of_calls(calls, tools).with_tokens(tokens).with_cost_nanos(cost))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_they_were_written_and_damaged_texts_are_errors() {
        let mut tokens = Usage::new(1, 2);
        tokens.cached_input_tokens = 3;
        tokens.reasoning_tokens = UsageSum::LARGEST;
        for cost in [None, Some(0), Some(UsageSum::LARGEST)] {
            let sum = UsageSum::of_calls(5, 6).with_tokens(tokens).with_cost_nanos(cost);
            assert_eq!(read_counts(&write_counts(&sum).join(" ")), Ok(sum));
        }
        for text in ["", "0 0 0 0 0 0", "0 0 0 0 0 - 0", "0 0 0 0 0 0 - 0", "a 0 0 0 0 0 -"] {
            assert!(read_counts(text).is_err(), "{text}");
        }
    }
}
