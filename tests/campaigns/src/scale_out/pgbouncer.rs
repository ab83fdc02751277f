//! PostgreSQL behind PgBouncer in the pool mode `transaction`.

use tokio::task::block_in_place;
use tower_chat_postgres::PostgresStore;
use tower_chat_testkit::server::{PgBouncer, PoolMode, PostgresServer};

use super::{Plant, Search, Totals, Writers, check, failed, started};
use crate::{Failure, Figures};

/// The number of connections from PgBouncer to the server. There are more writers, which therefore
/// share connections.
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
        .map_err(|error| failed("open the store", error))?;
    let writers = Writers::start(search, &store);
    writers.run_phase(search).await;
    block_in_place(|| {
        server.crash();
        server.start_again();
    });
    writers.run_phase(search).await;
    let logs = writers.stop().await?;
    check(search, &store, &logs).await?;
    let totals = Totals::of(&logs);
    if totals.lost_writes > 0 {
        return Err(search.found(format!("{} writes were lost", totals.lost_writes)));
    }
    totals.figures("pgbouncer", figures);
    Ok(())
}
