//! Lists the scopes of a store, which are found among the names of all keys: each scope has a list
//! of its conversations.

use std::{collections::BTreeSet, ops::Bound};

use redis::{Value, cmd};
use tower_chat_core::store::StoreError;

use super::ACTION;
use crate::{
    answer, list,
    names::{ListName, Names},
    settings::Settings,
};

/// The number of keys that a server scans in one step.
const STEP: usize = 1000;

/// Lists scopes that contain conversations, in byte order.
pub(crate) async fn scopes_after(
    settings: &Settings,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<String>, StoreError> {
    let mut found = Vec::new();
    if limit == 0 {
        return Ok(found);
    }
    let start = after.map_or(Bound::Unbounded, Bound::Excluded);
    for scope in all(settings).await?.range::<str, _>((start, Bound::Unbounded)) {
        if list::has_conversation(settings, scope).await? {
            found.push(scope.clone());
        }
        if found.len() == limit {
            break;
        }
    }
    Ok(found)
}

/// Returns the scopes of all lists of conversations, on all servers.
pub(crate) async fn all(settings: &Settings) -> Result<BTreeSet<String>, StoreError> {
    let mut scopes = BTreeSet::new();
    for server in settings.connections.primaries().await? {
        let mut cursor = "0".to_owned();
        loop {
            let mut scan = cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(settings.names.lists()).arg("COUNT").arg(STEP);
            let answer = settings.connections.ask_server(ACTION, &server, &scan).await?;
            let mut answer = answer::Answer::new(answer)?;
            cursor = answer.text()?;
            for name in answer.list()? {
                let name = answer::text(name)?;
                if let Some(list) = settings.names.read_list(&name) {
                    scopes.extend(scope(settings, &name, list).await?);
                }
            }
            if cursor == "0" {
                break;
            }
        }
    }
    Ok(scopes)
}

/// Returns the scope of a list of conversations. If the name of the list contains only the
/// beginning of the scope, reads the scope from the head of a conversation; `None` if no
/// conversation exists.
async fn scope(
    settings: &Settings,
    name: &str,
    list: ListName,
) -> Result<Option<String>, StoreError> {
    let part = match list {
        ListName::Scope(scope) => return Ok(Some(scope)),
        ListName::Shortened(part) => part,
    };
    let mut after = b"-".to_vec();
    loop {
        let mut next = cmd("ZRANGEBYLEX");
        next.arg(name).arg(&after).arg("+").arg("LIMIT").arg(0).arg(1);
        let ids = answer::list(settings.connections.ask(ACTION, &next).await?)?;
        let Some(id) = ids.into_iter().next() else { return Ok(None) };
        let id = answer::text(id)?;
        let head = settings.names.head_of_shortened(&part, &id);
        let found = settings.connections.ask(ACTION, cmd("HGET").arg(head).arg("scope")).await?;
        if found != Value::Nil {
            let scope = answer::text(found)?;
            return Ok(Names::is_shortened(&scope, &part).then_some(scope));
        }
        after = [b"(", id.as_bytes()].concat();
    }
}
