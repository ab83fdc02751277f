//! Two PostgreSQL servers with their own stores. The scope of a conversation determines the server.

use tokio::task::block_in_place;
use tower_chat_core::{
    ConversationKey,
    store::{HistoryStore, StoreError},
};
use tower_chat_postgres::PostgresStore;
use tower_chat_testkit::server::PostgresServer;
use tower_chat_transfer::{Selection, copy, delete_scope};

use super::{Search, Totals, Writers, append, check, failed, stale, started};
use crate::{Failure, Figures};

struct Stores {
    stores: [PostgresStore; 2],
    moved: Option<String>,
}

impl Stores {
    /// Returns the store of a scope, which a hash of the scope selects. The moved scope has the
    /// other store.
    fn of(&self, scope: &str) -> &PostgresStore {
        let hash = scope.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let is_second = (hash >> 32) & 1 == 1;
        let is_moved = self.moved.as_deref() == Some(scope);
        let [first, second] = &self.stores;
        if is_second != is_moved { second } else { first }
    }
}

pub(super) async fn run(search: Search, figures: &mut Figures) -> Result<(), Failure> {
    let servers = [
        started(block_in_place(PostgresServer::start))?,
        started(block_in_place(PostgresServer::start))?,
    ];
    let [first, second] = &servers;
    let stores = [open(first).await?, open(second).await?];
    let mut stores = Stores { stores, moved: None };
    let of_others = |number| ConversationKey::new(format!("tenant {number}"), "conversation");
    let of_moved = |number| ConversationKey::new(MOVED, format!("conversation {number}"));
    let others = Writers::start_with(search, of_others, |key| stores.of(key.scope()).clone());
    let moved = Writers::start_with(search, of_moved, |key| stores.of(key.scope()).clone());
    moved.run_phase(search).await;

    // The writers of the moved scope are stopped first. The other writers continue.
    let moved = moved.stop().await?;
    let before = stores.of(MOVED).clone();
    let key = of_moved(0);
    let head = before.head(&key).await.map_err(|error| failed("read a head", error))?;
    stores.moved = Some(MOVED.to_owned());
    let after = stores.of(MOVED);
    let copied = copy(&before, after, &Selection::scope(MOVED), &mut |_| Ok(())).await;
    copied.map_err(|error| failed("copy a scope", error))?;
    let deleted = delete_scope(&before, MOVED, &mut |_| Ok(())).await;
    deleted.map_err(|error| failed("delete a scope", error))?;
    check(search, after, &moved).await?;
    match append(&before, stale::write(&key, head.revision, "where the scope was")).await {
        Err(StoreError::Conflict(_)) => {}
        Err(error) => return Err(failed("append as a stale writer", error)),
        Ok(_) => {
            return Err(search.found("the former server of a moved scope accepts writes".into()));
        }
    }

    // A crash of one server affects only its own scopes.
    block_in_place(|| first.crash());
    let mut on_second = (0..search.writers).map(of_others);
    if let Some(key) = on_second.find(|key| std::ptr::eq(stores.of(key.scope()), &stores.stores[1]))
    {
        let head = stores.stores[1].head(&key).await;
        head.map_err(|error| failed("read from the other server", error))?;
    }
    block_in_place(|| first.start_again());
    others.run_phase(search).await;
    let others = others.stop().await?;
    for log in &others {
        check(search, stores.of(log.key.scope()), std::slice::from_ref(log)).await?;
    }
    Totals::of(&others).figures("two servers", figures);
    figures.add("two servers: writes that were moved", Totals::of(&moved).writes);
    Ok(())
}

const MOVED: &str = "moved tenant";

async fn open(server: &PostgresServer) -> Result<PostgresStore, Failure> {
    let opened = PostgresStore::connect(&server.address("postgres")).await;
    opened.map_err(|error| failed("open the store", error))
}
