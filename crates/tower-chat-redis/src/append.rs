//! Appends: calls the script for a write, and reads its outcome.

use std::time::SystemTime;

use tower_chat_core::{
    PersistenceMode, RunId,
    store::{
        Conflict, ModelUsage, Revision, RunActivity, ServiceIdChange, StoreError, UsageSum,
        author::{Close, LAST_SEQUENCE, Staged, Write, milliseconds},
    },
};

use crate::{
    answer::{Answer, damaged, number},
    branches,
    conversation::newer,
    directory::{self, write_counts},
    failure::foreign,
    list::{self, Listing},
    message,
    read::keeps_changing,
    script::{APPEND, Call, DISCARD},
    settings::Settings,
    tool_row,
};

const ACTION: &str = "append to a conversation";

/// The maximum number of times that a write adds a missing directory entry to a conversation. After
/// one addition, a process of an older release may delete and recreate the conversation without an
/// entry.
const ATTEMPTS: usize = 16;

/// Stores a write. If the write is already stored, returns its revision without storing it again.
///
/// After a lost connection, the write is sent again, unless it has no messages and
/// [claims](tower_chat_core::store::author::Claim) tool calls. Such a write would be refused if the
/// first execution has stored it.
///
/// If the write may create its conversation, this function first adds the conversation to the list
/// of its scope, and a branch to the index of its parent.
pub(crate) async fn append(settings: &Settings, write: &Write) -> Result<Revision, StoreError> {
    let is_repeatable = !write.messages().is_empty() || write.claims().is_empty();
    let may_make = write.expected().incarnation == 0;
    write.check_range(LAST_SEQUENCE)?;
    let (mut late, mut adoptions) = (0, 0);
    while late < list::ATTEMPTS && adoptions < ATTEMPTS {
        let listing = match may_make {
            true => Some(list::add_to_list(settings, write.key()).await?),
            false => None,
        };
        if let (Some(listing), Some(parent)) = (&listing, write.parent()) {
            branches::add(settings, &parent.key, write.key(), &listing.token).await?;
        }
        let call = call(settings, write, listing.as_ref());
        let answer = settings.connections.change(ACTION, is_repeatable, &call).await?;
        match outcome(write, answer)? {
            Outcome::Done(outcome) => return outcome,
            Outcome::Late => late += 1,
            Outcome::Undescribed => {
                directory::adopt(settings, write.key()).await?;
                adoptions += 1;
            }
        }
    }
    if late < list::ATTEMPTS { Err(keeps_changing(ACTION)) } else { Err(list::late(ACTION)) }
}

fn call(settings: &Settings, write: &Write, listing: Option<&Listing>) -> Call {
    let (expected, result) = (write.expected(), write.result());
    let (key, staged) = (write.key(), write.as_staged());
    let (script, kind, cut) = match staged.map(|staged| staged.close) {
        None => (&APPEND, "visible", 0),
        Some(None) => (&APPEND, "staged", 0),
        Some(Some(Close::Commit)) => (&APPEND, "commit", 0),
        Some(Some(Close::Discard { visible })) => (&DISCARD, "discard", visible),
    };
    let change = match staged {
        Some(staged) => staged.service_id.as_ref(),
        None => write.service_id(),
    };
    let mut call = script
        .on(settings.names.conversation(key).all())
        .with(expected.incarnation)
        .with(expected.sequence)
        .with(result.incarnation)
        .with(result.sequence)
        .with(&message::name(write.id()))
        .with(&write.run().to_bytes())
        .with(kind)
        .with(cut);
    push_lease(&mut call, staged);
    call = call
        .with(service_id(change))
        .with(settings.lifetime())
        .with(if settings.connections.waits() { "1" } else { "" });
    match listing {
        Some(listing) => {
            call.push(listing.deadline);
            call.push(&listing.token);
            call.push(crate::settings::random());
            call.push(key.scope());
            call.push(key.id());
        }
        // The write expects an existing conversation, so that the script ignores these arguments.
        None => ["0", "", "", "", ""].iter().for_each(|nothing| call.push(nothing)),
    }
    let rows = tool_row::last_of_each(write.tools());
    call = call.with(write.messages().len()).with(write.claims().len()).with(rows.len());
    for appended in write.messages() {
        // The default is never used, because every message of a write has an id.
        call.push(message::write(appended.id.unwrap_or(write.id()), appended));
    }
    for claim in write.claims() {
        call.push(tool_row::member(claim.call));
        call.push(claim.call.sequence);
        let started = claim.started_at.map(|time| milliseconds::of(time).to_string());
        call.push(started.unwrap_or_default());
    }
    tool_row::push(&mut call, &rows);
    push_activity(&mut call, write);
    call.push(write.parent().map(directory::write_parent).unwrap_or_default());
    call.push(write.load_from().map(|from| from.to_json()).unwrap_or_default());
    call
}

