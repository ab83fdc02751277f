//! PostgreSQL behind a PgBouncer that pools transactions.

use tokio::task::block_in_place;
use tower_chat_postgres::PostgresStore;
use tower_chat_testkit::server::{PgBouncer, PoolMode, PostgresServer};

use super::{Plant, Search, Seen, Writers, check, failed, started};
use crate::{Failure, Figures};

/// Fewer connections to the server than writers.
const POOL_SIZE: usize = 2;

pub(super) async fn run(search: Search, figures: &mut Figures) -> Result<(), Failure> {
    let server = started(block_in_place(PostgresServer::start))?;
    let pooler = PgBouncer::start(&server, PoolMode::Transaction, POOL_SIZE);
    let pooler = started(pooler)?;
    let is_prepared = search.plant == Some(Plant::PreparedStatements);
    let store = PostgresStore::options()
        .with_prepared_statements(is_prepared)
        .connect(&pooler.address("postgres"))
        .await
        .map_err(|error| failed("the store is opened", error))?;
    let writers = Writers::start(search, &store);
    writers.go_on(search).await;
    block_in_place(|| {
        server.crash();
        server.start_again();
    });
    writers.go_on(search).await;
    let logs = writers.stop().await?;
    check(search, &store, &logs).await?;
    let seen = Seen::by(&logs);
    if seen.lost_writes > 0 {
        return Err(search.found(format!("{} writes were lost", seen.lost_writes)));
    }
    seen.figures("pgbouncer", figures);
    Ok(())
}
