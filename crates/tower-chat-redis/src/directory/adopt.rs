//! Derives directory entries (description, times, counts and usage) from messages, for
//! conversations that an older release, without a directory, has created.

use std::{collections::BTreeSet, time::SystemTime};

use tower_chat_core::{
    ConversationKey, RunId,
    store::{
        StoreError, UsageSum,
        author::{LAST_SEQUENCE, milliseconds},
    },
};

use super::{ATTEMPTS, entry::write_counts, run_row::unknown_run};
use crate::{
    answer::{Answer, BytePairs, corrupt},
    failure::foreign,
    prune,
    read::keeps_changing,
    script::ADOPT,
    settings::Settings,
};

const ACTION: &str = "describe a conversation of an older release";

/// A directory entry that was derived from the messages of a conversation.
pub(super) struct Derived {
    pub(super) entry: BytePairs,
    /// The [life](crate::conversation::Fields::life) of the conversation when the entry was
    /// derived.
    life: String,
    /// The number of writes of the conversation when the entry was derived.
    writes: String,
}

/// Adds a directory entry to a conversation, unless it already has one, or was deleted or written
/// while its messages were read.
pub(crate) async fn adopt(settings: &Settings, key: &ConversationKey) -> Result<(), StoreError> {
    for _ in 0..ATTEMPTS {
        let Some(derived) = derive(settings, key).await? else { return Ok(()) };
        if store(settings, key, &derived).await? {
            return Ok(());
        }
    }
    Err(keeps_changing(ACTION))
}

/// Stores an entry, unless the conversation was written after the entry was derived. Returns
/// whether the conversation has an entry now.
pub(super) async fn store(
    settings: &Settings,
    key: &ConversationKey,
    derived: &Derived,
) -> Result<bool, StoreError> {
    let names = settings.names.conversation(key);
    let mut call =
        ADOPT.on([names.head(), names.directory()]).with(&derived.life).with(&derived.writes);
    for (name, value) in &derived.entry {
        call.push(name.as_slice());
        call.push(value.as_slice());
    }
    let answer = settings.connections.change(ACTION, true, &call).await?;
    match Answer::new(answer)?.text()?.as_str() {
        "adopted" => Ok(true),
        "changed" => Ok(false),
        other => Err(foreign(other)),
    }
}

/// Derives an entry from the messages of a conversation. Returns `None` if the conversation does
/// not exist, or was deleted or written meanwhile.
pub(super) async fn derive(
    settings: &Settings,
    key: &ConversationKey,
) -> Result<Option<Derived>, StoreError> {
    let Some(first) = prune::page(settings, key, "", 1).await? else { return Ok(None) };
    if first.fields.is_empty() {
        return Ok(None);
    }
    let head = first.fields.unchecked_head(key)?;
    head.check_range(key, LAST_SEQUENCE)?;
    let (life, writes) = (first.fields.life().to_owned(), first.writes.clone());
    let open = head.open_run.map(|open| (open.run, open.visible));
    let mut runs = Runs::default();
    let (mut at, mut page) = (head.pruned, first.runs);
    loop {
        for run in page {
            if open.is_some_and(|(_, visible)| visible == at) {
                runs.open();
            }
            at += 1;
            let run = <[u8; 16]>::try_from(run)
                .map_err(|_| corrupt(&format!("message {at} of conversation {key} is missing")))?;
            runs.see(RunId::from_bytes(run));
        }
        if at >= head.revision.sequence {
            break;
        }
        match prune::page(settings, key, &life, at.saturating_add(1)).await? {
            Some(next) if next.writes == writes && !next.runs.is_empty() => page = next.runs,
            Some(_) | None => return Ok(None),
        }
    }
    if let Some((run, _)) = open {
        runs.open();
        runs.see(run);
    }
    let writes = writes.unwrap_or_default();
    Ok(Some(Derived { entry: runs.entry(first.fields.token()), life, writes }))
}

/// The runs of the messages that were read, in order.
#[derive(Default)]
struct Runs {
    count: u64,
    last: Option<RunId>,
    /// The number of runs, and the last run, before the open run (the run that is not committed
    /// yet) began.
    before: Option<(u64, Option<RunId>)>,
    seen: BTreeSet<RunId>,
}

impl Runs {
    fn see(&mut self, run: RunId) {
        if self.last != Some(run) {
            self.count = self.count.saturating_add(1);
            self.last = Some(run);
            self.seen.insert(run);
        }
    }

    /// Records that all following messages belong to the open run.
    fn open(&mut self) {
        self.before.get_or_insert((self.count, self.last));
    }

    fn entry(&self, token: &str) -> BytePairs {
        let made = self.seen.iter().filter_map(|run| run.made_at()).map(milliseconds::of);
        let now = milliseconds::of(SystemTime::now());
        let (created, active) = (made.clone().min().unwrap_or(now), made.max().unwrap_or(now));
        let bytes = |run: Option<RunId>| run.map(|run| run.to_bytes().to_vec()).unwrap_or_default();
        let number = |number: u64| number.to_string().into_bytes();
        let mut entry: Vec<(&str, Vec<u8>)> = vec![
            ("of", token.as_bytes().to_vec()),
            ("created", created.to_string().into_bytes()),
            ("active", active.to_string().into_bytes()),
            ("runs", number(self.count)),
            ("last", bytes(self.last)),
            ("usage", write_counts(&UsageSum::default()).join(" ").into_bytes()),
        ];
        if let Some((count, last)) = self.before {
            entry.extend([("runs_before", number(count)), ("last_before", bytes(last))]);
        }
        let rows = self
            .seen
            .iter()
            .map(|run| unknown_run(*run, run.made_at().map_or(created, milliseconds::of)));
        let entry = entry.into_iter().map(|(name, value)| (name.as_bytes().to_vec(), value));
        entry.chain(rows).collect()
    }
}