/// Adds the activity of the write, with which the script updates the directory entry.
fn push_activity(call: &mut Call, write: &Write) {
    let activity = write.activity();
    call.push(if activity.is_some() { "1" } else { "" });
    let now = SystemTime::now();
    call.push(milliseconds::of(activity.map_or(now, RunActivity::at)));
    call.push(milliseconds::of(activity.map_or(now, RunActivity::began_at)));
    let mode = activity.and_then(RunActivity::mode);
    call.push(mode.map(PersistenceMode::as_str).unwrap_or_default());
    // A write without usage adds a row without counts. Every run then has a row.
    let nothing = [ModelUsage::new(None, UsageSum::default())];
    let usage = if write.usage().is_empty() { &nothing } else { write.usage() };
    call.push(usage.len());
    for ModelUsage { model, sum, .. } in usage {
        call.push(model.as_deref().unwrap_or_default());
        write_counts(sum).iter().for_each(|count| call.push(count));
    }
}

fn push_lease(call: &mut Call, staged: Option<&Staged>) {
    let Some(Staged { lease, partial_text, .. }) = staged else {
        ["", "", "", "", ""].iter().for_each(|nothing| call.push(nothing));
        return;
    };
    call.push(lease.attempt);
    call.push(lease.holder);
    call.push(milliseconds::of(lease.renewed_at));
    let until = lease.until.to_stored().map(|time| milliseconds::of(time).to_string());
    call.push(until.unwrap_or_default());
    let text = partial_text.as_ref().map(|text| format!("={text}"));
    call.push(text.unwrap_or_default());
}

fn service_id(change: Option<&ServiceIdChange>) -> String {
    match change {
        Some(ServiceIdChange::Set(id)) => format!("={id}"),
        Some(ServiceIdChange::Clear) => "!".to_owned(),
        None => String::new(),
    }
}

/// The outcome of a write.
enum Outcome {
    Done(Result<Revision, StoreError>),
    /// The [deadline](crate::list::Listing::deadline) for creating the conversation had passed. The
    /// conversation must be added to the list again.
    Late,
    /// The conversation has no directory entry, which must be created before the write can be
    /// stored.
    Undescribed,
}

/// Converts the reply of the script to the outcome of the write.
fn outcome(write: &Write, answer: redis::Value) -> Result<Outcome, StoreError> {
    let key = write.key().clone();
    let mut answer = Answer::new(answer)?;
    Ok(Outcome::Done(match answer.text()?.as_str() {
        "stored" => Ok(write.result()),
        "late" => return Ok(Outcome::Late),
        "undescribed" => return Ok(Outcome::Undescribed),
        "claimed" => {
            let call = tool_row::position(&answer.text()?);
            let call = call.map_err(|reason| crate::answer::corrupt(&reason))?;
            Err(StoreError::Claimed { key, call })
        }
        "conflict" => {
            let found = Revision {
                incarnation: number(&answer.text()?)?,
                sequence: number(&answer.text()?)?,
            };
            let run = answer.raw()?;
            let run = <[u8; 16]>::try_from(run).ok().map(RunId::from_bytes);
            let conflict = Conflict::new(key, write.expected(), found).with_open_run(run);
            Err(Box::new(conflict).into())
        }
        "damaged" => Err(damaged(&key)),
        "newer" => Err(newer(&key, &answer.text()?)),
        other => Err(foreign(other)),
    }))
}

#[cfg(test)]
mod tests {
    use redis::{Client, Value, cmd};
    use tower_chat_core::{ConversationKey, Message, MessageId, store::author::SealMark};
    use tower_chat_testkit::{server::RedisServer, skip};

    use super::*;
    use crate::{
        RedisOptions,
        connections::{Connections, Target},
        names::Names,
        settings::random,
    };

    #[tokio::test]
    async fn an_append_after_the_deadline_of_its_listing_creates_no_conversation() {
        let server = match RedisServer::start() {
            Ok(server) => server,
            Err(missing) => return skip("a conversation that Redis made late", missing),
        };
        let client = Client::open(server.address(0)).unwrap();
        let target = Target::Server(Box::new(client));
        let settings = Settings {
            connections: Connections::new(target, &RedisOptions::new()),
            names: Names::new("test"),
            time_to_live: None,
            seal_mark: SealMark::default(),
        };
        let key = ConversationKey::new("scope", "late");
        let id = MessageId { run: RunId::new(), index: 0 };
        let write = Write::new(key, id, Revision::ABSENT, [Message::user("hi").into()]);
        let listing = Listing { deadline: 0, token: random() };
        let late = call(&settings, &write, Some(&listing));
        let answer = settings.connections.change(ACTION, true, &late).await.unwrap();
        assert!(matches!(outcome(&write, answer), Ok(Outcome::Late)));
        let left = settings.connections.ask(ACTION, &cmd("DBSIZE")).await.unwrap();
        assert_eq!(left, Value::Int(0));
        assert_eq!(append(&settings, &write).await.unwrap(), write.result());
    }
}
