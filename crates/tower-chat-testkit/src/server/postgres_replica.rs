//! Replicas and failovers of a [`PostgresServer`].

use std::fs;

use super::{PostgresServer, postgres::run};

impl PostgresServer {
    /// Starts a streaming replica of this server. The replica answers queries and refuses writes.
    ///
    /// # Panics
    ///
    /// Panics if the server is not running, or if the replica does not start.
    pub fn replica(&self) -> Self {
        let setup = self.setup.clone();
        let folder = setup.folder(&self.user);
        let data = folder.path().join("data");
        let mut copy = self.user.command(&self.programs.join("pg_basebackup"));
        copy.args(["--host=127.0.0.1", "--username=postgres", "--checkpoint=fast", "--no-sync"]);
        copy.args(["--wal-method=stream", "--write-recovery-conf", "--port"]);
        copy.arg(self.port().to_string()).arg("--pgdata").arg(&data);
        run(&mut copy, folder.path()).expect("the server is copied");
        Self::run(folder, self.programs.clone(), self.user.clone(), setup)
    }

    /// Promotes a replica to a primary server.
    ///
    /// # Panics
    ///
    /// Panics if this server is not a replica, or is not running.
    pub fn promote(&self) {
        self.control(&["promote"]).expect("the replica is promoted");
    }

    /// Restarts a stopped server as a replica of another server. If this server has transactions
    /// that the other server lacks, it cannot replicate, but refuses writes nevertheless.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start.
    pub fn start_again_as_replica_of(&self, other: &Self) {
        let data = self.folder.path().join("data");
        let setting = format!(
            "primary_conninfo = 'host=127.0.0.1 port={} user=postgres'\n\
             recovery_target_timeline = 'latest'\n",
            other.port()
        );
        let file = data.join("postgresql.auto.conf");
        let before = fs::read_to_string(&file).expect("the settings of the server are read");
        for (path, text) in
            [(file, before + &setting), (data.join("standby.signal"), String::new())]
        {
            fs::write(&path, text).expect("the file of the server is written");
            self.user.own(&path);
        }
        self.start_again();
    }
}
