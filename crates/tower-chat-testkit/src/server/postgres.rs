//! A PostgreSQL server.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use super::{Account, AtTheEnd, Missing, Programs, free_port};

const PROGRAMS: Programs = Programs {
    what: "PostgreSQL",
    package: "postgresql",
    folders: &["/usr/lib/postgresql/*/bin", "/usr/pgsql/*/bin"],
    names: &["initdb", "pg_ctl", "postgres"],
};

/// How often another port is tried when somebody else takes the one that was free.
const ATTEMPTS: usize = 5;

/// A PostgreSQL server of this process alone. Everybody who can reach it on the loopback is let in,
/// as whichever user they say.
///
/// It does not wait for the disk, so it is fast, survives the end of its own processes, and would
/// not survive the loss of power.
#[derive(Debug)]
pub struct PostgresServer {
    // Dropped first: it needs the folder.
    _end: AtTheEnd,
    folder: TempDir,
    programs: PathBuf,
    account: Account,
    port: u16,
}

impl PostgresServer {
    /// Starts a server.
    ///
    /// # Errors
    ///
    /// [`Missing`], if PostgreSQL is not installed and cannot be.
    ///
    /// # Panics
    ///
    /// If it is there and does not start.
    pub fn start() -> Result<Self, Missing> {
        let programs = PROGRAMS.find()?;
        let account = Account::not_root(&["postgres"]);
        let folder = tempfile::Builder::new().prefix("postgres-").tempdir().expect("a folder");
        account.own(folder.path());
        let data = folder.path().join("data");
        let mut initdb = account.command(&programs.join("initdb"));
        initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"]);
        initdb.args(["--no-sync", "--no-instructions", "--pgdata"]).arg(&data);
        run(&mut initdb, folder.path()).expect("a database cluster is made");
        let end = AtTheEnd::run(
            "pid=$(head -n 1 \"$1/data/postmaster.pid\") && kill -QUIT $pid
             while [ -n \"$pid\" ] && kill -0 $pid; do sleep 0.05; done
             rm -rf \"$1\"",
            &[&folder.path().to_string_lossy()],
        );
        let mut server = Self { _end: end, folder, programs, account, port: 0 };
        let mut failure = String::new();
        for _ in 0..ATTEMPTS {
            server.port = free_port();
            match server.control(&["start"]) {
                Ok(()) => return Ok(server),
                Err(error) => failure = error,
            }
        }
        panic!("PostgreSQL does not start: {failure}\n{}", server.log());
    }

    /// The address of a database on the server, for its superuser. There is one called `postgres`.
    pub fn address(&self, database: &str) -> String {
        self.address_for("postgres", database)
    }

    /// The address of a database on the server, for one of its users.
    pub fn address_for(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }

    /// Ends the server as a crash would. Whoever is connected is cut off.
    ///
    /// # Panics
    ///
    /// If it does not run.
    pub fn crash(&self) {
        let stopped = self.control(&["stop", "--mode=immediate"]);
        stopped.expect("PostgreSQL is stopped");
    }

    /// Starts the server on the same data and port again.
    ///
    /// # Panics
    ///
    /// If it does not start again.
    pub fn start_again(&self) {
        if let Err(error) = self.control(&["start"]) {
            panic!("PostgreSQL does not start again: {error}\n{}", self.log());
        }
    }

    /// What the server said of itself.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Lets `pg_ctl` do something, and waits until it is done.
    fn control(&self, arguments: &[&str]) -> Result<(), String> {
        let mut command = self.account.command(&self.programs.join("pg_ctl"));
        command.args(arguments).args(["--wait", "--timeout=120", "--silent", "--pgdata"]);
        command.arg(self.folder.path().join("data"));
        if arguments.contains(&"start") {
            let options = format!(
                "-p {} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off \
                 -c max_connections=300 -c autovacuum=off",
                self.port
            );
            command.arg("--log").arg(self.folder.path().join("log")).arg("--options").arg(options);
        }
        run(&mut command, self.folder.path())
    }
}

/// Runs a command in a folder that its account may be in.
fn run(command: &mut Command, folder: &Path) -> Result<(), String> {
    // A pipe would stay open for as long as the server that is started holds it.
    let said = folder.join("said");
    let file = fs::File::create(&said).map_err(|error| error.to_string())?;
    let other = file.try_clone().map_err(|error| error.to_string())?;
    let status = command.current_dir(folder).stdout(file).stderr(other).status();
    let status = status.map_err(|error| format!("{command:?} does not run: {error}"))?;
    if status.success() {
        return Ok(());
    }
    Err(format!("{status}: {}", fs::read_to_string(said).unwrap_or_default()))
}
