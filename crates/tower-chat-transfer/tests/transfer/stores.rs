//! The stores of the tests.

use std::sync::{
    Arc, LazyLock,
    atomic::{AtomicU32, Ordering},
};

use tempfile::TempDir;
use tower_chat::{HistoryStore, MemoryStore};
use tower_chat_encrypted::{EncryptedStore, MasterKeys, SecretKey};
use tower_chat_postgres::PostgresStore;
use tower_chat_redis::RedisStore;
use tower_chat_sqlite::SqliteStore;
use tower_chat_testkit::{
    server::{Missing, PostgresServer, RedisServer},
    skip,
};

static POSTGRES: LazyLock<Result<PostgresServer, Missing>> = LazyLock::new(PostgresServer::start);
static REDIS: LazyLock<Result<RedisServer, Missing>> = LazyLock::new(RedisServer::start);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Memory,
    Sqlite,
    Encrypted,
    Postgres,
    Redis,
}

impl Kind {
    /// Returns all kinds of stores whose servers are installed on this machine.
    pub(crate) fn all() -> Vec<Self> {
        let all = [Self::Memory, Self::Sqlite, Self::Encrypted, Self::Postgres, Self::Redis];
        let is_there = |kind: &Self| {
            let missing = match kind {
                Self::Memory | Self::Sqlite | Self::Encrypted => None,
                Self::Postgres => POSTGRES.as_ref().err(),
                Self::Redis => REDIS.as_ref().err(),
            };
            if let Some(missing) = missing {
                skip(&format!("transfers with {kind:?}"), missing);
            }
            missing.is_none()
        };
        all.into_iter().filter(is_there).collect()
    }

    pub(crate) async fn open(self) -> TestStore {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("transfer_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chat.db");
        let store: Arc<dyn HistoryStore> = match self {
            Self::Memory => Arc::new(MemoryStore::new()),
            Self::Sqlite => Arc::new(SqliteStore::open(path).await.unwrap()),
            Self::Encrypted => {
                let keys = MasterKeys::new("test", SecretKey::random().unwrap()).unwrap();
                Arc::new(EncryptedStore::new(SqliteStore::open(path).await.unwrap(), keys))
            }
            Self::Postgres => {
                let address = POSTGRES.as_ref().unwrap().address("postgres");
                let options = PostgresStore::options().with_schema(&name);
                Arc::new(options.connect(&address).await.unwrap())
            }
            Self::Redis => {
                let address = REDIS.as_ref().unwrap().address(0);
                let options = RedisStore::options().with_prefix(format!("{name}:"));
                Arc::new(options.connect(&address).await.unwrap())
            }
        };
        TestStore { store, _folder: folder }
    }
}

pub(crate) struct TestStore {
    store: Arc<dyn HistoryStore>,
    _folder: TempDir,
}

impl TestStore {
    pub(crate) fn shared(&self) -> Arc<dyn HistoryStore> {
        self.store.clone()
    }
}

impl std::ops::Deref for TestStore {
    type Target = dyn HistoryStore;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}
