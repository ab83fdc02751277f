//! Pruning: deleting the oldest runs of a conversation.
//!
//! The store reads the conversation in pages. One script then deletes the oldest runs, if the
//! conversation was not written since the first page was read. The script changes the
//! [life](crate::conversation::Fields::life) of the conversation. By the new life, the script
//! recognises a repeated request, and concurrent readers begin again.

use tower_chat_core::{
    ConversationKey, RunId, ToolStatus,
    store::{
        Keep, Pruned, Revision, StoreError,
        author::{Cut, Pruning},
    },
};

use crate::{
    answer::{Answer, corrupt, damaged},
    conversation::Fields,
    directory,
    failure::foreign,
    read::PAGE_BYTES,
    script::{PRUNE, RUNS},
    settings::{Settings, random},
    tool_row,
};

const ACTION: &str = "prune a conversation";

/// The maximum number of attempts to prune a conversation. An attempt fails if another process
/// writes the conversation meanwhile.
const ATTEMPTS: usize = 64;

/// Deletes the runs of a conversation before the first run that must remain: a run that `keep`
/// retains, or a run with a call that waits for a decision or a result.
pub(crate) async fn prune(
    settings: &Settings,
    key: &ConversationKey,
    keep: Keep,
) -> Result<Pruned, StoreError> {
    for _ in 0..ATTEMPTS {
        let Some(planned) = plan(settings, key, keep).await? else { continue };
        if planned.cut.last_sequence == 0 {
            return Ok(planned.cut.pruned);
        }
        let call = PRUNE
            .on(settings.names.conversation(key).all())
            .with(&planned.life)
            .with(&planned.writes)
            .with(planned.cut.last_sequence)
            .with(planned.revision.pruned().incarnation)
            .with(random());
        let answer = settings.connections.change(ACTION, true, &call).await?;
        match Answer::new(answer)?.text()?.as_str() {
            "pruned" => return Ok(planned.cut.pruned),
            "changed" => {}
            "undescribed" => directory::adopt(settings, key).await?,
            "damaged" => return Err(damaged(key)),
            other => return Err(foreign(other)),
        }
    }
    Err(StoreError::backend(ACTION, true, "other writers changed it during each attempt"))
}

/// A planned prune, for this revision and this life of the conversation.
struct Planned {
    cut: Cut,
    revision: Revision,
    life: String,
    writes: String,
}

/// Plans the prune of a conversation. Returns `None` if the conversation was written meanwhile.
async fn plan(
    settings: &Settings,
    key: &ConversationKey,
    keep: Keep,
) -> Result<Option<Planned>, StoreError> {
    let Some(first) = page(settings, key, "", 1).await? else { return Ok(None) };
    let head = first.fields.head(key)?;
    if let Some(open) = head.open_run {
        return Err(StoreError::UnderWay { key: key.clone(), run: open.run });
    }
    let (life, writes) = (first.fields.life().to_owned(), first.writes.clone());
    let mut pruning = Pruning::new(key, &head, keep);
    for (member, row) in &first.rows {
        let call = tool_row::position(member).map_err(|reason| corrupt(&reason))?;
        let mut words = row.split(' ');
        // An unknown status is treated as `Pending`, so that the run of the call is not deleted.
        let status = words.next().and_then(|status| status.parse().ok());
        let result = words.nth(1).and_then(|sequence| sequence.parse().ok());
        pruning.see_call(call, status.unwrap_or(ToolStatus::Pending), result);
    }
    let (mut at, mut runs) = (head.pruned, first.runs);
    loop {
        for run in runs {
            at += 1;
            let run = <[u8; 16]>::try_from(run)
                .map_err(|_| corrupt(&format!("message {at} of conversation {key} is missing")))?;
            pruning.see_message(at, RunId::from_bytes(run));
        }
        if at >= head.revision.sequence {
            break;
        }
        match page(settings, key, &life, at + 1).await? {
            Some(page) if page.writes == writes => runs = page.runs,
            Some(_) | None => return Ok(None),
        }
    }
    let writes = writes.unwrap_or_default();
    Ok(Some(Planned { cut: pruning.cut()?, revision: head.revision, life, writes }))
}

/// A page with the run of each message.
pub(crate) struct Page {
    /// The fields of the conversation's head; empty except on the first page.
    pub(crate) fields: Fields,
    /// The name of each call of the record, and the beginning of its row; empty except on the first
    /// page.
    rows: Vec<(String, String)>,
    /// The run of each message.
    pub(crate) runs: Vec<Vec<u8>>,
    /// The conversation's number of writes.
    pub(crate) writes: Option<String>,
}

/// Reads a page with the runs of messages. Returns `None` if the conversation no longer has the
/// given life; an empty `life` accepts every life.
pub(crate) async fn page(
    settings: &Settings,
    key: &ConversationKey,
    life: &str,
    from: u64,
) -> Result<Option<Page>, StoreError> {
    let names = settings.names.conversation(key);
    let call = RUNS
        .on([names.head(), names.messages(), names.tools(), names.calls()])
        .with(life)
        .with(from)
        .with(PAGE_BYTES);
    let mut answer = Answer::new(settings.connections.read(ACTION, &call).await?)?;
    match answer.text()?.as_str() {
        "page" => {}
        "gone" => return Ok(None),
        "damaged" => return Err(damaged(key)),
        other => return Err(foreign(other)),
    }
    let fields = Fields::new(answer.pairs()?);
    let rows = answer.pairs()?.into_iter().map(|(member, row)| {
        (member, String::from_utf8_lossy(&row.unwrap_or_default()).into_owned())
    });
    Ok(Some(Page {
        fields,
        rows: rows.collect(),
        runs: answer.bytes()?.into_iter().flatten().collect(),
        writes: answer.optional_text()?,
    }))
}
